"""Writing at positions that tensors hold, or in slices: functional forms, each a new tensor.

Core rows: scatter, scatter_reduce, index_put and index_add. Reading is in ``index.py``, in-place
rows are in ``inplace.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from anyshape.ir.dtypes import DType, bool_, int64
from anyshape.ir.graph import Arg, Node, TensorType
from anyshape.ops import ranges
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.converted import does_not_fit
from anyshape.ops.gradients import indexing as gradients
from anyshape.ops.index import (
    dim_second,
    index_type,
    mask_over,
    mask_overload,
    normal_index,
    of_scalars,
    require_positions,
    require_within,
    unmasked,
)
from anyshape.ops.layout import dense_order, numel, preserved_strides
from anyshape.ops.rules import (
    contiguous_like,
    dim_of,
    is_tensor,
    like,
    new,
    require_sizes,
    tensor,
)
from anyshape.ops.table import Scatter, WriteMode, op
from anyshape.ops.view import Normal, element_of
from anyshape.symbolic import Dim, any_of, eq, ge, ne


def _normal_scatter(
    cx: TypeContext, x: Any, dim: Arg, index: Any, src: Any, *, reduce: Arg = None
) -> Normal:
    return (x, dim_of(dim, tensor(x).rank), index, src), {"reduce": reduce}


def _scatter_type(
    cx: TypeContext, x: Any, dim: int, index: Any, src: Any, *rest: Arg, **kwargs: Arg
) -> TensorType:
    t = tensor(x)
    if is_tensor(src) and tensor(src).dtype is not t.dtype:
        raise OpError("scatter(): Expected self.dtype to be equal to src.dtype")
    positions = tensor(index)
    require_positions(cx, positions, "scatter")
    require_within(cx, positions, t, dim, "scatter")
    if is_tensor(src):
        require_within(cx, positions, tensor(src), -1, "scatter")
    return new(cx, t, t.shape)


_MODES: Mapping[Arg, WriteMode] = {
    None: "set",
    "add": "sum",
    "multiply": "prod",
    "sum": "sum",
    "prod": "prod",
    "amax": "max",
    "amin": "min",
}
"""What the parameter ``reduce`` says; averages are not written in order."""


def _scatter_mode(node: Node) -> WriteMode | None:
    return _MODES.get(node.kwargs.get("reduce"))


def _scatter_reduce_mode(node: Node) -> WriteMode | None:
    return _MODES.get(node.args[4]) if node.kwargs.get("include_self", True) else None


def _index_put_mode(node: Node) -> WriteMode:
    accumulate = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    return "sum" if accumulate else "set"


op(
    "scatter",
    "input, dim, index, src, *, reduce=None",
    torch="anyshape.eager.scatter",
    vjp=gradients.SCATTER,
    spellings=("torch.scatter", "torch.Tensor.scatter"),
    overload=of_scalars("scatter", "input, dim, index, src, *, reduce=None", "src_out"),
    normalize=_normal_scatter,
    type=_scatter_type,
    lower=Scatter("elements", _scatter_mode),
    data_indices=ranges.indices_along,
    raises=True,
)
op(
    "scatter_add",
    "input, dim, index, src",
    scatters=True,
    torch="torch.scatter_add",
    vjp=gradients.SCATTER_ADD,
    spellings=("torch.Tensor.scatter_add",),
    overload=of_scalars("scatter_add", "input, dim, index, src"),
    normalize=dim_second,
    type=_scatter_type,
    expand=lambda b, x, dim, index, src: b.scatter_reduce(x, dim, index, src, "sum"),
)


def _lowest(dtype: DType) -> float | int:
    if dtype.is_floating:
        return -math.inf
    return -(1 << (8 * dtype.size_bytes - 1)) if dtype.signed else 0


def _highest(dtype: DType) -> float | int:
    if dtype.is_floating:
        return math.inf
    bits = 8 * dtype.size_bytes - dtype.signed
    return 1 if dtype is bool_ else (1 << bits) - 1


NEUTRAL: Mapping[str, Callable[[DType], float | int]] = MappingProxyType(
    {"sum": lambda dtype: 0, "mean": lambda dtype: 0, "prod": lambda dtype: 1,
     "amax": _lowest, "amin": _highest}
)  # fmt: skip
"""What changes nothing, by reduction."""


_REDUCED = "input, dim, index, src, reduce, *, include_self=True"
_of_scalars = of_scalars("scatter_reduce", _REDUCED, "two_out")


def _scatter_reduce_row(
    x: Any, dim: Any, index: Any, src: Any, reduce: Any, *, include_self: Any = True
) -> str | None:
    """Averages, and what leaves out the elements that are written to, are made of sums."""
    t = tensor(x)
    if t.dtype.is_complex or reduce not in NEUTRAL or (t.dtype is bool_ and reduce == "mean"):
        return None
    if include_self and reduce != "mean":
        return _of_scalars(x, dim, index, src)
    return "scatter_reduce_anew"


def _scatter_reduce_anew(
    b: Any, x: Any, dim: Any, index: Any, src: Any, reduce: str, *, include_self: bool
) -> Any:
    start = x if include_self else b.scatter(x, dim, index, NEUTRAL[reduce](x.dtype))
    if reduce != "mean":
        return b.scatter_reduce(start, dim, index, src, reduce)
    whole = b.scatter_reduce(start, dim, index, src, "sum")
    one = b.full((), 1, x.dtype, x.type.device)
    ones = b.expand(one, x.shape)
    ones = ones if include_self else b.scatter(ones, dim, index, 0)
    counts = b.scatter_reduce(ones, dim, index, b.expand(one, src.shape), "sum")
    return b.div(whole, counts, rounding_mode=None if x.dtype.is_floating else "floor")


op(
    "scatter_reduce_anew",
    _REDUCED,
    torch="torch.ops.aten.scatter_reduce.two",
    inline=True,
    expand=_scatter_reduce_anew,
)
op(
    "scatter_reduce",
    _REDUCED,
    torch="torch.scatter_reduce",
    overload=_scatter_reduce_row,
    spellings=("torch.Tensor.scatter_reduce",),
    normalize=dim_second,
    type=_scatter_type,
    lower=Scatter("elements", _scatter_reduce_mode),
    data_indices=ranges.indices_along,
    raises=True,
)


def _indexed_source_type(
    cx: TypeContext, x: Any, dim: int, index: Any, source: Any, **kwargs: Arg
) -> TensorType:
    """As the input; the source is as the input with as many positions in ``dim`` as the index."""
    t, positions, given = tensor(x), tensor(index), tensor(source)
    if given.dtype is not t.dtype:
        raise OpError("self and source are expected to have the same dtype")
    shape, source_shape = t.shape or (1,), given.shape or (1,)
    if positions.rank > 1 or len(shape) != len(source_shape):
        raise OpError("the index must be a vector, and the source of the rank of the input")
    length = positions.shape[0] if positions.shape else 1
    expected = (*shape[:dim], length, *shape[dim + 1 :])
    require_sizes(cx, source_shape, expected, "the source does not have the shape of the slice")
    return contiguous_like(0)(cx, x)


def _index_add_type(
    cx: TypeContext, x: Any, dim: int, index: Any, source: Any, **kwargs: Arg
) -> TensorType:
    if tensor(x).rank != tensor(source).rank:
        raise OpError("index_add(): the source must have the rank of the input")
    return _indexed_source_type(cx, x, dim, index, source)


op(
    "index_add",
    "input, dim, index, source, *, alpha=1",
    torch="torch.index_add",
    vjp=gradients.INDEX_ADD,
    spellings=("torch.Tensor.index_add",),
    overload=of_scalars("index_add", "input, dim, index, source, *, alpha=1"),
    normalize=dim_second,
    type=_index_add_type,
    lower=Scatter("rows", lambda node: "sum"),
    data_indices=ranges.indices_along,
    raises=True,
)


def _refuse_short_index(name: str, index: Any) -> None:
    if tensor(index).dtype is not int64:
        raise OpError(f"{name}(): Expected dtype int64 for index")


def _index_copy_type(cx: TypeContext, x: Any, dim: int, index: Any, source: Any) -> TensorType:
    _refuse_short_index("index_copy", index)
    return _indexed_source_type(cx, x, dim, index, source)


op(
    "index_copy",
    "input, dim, index, source",
    scatters=True,
    torch="torch.index_copy",
    vjp="expansion",
    spellings=("torch.Tensor.index_copy",),
    overload=of_scalars("index_copy", "input, dim, index, source"),
    normalize=dim_second,
    type=_index_copy_type,
    expand=lambda b, x, dim, index, source: b.index_put(x, (*(None,) * dim, index), source),
    refuses=lambda b, x, dim, index, source: b.lt(index, 0),
)


def _index_fill_expand(b: Any, x: Any, dim: int, index: Any, value: Any) -> Any:
    if not x.shape:
        return b.reshape(_index_fill_expand(b, b.unsqueeze(x, 0), 0, index, value), ())
    if not is_tensor(value):
        value = b.full((), value, x.dtype, x.type.device)
    return b.index_put(x, (*(None,) * dim, index), _in_dtype_of(b, x, value))


def _index_fill_type(cx: TypeContext, x: Any, dim: int, index: Any, value: Any) -> TensorType:
    _refuse_short_index("index_fill", index)
    return like(0)(cx, x)


op(
    "index_fill",
    "input, dim, index, value",
    torch="torch.index_fill",
    vjp=gradients.INDEX_FILL,
    spellings=("torch.Tensor.index_fill",),
    normalize=dim_second,
    type=_index_fill_type,
    expand=_index_fill_expand,
    refuses=lambda b, x, dim, index, v: does_not_fit(b, v, x.dtype) if is_tensor(v) else (),
)


def _index_put_type(
    cx: TypeContext, x: Any, indices: Any, values: Any, accumulate: Arg = False
) -> TensorType:
    """As the input; the values broadcast to what the indices show of it."""
    if is_tensor(values) and tensor(values).dtype is not tensor(x).dtype:
        raise OpError("Index put requires the source and destination dtypes match")
    position = index_type(cx, x, indices).shape
    given = tensor(values).shape if is_tensor(values) else ()
    text = "shape mismatch: value tensor cannot be broadcast to the indexing result"
    if len(given) > len(position):
        raise OpError(text)
    for size, wanted in zip(reversed(given), reversed(position)):
        if size is not wanted and size != 1:
            cx.require(any_of(eq(size, 1), eq(size, wanted)), text)
    return like(0)(cx, x)


op(
    "index_put",
    "input, indices, values, accumulate=False",
    torch="anyshape.eager.index_put",
    vjp=gradients.INDEX_PUT,
    type=_index_put_type,
    spellings=("torch.index_put", "torch.Tensor.index_put"),
    lower=Scatter("indices", _index_put_mode),
    data_indices=ranges.indices_by_dimension,
    overload=mask_overload("masked_index_put"),
    normalize=lambda cx, x, indices, values, accumulate=False: (
        (x, normal_index(cx, x, indices)[0][1], values, accumulate),
        {},
    ),
    raises=True,
    reads_number=True,
)


def filled_mask(b: Any, x: Any, indices: Any, values: Any, accumulate: Any) -> Any:
    """The mask over ``x`` where all it selects gets one number, as ATen fills then; else None.

    ATen converts that number to the dtype of ``x``; of several it wants them to have it.
    """
    count = numel(tensor(values).shape) if is_tensor(values) else 1
    if accumulate or count == 0:
        return None
    mask = mask_over(b, x, indices)
    if mask is not None and tensor(mask).dtype is not bool_:
        b.cx.require(ne(count, 1), "masked_fill_ only supports boolean masks")
    if mask is None or count != 1:
        return None
    device = x.type.device
    return mask if tensor(mask).device == device else b.to_device(mask, device)


def one_number(b: Any, values: Any) -> Any:
    """One number without dimensions."""
    return b.reshape(values, ()) if is_tensor(values) and values.shape else values


def _masked_index_put_expand(
    b: Any, x: Any, indices: Any, values: Any, accumulate: Any = False
) -> Any:
    mask = filled_mask(b, x, indices, values, accumulate)
    recorded = any(t.tensor.requires_grad for t in (x, values) if is_tensor(t))
    if mask is None:
        positions = unmasked(b, x, indices)
        if recorded:
            return b.put_at_masks(x, positions, values, accumulate, indices)
        return b.index_put(x, positions, values, accumulate)
    number = one_number(b, values)
    if recorded:
        return b.put_at_mask(x, mask, number)
    made = b.masked_fill(x, mask, number)
    laid_out = _laid_as(b, x, made)
    return made if laid_out is made else b.detach(laid_out)  # a view of nothing, as eager's


def _filled_as_it_lies(b: Any, x: Any, mask: Any, number: Any) -> Any:
    return _laid_as(b, x, b.masked_fill(x, mask, number))


def _laid_as(b: Any, x: Any, made: Any) -> Any:
    """What is row-major, turned to lie as ``x`` does."""
    strides = preserved_strides(b.cx, tensor(x))
    order = dense_order(tensor(x).shape, strides)  # whose sizes those of the mask may be
    if made.type.strides == strides or order is None:
        return made
    outermost = order[::-1]
    dense = b.clone(b.permute(made, outermost), memory_format="contiguous_format")
    return b.permute(dense, tuple(map(outermost.index, range(len(outermost)))))


op(
    "put_at_mask",
    "input, mask, number",
    torch="anyshape.eager.put_at_mask",
    type=like(0),
    expand=_filled_as_it_lies,
    vjp="expansion",
)
"""``masked_fill`` whose result and gradients lie as those of ``index_put``."""

op(
    "put_at_masks",
    "input, positions, values, accumulate, masks",
    torch="anyshape.eager_masks.put_at_masks",
    scatters=True,
    type=lambda cx, x, positions, values, accumulate, masks: _index_put_type(
        cx, x, positions, values, accumulate
    ),
    expand=lambda b, x, positions, values, accumulate, masks: b.index_put(
        x, positions, values, accumulate
    ),
    raises=True,
    vjp="expansion",
)
"""``index_put`` at positions that masks have given: eager keeps the masks for the gradient."""

op(
    "masked_index_put",
    "input, indices, values, accumulate=False",
    scatters=True,
    inline=True,
    torch="anyshape.eager.masked_index_put",
    expand=_masked_index_put_expand,
)


def _select_scatter(b: Any, x: Any, src: Any, dim: int, index: Any) -> Any:
    position = b.arange(x.shape[dim], 0, 1, int64, x.type.device)
    here = b.reshape(b.eq(position, index), (-1, *(1,) * (len(x.shape) - dim - 1)))
    return b.where(here, b.unsqueeze(_in_dtype_of(b, x, src), dim), x)


def _in_dtype_of(b: Any, x: Any, src: Any) -> Any:
    """What is copied into ``x`` takes its dtype."""
    return src if src.dtype is x.dtype else b.to_dtype(src, x.dtype)


def _select_scatter_type(cx: TypeContext, x: Any, src: Any, dim: int, index: Any) -> TensorType:
    t = tensor(x)
    rest = (*t.shape[:dim], *t.shape[dim + 1 :])
    require_sizes(cx, tensor(src).shape, rest, "expected src to have the size of the slice of self")
    return like(0)(cx, x)


def _slice_written_type(
    cx: TypeContext, x: Any, src: Any, dim: int, start: Dim, length: Dim, step: int = 1
) -> TensorType:
    t = tensor(x)
    part = (*t.shape[:dim], length, *t.shape[dim + 1 :])
    require_sizes(cx, tensor(src).shape, part, "expected src to have the size of the slice of self")
    return like(0)(cx, x)


def _slice_written(
    b: Any, x: Any, src: Any, dim: int, start: Any, length: Any, step: Any = 1
) -> Any:
    """``x`` with ``src`` written to a slice: the functional form of ``x[a:b:s] = src``."""
    size, rank, src = x.shape[dim], len(x.shape), _in_dtype_of(b, x, src)
    if (exists := ge(size, 0)) is not True:  # as every size of a tensor that exists
        b.cx.facts.assume(exists, b.cx.location)
    if start == 0 and step == 1 and b.cx.same(length, size):
        return b.expand(src, x.shape)
    offset = b.sub(b.arange(size, 0, 1, int64, x.type.device), start)
    inside = b.logical_and(b.ge(offset, 0), b.lt(offset, length * step))
    if step == 1:
        spread = b.pad(src, _pads(rank, dim, start, size - start - length), 0)
    else:
        inside = b.logical_and(inside, b.eq(b.remainder(offset, step), 0))
        positions = b.clamp(b.floor_divide(offset, step), 0, length)
        spread = b.index_select(b.pad(src, _pads(rank, dim, 0, 1), 0), dim, positions)
    return b.where(b.reshape(inside, (size, *(1,) * (rank - dim - 1))), spread, x)


def _pads(rank: int, dim: int, low: Dim, high: Dim) -> tuple[tuple[Dim, Dim], ...]:
    """What ``pad`` takes to pad one dimension."""
    return tuple((low, high) if d == dim else (0, 0) for d in range(rank))


def _normal_select_scatter(cx: TypeContext, x: Any, src: Any, dim: Any, index: Any) -> Normal:
    d = dim_of(dim, tensor(x).rank)
    return (x, src, d, element_of(cx, index, tensor(x).shape[d])), {}


op(
    "select_written",
    "input, src, dim, index",
    torch="anyshape.eager.select_written",
    vjp="expansion",
    type=_select_scatter_type,
    normalize=_normal_select_scatter,
    expand=_select_scatter,
)
op(
    "slice_written",
    "input, src, dim, start, length, step=1",
    torch="anyshape.eager.slice_written",
    vjp="expansion",
    type=_slice_written_type,
    expand=_slice_written,
    normalize=lambda cx, x, src, dim, *rest: ((x, src, dim_of(dim, tensor(x).rank), *rest), {}),
)


def _masked_scatter_type(cx: TypeContext, x: Any, mask: Any, source: Any) -> TensorType:
    return new(cx, tensor(x), cx.broadcast_shapes((tensor(x).shape, tensor(mask).shape)))


op(
    "masked_scatter",
    "input, mask, source",
    scatters=True,
    torch="torch.masked_scatter",
    spellings=("torch.Tensor.masked_scatter",),
    type=_masked_scatter_type,
    raises=True,
)
