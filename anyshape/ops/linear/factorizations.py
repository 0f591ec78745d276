"""Factorisations and solvers: LAPACK does them, the rows only say what comes out.

Matrices come back column by column, as LAPACK leaves them: ``(m, n)`` with strides ``(1, m)``, the
batches row-major around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ir.dtypes import COMPLEX_OF_REAL, REAL_OF_COMPLEX, DType, int32, int64
from anyshape.ir.graph import HOST, TensorType
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.layout import Shape, contiguous_strides, preserved_strides
from anyshape.ops.rules import new, tensor
from anyshape.ops.table import Extern, op
from anyshape.symbolic import Dim, all_of, any_of, eq, ge, gt, le, maximum, minimum

Types = tuple[TensorType, ...]


def columns(cx: TypeContext, t: TensorType, m: Dim, n: Dim, lead: Dim | None = None) -> TensorType:
    """Matrices of this size, column by column, ``lead`` elements apart (``m`` if not said); as in
    ``row_major``, a size of 0 counts as 1."""
    step = m if lead is None else lead
    turned = contiguous_strides(cx, (*t.shape[:-2], n, step))
    return TensorType(t.dtype, t.device, (*t.shape[:-2], m, n), (*turned[:-2], 1, turned[-2]))


def matrix(cx: TypeContext, x: Any, square: bool = False) -> tuple[TensorType, Shape, Dim, Dim]:
    """(type, batch, rows, columns) of matrices of floating point numbers."""
    t = tensor(x)
    if t.rank < 2:
        raise OpError("The input tensor A must have at least 2 dimensions.")
    if not (t.dtype.is_floating or t.dtype.is_complex):
        raise OpError(f"Expected a floating point or complex tensor as input. Got {t.dtype}")
    if square:
        cx.require(eq(t.shape[-1], t.shape[-2]), "A must be batches of square matrices")
    return t, t.shape[:-2], t.shape[-2], t.shape[-1]


def shorter(cx: TypeContext, m: Dim, n: Dim) -> Dim:
    """The smaller of two sizes."""
    if m == n or cx.known(le(m, n)):
        return m
    return n if cx.known(le(n, m)) else minimum(m, n)


def _real(t: TensorType) -> DType:
    return REAL_OF_COMPLEX.get(t.dtype, t.dtype)


def _complex(t: TensorType) -> DType:
    return COMPLEX_OF_REAL.get(t.dtype, t.dtype)


# --- one square matrix ---


def _square(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that is given the type of square matrices, their batch and their size."""

    def typed(cx: TypeContext, x: Any, *rest: Any, **options: Any) -> Any:
        t, batch, n, _ = matrix(cx, x, square=True)
        return rule(cx, t, batch, n)

    return typed


def _same(cx: TypeContext, t: TensorType, batch: Shape, n: Dim) -> TensorType:
    return columns(cx, t, n, n)


def _cholesky(cx: TypeContext, t: TensorType, batch: Shape, n: Dim) -> TensorType:
    """The older function makes an empty result row by row."""
    if any(cx.same(size, 0) for size in t.shape):
        return new(cx, t, t.shape)
    return columns(cx, t, n, n)


def _matrix_exp(cx: TypeContext, t: TensorType, batch: Shape, n: Dim) -> TensorType:
    """Eager copies matrices without elements and takes ``exp`` of those of one."""
    if cx.same(n, 0) or cx.same(n, 1):
        return TensorType(t.dtype, t.device, t.shape, preserved_strides(cx, t))
    return new(cx, t, t.shape)


SQUARE: dict[str, tuple[str, Callable[..., Any], tuple[str, ...]]] = {
    "linalg_cholesky": ("A, *, upper=False", _same, ()),
    "cholesky": ("input, upper=False", _cholesky, ("torch.Tensor.cholesky",)),
    "linalg_inv": ("A", _same, ("torch.inverse", "torch.Tensor.inverse")),
    "linalg_det": (
        "A",
        lambda cx, t, batch, n: new(cx, t, batch),
        ("torch.det", "torch.Tensor.det"),
    ),
    "linalg_slogdet": (
        "A",
        lambda cx, t, batch, n: (new(cx, t, batch), new(cx, t, batch, _real(t))),
        (),  # torch.slogdet returns another class of tuple
    ),
    "linalg_eigh": (
        "A, UPLO='L'",
        lambda cx, t, batch, n: (new(cx, t, (*batch, n), _real(t)), columns(cx, t, n, n)),
        (),
    ),
    "linalg_eigvalsh": (
        "A, UPLO='L'",
        lambda cx, t, batch, n: new(cx, t, (*batch, n), _real(t)),
        (),
    ),
    "linalg_eigvals": ("A", lambda cx, t, batch, n: new(cx, t, (*batch, n), _complex(t)), ()),
    "linalg_inv_ex": (
        "A, *, check_errors=False",
        lambda cx, t, batch, n: (columns(cx, t, n, n), new(cx, t, batch, int32)),
        (),
    ),
    "linalg_cholesky_ex": (
        "A, *, upper=False, check_errors=False",
        lambda cx, t, batch, n: (columns(cx, t, n, n), new(cx, t, batch, int32)),
        (),
    ),
    "matrix_exp": (
        "input",
        _matrix_exp,
        ("torch.Tensor.matrix_exp", "torch.linalg.matrix_exp"),
    ),
}
for _name, (_signature, _rule, _spellings) in SQUARE.items():
    _torch = f"torch.{_name.replace('linalg_', 'linalg.')}"
    op(
        _name, _signature, torch=_torch, spellings=_spellings, type=_square(_rule),
        lower=Extern(_torch), raises=True,
    )  # fmt: skip

# --- any matrix ---


def _right_vectors(cx: TypeContext, t: TensorType, count: Dim, n: Dim) -> TensorType:
    """``(count, n)``, as LAPACK leaves them; row by row on other devices."""
    here = t.device == HOST
    return columns(cx, t, count, n) if here else new(cx, t, (*t.shape[:-2], count, n))


def _turned_vectors(cx: TypeContext, t: TensorType, n: Dim, count: Dim) -> TensorType:
    """The same, transposed."""
    here = t.device == HOST
    return new(cx, t, (*t.shape[:-2], n, count)) if here else columns(cx, t, n, count)


def _linalg_svd_type(cx: TypeContext, x: Any, full_matrices: Any = True, **options: Any) -> Types:
    t, batch, m, n = matrix(cx, x)
    k = shorter(cx, m, n)
    left, right = (m, n) if full_matrices else (k, k)
    values = new(cx, t, (*batch, k), _real(t))
    return columns(cx, t, m, left), values, _right_vectors(cx, t, right, n)


def _svd_type(cx: TypeContext, x: Any, some: Any = True, compute_uv: Any = True) -> Types:
    t, batch, m, n = matrix(cx, x)
    values = new(cx, t, (*batch, shorter(cx, m, n)), _real(t))
    if not compute_uv:
        return new(cx, t, (*batch, m, m)), values, columns(cx, t, n, n)
    k = shorter(cx, m, n)
    left, right = (k, k) if some else (m, n)
    return columns(cx, t, m, left), values, _turned_vectors(cx, t, n, right)


def _qr_type(cx: TypeContext, x: Any, mode: Any = "reduced") -> Types:
    t, batch, m, n = matrix(cx, x)
    if mode not in ("reduced", "complete", "r"):
        raise OpError(f"qr received unrecognized mode '{mode}'")
    k = m if mode == "complete" else shorter(cx, m, n)
    q = new(cx, t, (0,)) if mode == "r" else columns(cx, t, m, k)
    return q, columns(cx, t, k, n)


def _geqrf_type(cx: TypeContext, x: Any) -> Types:
    t, batch, m, n = matrix(cx, x)
    return columns(cx, t, m, n), new(cx, t, (*batch, shorter(cx, m, n)))


def _lu_type(cx: TypeContext, x: Any, *, pivot: Any = True) -> Types:
    t, batch, m, n = matrix(cx, x)
    k = shorter(cx, m, n)
    p = new(cx, t, (*batch, m, m)) if pivot else new(cx, t, (0,))
    return p, new(cx, t, (*batch, m, k)), new(cx, t, (*batch, k, n))


def _lu_factor_type(cx: TypeContext, x: Any, *, pivot: Any = True) -> Types:
    t, batch, m, n = matrix(cx, x)
    return columns(cx, t, m, n), new(cx, t, (*batch, shorter(cx, m, n)), int32)


def _svdvals_type(cx: TypeContext, x: Any, *, driver: Any = None) -> TensorType:
    t, batch, m, n = matrix(cx, x)
    return new(cx, t, (*batch, shorter(cx, m, n)), _real(t))


def _lstsq_type(cx: TypeContext, x: Any, y: Any, rcond: Any = None, *, driver: Any = None) -> Types:
    """With the default driver ``gelsy`` there are no residuals; the others have some where rows
    outnumber columns and, which data decides, the rank is full."""
    t, batch, m, n = matrix(cx, x)
    right = tensor(y)
    if right.rank != t.rank or right.shape[:-2] != batch:
        raise NoRow("lstsq of vectors, or of batches that broadcast, has no row")
    cx.require(eq(right.shape[-2], m), "linalg.lstsq: input.size(-2) should match other.size(-2)")
    k = right.shape[-1]
    solution = columns(cx, t, n, k, maximum(m, n) if not cx.known(le(n, m)) else m)
    residuals = new(cx, t, (0,))
    if driver not in (None, "gelsy"):
        if not batch:
            residuals = new(cx, t, (cx.fresh_size(high=k),), _real(t))
        elif driver == "gels" and cx.decide(gt(m, n)):
            residuals = new(cx, t, (*batch, k), _real(t))
        elif driver != "gels" and cx.decide(gt(m, n)):
            raise NoRow("data decides whether there are residuals")
    rank = new(cx, t, (0,) if driver == "gels" else batch, int64)
    spectral = driver in ("gelsd", "gelss")
    values = new(cx, t, (*batch, shorter(cx, m, n)) if spectral else (0,), _real(t))
    return solution, residuals, rank, values


for _name, _signature, _torch, _type, _spellings in (
    ("linalg_svd", "A, full_matrices=True, *, driver=None", "linalg.svd", _linalg_svd_type, ()),
    ("svd", "input, some=True, compute_uv=True", "svd", _svd_type, ("torch.Tensor.svd",)),
    ("linalg_svdvals", "A, *, driver=None", "linalg.svdvals", _svdvals_type, ()),
    ("linalg_qr", "A, mode='reduced'", "linalg.qr", _qr_type, ()),
    ("geqrf", "input", "geqrf", _geqrf_type, ("torch.Tensor.geqrf",)),
    ("linalg_lu", "A, *, pivot=True", "linalg.lu", _lu_type, ()),
    ("linalg_lu_factor", "A, *, pivot=True", "linalg.lu_factor", _lu_factor_type, ()),
    ("linalg_lstsq", "A, B, rcond=None, *, driver=None", "linalg.lstsq", _lstsq_type, ()),
):
    op(
        _name, _signature, torch=f"torch.{_torch}", spellings=_spellings, type=_type,
        lower=Extern(f"torch.{_torch}"), raises=True,
    )  # fmt: skip

# --- few singular values, by random projections ---


def _lowrank(cx: TypeContext, x: Any, count: Dim) -> Types:
    t, batch, m, n = matrix(cx, x)
    parts = (new(cx, t, (*batch, m, count)), new(cx, t, (*batch, count), _real(t)))
    return *parts, _turned_vectors(cx, t, n, count)


def _svd_lowrank_type(cx: TypeContext, x: Any, q: Any = 6, niter: Any = 2, M: Any = None) -> Types:
    t = tensor(x)
    if M is not None:
        _broadcast_to(cx, tensor(M).shape, t.shape)
    return _lowrank(cx, x, shorter(cx, 6 if q is None else q, shorter(cx, *t.shape[-2:])))


def _pca_lowrank_type(
    cx: TypeContext, x: Any, q: Any = None, center: Any = True, niter: Any = 2
) -> Types:
    most = shorter(cx, *tensor(x).shape[-2:])
    if q is None:
        return _lowrank(cx, x, shorter(cx, 6, most))
    cx.require(all_of(ge(q, 0), le(q, most)), "q must not be greater than min(m, n)")
    return _lowrank(cx, x, q)


def _broadcast_to(cx: TypeContext, shape: Shape, wanted: Shape) -> None:
    if len(shape) > len(wanted):
        raise OpError(f"{shape} cannot be broadcast to {wanted}")
    for a, b in zip(reversed(shape), reversed(wanted), strict=False):
        cx.require(any_of(eq(a, b), eq(a, 1)), f"{shape} cannot be broadcast to {wanted}")


for _name, _signature, _type in (
    ("svd_lowrank", "A, q=6, niter=2, M=None", _svd_lowrank_type),
    ("pca_lowrank", "A, q=None, center=True, niter=2", _pca_lowrank_type),
):
    op(
        _name, _signature, torch=f"torch.{_name}", type=_type, random=True,
        lower=Extern(f"torch.{_name}"),
    )  # fmt: skip
