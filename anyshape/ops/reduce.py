"""Reductions and scans: core rows ``(x, dims, keepdim)`` and what is made of them.

Sums and means of small floats are taken in float32. Results are row-major, as ATen's are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ir.dtypes import DType, bool_, float32, int64, uint8
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import ranges
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.gradients import reductions
from anyshape.ops.layout import Shape, contiguous_strides, numel
from anyshape.ops.rules import (
    RowMajorRule,
    dim_of,
    dims_of,
    is_empty,
    is_tensor,
    new,
    summed,
    tensor,
)
from anyshape.ops.table import Combine, Reduce, Scan, op
from anyshape.ops.view import Normal
from anyshape.symbolic import Dim, ne

SMALL_FLOATS = ("float16", "bfloat16")


def reduced_shape(shape: Shape, dims: tuple[int, ...], keepdim: bool) -> Shape:
    """The shape after reducing ``dims``: dropped, or 1 where they are kept."""
    if keepdim:
        return tuple([1 if d in dims else size for d, size in enumerate(shape)])
    return tuple([size for d, size in enumerate(shape) if d not in dims])


def reduced(
    cx: TypeContext, t: TensorType, dims: tuple[int, ...], keepdim: bool, dtype: DType
) -> TensorType:
    """The row-major result of a reduction."""
    shape = reduced_shape(t.shape, dims, keepdim)
    return TensorType(dtype, t.device, shape, contiguous_strides(cx, shape))


def _normal(
    cx: TypeContext, x: Any, dim: Arg = None, keepdim: Arg = False, **kwargs: Arg
) -> Normal:
    return (x, dims_of(dim, tensor(x).rank), bool(keepdim)), kwargs


def _not_empty(cx: TypeContext, t: TensorType, dims: tuple[int, ...], name: str) -> None:
    for d in dims:
        size = t.shape[d] if t.shape else 1
        if size.__class__ is not int or size == 0:
            cx.require(ne(size, 0), f"{name}(): Expected reduction dim {d} to have non-zero size.")


def wide(dtype: DType) -> DType:
    """The dtype in which ATen accumulates: float32 for smaller floats."""
    return float32 if dtype.name in SMALL_FLOATS else dtype


def _sum_type(
    cx: TypeContext, x: Any, dims: Any, keepdim: bool, *, dtype: Any = None
) -> TensorType:
    t = tensor(x)
    return reduced(cx, t, dims, keepdim, summed(t, dtype))


def _reduce_row(
    name: str,
    combine: Combine,
    rule: Any,
    signature: str,
    normalize: Any = _normal,
    aliases: tuple[str, ...] = (),
    **columns: Any,
) -> None:
    direct = name in ("sum", "amax", "amin")  # torch's own takes the normal form
    op(
        name,
        signature,
        torch=f"torch.{name}" if direct else f"anyshape.eager.{name}_",
        spellings=(f"torch.{name}", f"torch.Tensor.{name}", *aliases),
        type=RowMajorRule(rule),
        lower=Reduce(combine),
        normalize=normalize,
        **columns,
    )


_SUMMED = "input, dim=None, keepdim=False, *, dtype=None"
_reduce_row("sum", "sum", _sum_type, _SUMMED, vjp=reductions.SUM)
_reduce_row(
    "prod",
    "prod",
    _sum_type,
    _SUMMED,
    overload=lambda x, dim=None, *rest, **named: "prod_of_all" if dim is None else None,
)
# Eager's gradient of it is 0 where several elements are; along a dimension, products of the others.
op(
    "prod_of_all",
    _SUMMED,
    torch="anyshape.eager.prod_of_all",
    normalize=lambda cx, x, dim=None, keepdim=False, *, dtype=None: ((x,), {"dtype": dtype}),
    expand=lambda b, x, *, dtype=None: b.prod(x, tuple(range(len(x.shape))), False, dtype=dtype),
    aten="prod",
)


def _extreme_type(name: str) -> Callable[..., TensorType]:
    def rule(cx: TypeContext, x: Any, dims: tuple[int, ...], keepdim: bool) -> TensorType:
        t = tensor(x)
        _not_empty(cx, t, dims, name)
        return reduced(cx, t, dims, keepdim, t.dtype)

    return rule


_AMAX = "input, dim=(), keepdim=False"
_reduce_row("amax", "max", _extreme_type("amax"), _AMAX, vjp=reductions.EXTREME)
_reduce_row("amin", "min", _extreme_type("amin"), _AMAX, vjp=reductions.EXTREME)


def _truth_type(cx: TypeContext, x: Any, dims: tuple[int, ...], keepdim: bool) -> TensorType:
    t = tensor(x)
    return reduced(cx, t, dims, keepdim, uint8 if t.dtype is uint8 else bool_)


def _normal_truth(cx: TypeContext, x: Any, dim: Arg = None, keepdim: Arg = False) -> Normal:
    return (x, dims_of(dim, tensor(x).rank, empty_is_all=dim is None), bool(keepdim)), {}


_reduce_row("any", "any", _truth_type, "input, dim=None, keepdim=False", _normal_truth)
_reduce_row("all", "all", _truth_type, "input, dim=None, keepdim=False", _normal_truth)


def _flag_type(cx: TypeContext, x: Any) -> TensorType:
    t = tensor(x)
    if t.dtype is not bool_:
        raise OpError("expected a tensor of bools")
    return reduced(cx, t, tuple(range(t.rank)), False, bool_)


# What the checks of torch's distributions ask.
op(
    "is_all_true",
    "input",
    torch="torch._is_all_true",
    type=_flag_type,
    expand=lambda b, x: b.all(x),
)
op(
    "is_any_true",
    "input",
    torch="torch._is_any_true",
    type=_flag_type,
    expand=lambda b, x: b.any(x),
)


def _arg_type(name: str) -> Callable[..., TensorType]:
    def rule(cx: TypeContext, x: Any, dims: tuple[int, ...], keepdim: bool) -> TensorType:
        t = tensor(x)
        if t.dtype is bool_:
            raise OpError(f"{name}(): does not support bool input")
        _not_empty(cx, t, dims, name)
        return reduced(cx, t, dims, keepdim, int64)

    return rule


_reduce_row(
    "argmax",
    "argmax",
    _arg_type("argmax"),
    "input, dim=None, keepdim=False",
    range=ranges.of_arg_reduction,
)
_reduce_row(
    "argmin",
    "argmin",
    _arg_type("argmin"),
    "input, dim=None, keepdim=False",
    range=ranges.of_arg_reduction,
)

# --- torch.max and torch.min: one tensor, two tensors, or values with positions ---


def _pair_names(name: str) -> tuple[str, str, str]:
    return ("amax", "argmax", "maximum") if name == "max" else ("amin", "argmin", "minimum")


def _extremum_expand(name: str) -> Callable[..., Any]:
    value, position, elementwise = _pair_names(name)

    def expand(b: Any, x: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        if other is not None or is_tensor(dim):
            return b.call(elementwise, x, dim if other is None else other)
        if dim is None:
            return b.call(value, x, (), False)
        dims = (dim_of(dim, len(x.shape)),) if x.shape else ()
        ordered = b.to_dtype(x, uint8) if x.dtype is bool_ else x
        return b.call(value, x, dims or (), keepdim), b.call(
            position, ordered, dims or None, keepdim
        )

    return expand


for _name in ("max", "min"):
    op(
        _name,
        "input, dim=None, keepdim=False, *, other=None",
        torch=f"anyshape.eager.{_name}_",
        spellings=(f"torch.{_name}", f"torch.Tensor.{_name}"),
        expand=_extremum_expand(_name),
        vjp=reductions.EXTREMUM[_name],
    )

op(
    "aminmax",
    "input, *, dim=None, keepdim=False",
    torch="torch.aminmax",
    spellings=("torch.Tensor.aminmax",),
    expand=lambda b, x, *, dim=None, keepdim=False: (
        b.amin(x, () if dim is None else dim, keepdim),
        b.amax(x, () if dim is None else dim, keepdim),
    ),
    vjp="expansion",
)

# --- averages ---


def count_of(shape: Shape, dims: tuple[int, ...]) -> Dim:
    """How many elements one result of a reduction is made of."""
    return numel([shape[d] for d in dims])


def of_one(b: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Whether one result of a reduction is made of one element, as a tensor of no dimensions."""
    return b.eq(b.full((), count_of(x.shape, dims), int64, x.type.device), 1)


def _float_type(
    cx: TypeContext, x: Any, dims: Any, keepdim: bool, *, dtype: Any = None
) -> TensorType:
    t = tensor(x)
    chosen = dtype or t.dtype
    if not (chosen.is_floating or chosen.is_complex):
        raise OpError(f"could not infer output dtype: expected a floating dtype, got {chosen}")
    return reduced(cx, t, dims, keepdim, chosen)


def _norm_type(
    cx: TypeContext, x: Any, p: Any, dims: Any, keepdim: bool, dtype: Any = None
) -> TensorType:
    if isinstance(p, (int, float)) and (p < 0 or p == float("inf")):
        _not_empty(cx, tensor(x), dims, "norm")
    return _float_type(cx, x, dims, keepdim, dtype=dtype)


def _mean_expand(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool, *, dtype: Any = None) -> Any:
    chosen = dtype or x.dtype
    summed_up = b.sum(cast(b, x, wide(chosen)), dims or (), keepdim)
    return cast(b, b.div(summed_up, count_of(x.shape, dims)), chosen)


def cast(b: Any, x: Any, dtype: DType) -> Any:
    """``x`` in another dtype; itself where it has it already."""
    return x if x.dtype is dtype else b.to_dtype(x, dtype)


op(
    "mean",
    "input, dim=None, keepdim=False, *, dtype=None",
    torch="torch.mean",
    vjp=reductions.MEAN,
    spellings=("torch.Tensor.mean",),
    type=RowMajorRule(_float_type),
    normalize=_normal,
    expand=_mean_expand,
)

# --- exponentials ---


def _logsumexp_expand(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    wider = cast(b, x, wide(x.dtype) if x.dtype.is_floating else b.cx.default_dtype)
    if not dims:
        return cast(b, b.clone(wider), x.dtype if x.dtype.is_floating else wider.dtype)
    high = b.call("amax_or_empty", wider, dims, True)
    high = b.where(b.eq(b.abs(high), float("inf")), b.full((), 0, wider.dtype, x.type.device), high)
    total = b.log(b.sum(b.exp(b.sub(wider, high)), dims, keepdim))
    peak = high if keepdim else b.reshape(high, reduced_shape(x.shape, dims, False))
    return cast(b, b.add(total, peak), x.dtype if x.dtype.is_floating else wider.dtype)


def _normal_logsumexp(cx: TypeContext, x: Any, dim: Arg, keepdim: Arg = False) -> Normal:
    """Along no dimension, eager takes the maximum of all and finds that it has another shape."""
    if dim == () and tensor(x).shape and not is_empty(cx, tensor(x)):
        raise OpError("output with shape [] doesn't match the broadcast shape")
    return _normal(cx, x, dim, keepdim)


op(
    "logsumexp",
    "input, dim, keepdim=False",
    torch="torch.logsumexp",
    vjp=reductions.LOGSUMEXP,
    spellings=("torch.Tensor.logsumexp", "torch.special.logsumexp"),
    normalize=_normal_logsumexp,
    type=lambda cx, x, dims, keepdim: reduced(
        cx,
        tensor(x),
        dims,
        keepdim,
        tensor(x).dtype if tensor(x).dtype.is_floating else cx.default_dtype,
    ),
    expand=_logsumexp_expand,
)

# A maximum that is -inf over nothing: what ``softmax`` and ``logsumexp`` subtract.
op(
    "amax_or_empty",
    "input, dim, keepdim=False",
    torch="anyshape.eager.amax_or_empty",
    normalize=_normal,
    type=lambda cx, x, dims, keepdim: reduced(cx, tensor(x), dims, keepdim, tensor(x).dtype),
    lower=Reduce("max"),
)

# --- counts, norms ---


def _count_nonzero_expand(b: Any, x: Any, dims: tuple[int, ...]) -> Any:
    return b.sum(b.ne(x, 0), dims or (), False)


op(
    "count_nonzero",
    "input, dim=None",
    torch="torch.count_nonzero",
    spellings=("torch.Tensor.count_nonzero",),
    normalize=lambda cx, x, dim=None: ((x, dims_of(dim, tensor(x).rank)), {}),
    type=lambda cx, x, dims: reduced(cx, tensor(x), dims, False, int64),
    expand=_count_nonzero_expand,
)


def norm_expand(
    b: Any, x: Any, p: Any, dims: tuple[int, ...], keepdim: bool, dtype: Any = None
) -> Any:
    """The p-norm over ``dims``, computed wide. That of one element is its size, whose power would
    be too large or too small."""
    chosen = dtype or x.dtype
    size = b.abs(cast(b, x, wide(chosen)))
    if p in (float("inf"), float("-inf")):
        return cast(b, b.call("amax" if p > 0 else "amin", size, dims or (), keepdim), chosen)
    if p == 0:
        return cast(b, b.sum(b.to_dtype(b.ne(size, 0), size.dtype), dims or (), keepdim), chosen)
    if p == 1:
        return cast(b, b.sum(size, dims or (), keepdim), chosen)
    if count_of(x.shape, dims) == 1:
        return cast(b, b.sum(size, dims or (), keepdim), chosen)
    one = of_one(b, x, dims)
    power = b.mul(size, size) if p == 2 else b.pow(size, p)
    total = b.sum(b.where(one, size, power), dims or (), keepdim)
    root = b.sqrt(total) if p == 2 else b.pow(total, 1.0 / p)
    return cast(b, b.where(one, total, root), chosen)


def _normal_vector_norm(
    cx: TypeContext,
    x: Any,
    ord: Any = 2,
    dim: Arg = None,
    keepdim: Arg = False,
    *,
    dtype: Any = None,
) -> Normal:
    return (x, 2 if ord is None else ord, dims_of(dim, tensor(x).rank), bool(keepdim)), {
        "dtype": dtype
    }


op(
    "vector_norm",
    "input, ord=2, dim=None, keepdim=False, *, dtype=None",
    torch="torch.linalg.vector_norm",
    vjp=reductions.VECTOR_NORM,
    normalize=_normal_vector_norm,
    type=RowMajorRule(_norm_type),
    expand=lambda b, x, p, dims, keepdim, *, dtype=None: norm_expand(b, x, p, dims, keepdim, dtype),
    by_value=("ord",),
)


def _normal_norm(
    cx: TypeContext,
    x: Any,
    p: Any = "fro",
    dim: Arg = None,
    keepdim: Arg = False,
    dtype: Any = None,
) -> Normal:
    if p not in ("fro", None) and not isinstance(p, (int, float)):
        raise NoRow(f"norm of order {p!r} has no row")
    return (
        x,
        2 if p in ("fro", None) else p,
        dims_of(dim, tensor(x).rank),
        bool(keepdim),
        dtype,
    ), {}


op(
    "norm",
    "input, p='fro', dim=None, keepdim=False, dtype=None",
    torch="torch.norm",
    vjp=reductions.NORM,
    spellings=("torch.Tensor.norm", "torch.functional.norm"),
    normalize=_normal_norm,
    type=RowMajorRule(_norm_type),
    expand=norm_expand,
    by_value=("p",),
)

# --- scans ---


def _scan_dim(cx: TypeContext, x: Any, dim: Arg, **kwargs: Arg) -> Normal:
    return (x, dim_of(dim, tensor(x).rank)), kwargs


def _scan_type(cx: TypeContext, x: Any, dim: int, *, dtype: Any = None) -> TensorType:
    t = tensor(x)
    return new(cx, t, t.shape, summed(t, dtype))


def _scan_of_scalar(b: Any, x: Any, dim: Any, *, dtype: Any = None) -> Any:
    return b.to_dtype(x, summed(x.type, dtype))


op(
    "cumsum_of_scalar",
    "input, dim, *, dtype=None",
    torch="anyshape.eager.cumsum_of_scalar",
    inline=True,
    expand=_scan_of_scalar,
)
op(  # whose formula reads its result in eager
    "cumprod_of_scalar",
    "input, dim, *, dtype=None",
    torch="anyshape.eager.cumprod_of_scalar",
    type=_scan_type,
    normalize=_scan_dim,
    expand=_scan_of_scalar,
)
for _name, _scan in (("cumsum", Scan("sum")), ("cumprod", Scan("prod"))):
    op(
        _name,
        "input, dim, *, dtype=None",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        overload=lambda x, *_, own=f"{_name}_of_scalar", **kw: None if tensor(x).shape else own,
        type=_scan_type,
        normalize=_scan_dim,
        lower=_scan,
        vjp=reductions.CUMSUM if _name == "cumsum" else None,
    )
for _name in ("cummax", "cummin"):
    op(
        _name,
        "input, dim",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        normalize=_scan_dim,
        type=lambda cx, x, dim: (
            new(cx, tensor(x), tensor(x).shape),
            new(cx, tensor(x), tensor(x).shape, int64),
        ),
    )
op(
    "logcumsumexp",
    "input, dim",
    torch="torch.logcumsumexp",
    spellings=("torch.Tensor.logcumsumexp",),
    normalize=_scan_dim,
    type=lambda cx, x, dim: new(cx, tensor(x), tensor(x).shape),
)
