"""Variances and standard deviations, alone and with their means.

In float64 until they are rounded once, as in ATen, in two passes over what is averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ir.dtypes import REAL_OF_COMPLEX, DType, float32, float64, int64
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.gradients import reductions
from anyshape.ops.reduce import cast, count_of, of_one, reduced, reduced_shape
from anyshape.ops.rules import RowMajorRule, dims_of, of_numbers, tensor
from anyshape.ops.table import op
from anyshape.ops.view import Normal
from anyshape.symbolic import Dim, maximum


def _normal_var(
    cx: TypeContext,
    x: Any,
    dim: Arg = None,
    unbiased: Arg = None,
    keepdim: Arg = False,
    *,
    correction: Any = None,
) -> Normal:
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(bool(unbiased))
    return (x, dims_of(dim, tensor(x).rank), None, bool(keepdim)), {"correction": correction}


def _var_type(
    cx: TypeContext, x: Any, dims: Any, unbiased: None, keepdim: bool, *, correction: Any
) -> TensorType:
    t = tensor(x)
    if not (t.dtype.is_floating or t.dtype.is_complex):
        raise OpError("std and var only support floating point and complex dtypes")
    return reduced(cx, t, dims, keepdim, REAL_OF_COMPLEX.get(t.dtype, t.dtype))


def variance(
    b: Any,
    x: Any,
    dims: tuple[int, ...],
    keepdim: bool,
    correction: Any,
    mean: DType | None = None,
) -> tuple[Any, Any]:
    """(variance, mean) in the dtype of ``x``, in two passes; the mean is rounded to ``mean``."""
    count = count_of(x.shape, dims)
    center = b.div(b.sum(x, dims or (), True), count)
    if mean is not None:
        center = cast(b, cast(b, center, mean), x.dtype)
    gap = b.sub(x, center)
    spread = b.sum(b.mul(gap, gap), dims or (), keepdim)
    degrees = degrees_of_freedom(count, correction)
    center = center if keepdim else b.reshape(center, reduced_shape(x.shape, dims, False))
    return b.div(spread, degrees), center


def degrees_of_freedom(count: Dim, correction: Any) -> Any:
    """``max(count - correction, 0)``, the number that variance divides by."""
    if correction == 0:
        return count
    if isinstance(count, int):
        return max(count - correction, 0)
    if isinstance(correction, float) and correction != int(correction):
        return of_numbers("max", of_numbers("sub", count, correction), 0.0)
    return maximum(count - int(correction), 0)


def _exact_variance(
    b: Any, x: Any, dims: tuple[int, ...], keepdim: bool, correction: Any
) -> tuple[Any, Any]:
    """As in ATen, float64 until it is rounded once; the mean of all of a tensor is float32."""
    whole = x.dtype is float32 and len(dims) == len(x.shape)
    wider = cast(b, x, float64)
    return variance(b, wider, dims, keepdim, correction, float32 if whole else None)


def _var_expand(
    b: Any, x: Any, dims: Any, unbiased: None, keepdim: bool, *, correction: Any
) -> Any:
    spread, _ = _exact_variance(b, x, dims, keepdim, correction)
    return cast(b, spread, x.dtype)


def _std_expand(
    b: Any, x: Any, dims: Any, unbiased: None, keepdim: bool, *, correction: Any
) -> Any:
    spread, _ = _exact_variance(b, x, dims, keepdim, correction)
    return cast(b, b.sqrt(spread), x.dtype)


def _with_mean(root: bool) -> Callable[..., Any]:
    """Both are taken in one pass by ATen, in float64 throughout; there an infinity that is averaged
    with what follows it makes the mean NaN, as the variance: all but the last element."""

    def expand(b: Any, x: Any, dims: Any, unbiased: None, keepdim: bool, *, correction: Any) -> Any:
        wider = cast(b, x, float64)
        spread, center = variance(b, wider, dims, keepdim, correction)
        several = b.logical_not(of_one(b, x, dims))
        only_last = _only_the_last_is_infinite(b, wider, dims, keepdim)
        lost = b.logical_and(b.isnan(spread), b.logical_and(several, b.logical_not(only_last)))
        center = b.where(lost, spread, center)
        spread = b.sqrt(spread) if root else spread
        return cast(b, spread, x.dtype), cast(b, center, x.dtype)

    return expand


def _only_the_last_is_infinite(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    last = x
    for d in dims or range(len(x.shape)):
        before = maximum(x.shape[d] - 1, 0)
        last = b.slice(last, d, before, x.shape[d] - before)
    infinite = b.isinf(b.sum(last, dims or (), keepdim))
    odd = b.sum(cast(b, b.logical_not(b.isfinite(x)), int64), dims or (), keepdim)
    return b.logical_and(infinite, b.eq(odd, 1))


_VAR = "input, dim=None, unbiased=None, keepdim=False, *, correction=None"
for _name, _expand in (("var", _var_expand), ("std", _std_expand)):
    op(
        _name,
        _VAR,
        torch=f"anyshape.eager.{_name}_",
        spellings=(f"torch.{_name}", f"torch.Tensor.{_name}"),
        type=RowMajorRule(_var_type),
        normalize=_normal_var,
        by_value=("correction",),
        expand=_expand,
        vjp=reductions.SPREADS[_name],
    )
    op(
        f"{_name}_mean",
        _VAR,
        torch=f"anyshape.eager.{_name}_mean_",
        vjp=reductions.SPREADS[f"{_name}_mean"],
        spellings=(f"torch.{_name}_mean",),
        type=lambda cx, *a, **k: (_var_type(cx, *a, **k),) * 2,
        normalize=_normal_var,
        by_value=("correction",),
        expand=_with_mean(_name == "std"),
    )
