"""Systems of equations from factors that exist already: LAPACK solves them, the rows say what comes
out.

As in ``factorizations.py``, matrices come back column by column, the batches row-major around them.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.graph import TensorType
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.linear.factorizations import columns, matrix
from anyshape.ops.rules import tensor
from anyshape.ops.table import Extern, op
from anyshape.symbolic import eq, ge, le


def _cholesky_inverse_type(cx: TypeContext, x: Any, upper: Any = False) -> TensorType:
    t, _, n, _ = matrix(cx, x, square=True)
    return columns(cx, t, n, n)


def _solution(cx: TypeContext, factors: Any, right: Any) -> TensorType:
    """As many unknowns as the factors have rows, for each column of the right-hand side; batches
    broadcast."""
    t, batch, n, _ = matrix(cx, factors, square=True)
    b, others, rows, count = matrix(cx, right)
    if b.dtype != t.dtype:
        raise OpError(f"expected both to have one dtype, got {b.dtype} and {t.dtype}")
    cx.require(eq(rows, n), "Incompatible matrix sizes: each A matrix is n by n, each b n by k")
    shape = (*cx.broadcast_shapes((others, batch)), n, count)
    return columns(cx, TensorType(t.dtype, t.device, shape, ()), n, count)


def _cholesky_solve_type(cx: TypeContext, x: Any, factor: Any, upper: Any = False) -> TensorType:
    return _solution(cx, factor, x)


def _ldl_solve_type(
    cx: TypeContext, factors: Any, pivots: Any, right: Any, *, hermitian: Any = False
) -> TensorType:
    t, p = tensor(factors), tensor(pivots)
    if t.rank < 2 or p.rank != t.rank - 1:
        raise OpError("torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be equal")
    for a, b in zip(t.shape, p.shape, strict=False):
        cx.require(eq(a, b), "torch.linalg.ldl_solve: LD.shape[:-1] and pivots.shape differ")
    return _solution(cx, factors, right)


def _solve_triangular_type(
    cx: TypeContext,
    factors: Any,
    right: Any,
    *,
    upper: Any,
    left: Any = True,
    unitriangular: Any = False,
) -> TensorType:
    """``X`` of ``A X = B``, of ``X A = B`` where A is not to the left."""
    t, batch, n, _ = matrix(cx, factors, square=True)
    b, others, rows, count = matrix(cx, right)
    if b.dtype != t.dtype:
        raise OpError("linalg.solve_triangular: Expected A and B to have the same dtype")
    cx.require(eq(rows if left else count, n), "Incompatible shapes of A and B for the equation")
    shape = (*cx.broadcast_shapes((others, batch)), rows, count)
    return columns(cx, TensorType(t.dtype, t.device, shape, ()), rows, count)


def _ormqr_type(
    cx: TypeContext, x: Any, tau: Any, other: Any, left: Any = True, transpose: Any = False
) -> TensorType:
    t, batch, m, n = matrix(cx, x)
    scales, right = tensor(tau), tensor(other)
    if not t.rank == right.rank == scales.rank + 1:
        raise OpError("torch.ormqr: expected input, tau and other of ranks n, n - 1 and n")
    side = right.shape[-2 if left else -1]
    cx.require(ge(side, scales.shape[-1]), "torch.ormqr: other.shape is less than tau.shape[-1]")
    cx.require(le(scales.shape[-1], n), "torch.ormqr: tau.shape[-1] is more than input.shape[-1]")
    cx.require(eq(side, m), "torch.ormqr: other.shape must be equal to input.shape[-2]")
    for shape in (scales.shape[:-1], right.shape[:-2]):
        for a, b in zip(batch, shape, strict=True):
            cx.require(eq(a, b), "torch.ormqr: batch dimensions must be equal")
    return columns(cx, right, right.shape[-2], right.shape[-1])


for _name, _signature, _torch, _type, _spellings in (
    ("cholesky_inverse", "input, upper=False", "cholesky_inverse", _cholesky_inverse_type,
     ("torch.Tensor.cholesky_inverse",)),
    ("cholesky_solve", "input, input2, upper=False", "cholesky_solve", _cholesky_solve_type,
     ("torch.Tensor.cholesky_solve",)),
    ("linalg_ldl_solve", "LD, pivots, B, *, hermitian=False", "linalg.ldl_solve", _ldl_solve_type,
     ()),
    ("linalg_solve_triangular", "A, B, *, upper, left=True, unitriangular=False",
     "linalg.solve_triangular", _solve_triangular_type, ()),
    ("ormqr", "input, tau, other, left=True, transpose=False", "ormqr", _ormqr_type,
     ("torch.Tensor.ormqr",)),
):  # fmt: skip
    op(
        _name, _signature, torch=f"torch.{_torch}", spellings=_spellings, type=_type,
        lower=Extern(f"torch.{_torch}"), raises=True,
    )  # fmt: skip
