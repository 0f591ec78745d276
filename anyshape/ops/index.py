"""Reading at positions that tensors hold; ``scatter.py`` has the rows that write.

Core rows: index_select, gather and ``index(x, indices)`` with one tensor or ``None`` for each
dimension. Python's ``x[...]`` is taken apart by ``capture/tensors/indexing.py``. Negative
positions count from the end where torch's do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.ir.dtypes import bool_, int32, int64, uint8
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import ranges
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.gradients import indexing
from anyshape.ops.layout import Shape, numel, pointwise_strides, view_strides
from anyshape.ops.rules import (
    RowMajorRule,
    dim_of,
    is_tensor,
    new,
    require_one_device,
    size_of,
    tensor,
)
from anyshape.ops.table import Form, Structural, op
from anyshape.ops.view import Normal
from anyshape.symbolic import Dim, all_of, eq, ge, le, lt, maximum


def dim_second(cx: TypeContext, x: Any, dim: Arg, *rest: Arg, **kwargs: Arg) -> Normal:
    """Normal form where the second argument is a dimension: counted from 0."""
    return (x, dim_of(dim, tensor(x).rank), *rest), kwargs


def of_scalars(name: str, signature: str, torch_overload: str = "out") -> Callable[..., str | None]:
    """A row's overload where a tensor without dimensions is among its own: it counts as a vector of
    one element. The row of that overload is made, too."""
    other = f"{name}_of_scalars"

    def expand(b: Any, x: Any, dim: Arg, *rest: Arg, **options: Arg) -> Any:
        if name == "index_add" and tensor(x).rank != tensor(rest[1]).rank:
            raise OpError("index_add(): the source must have the rank of the input")
        if name.startswith("scatter") and _is_vector_at_a_scalar(*rest[:2]):
            raise NoRow("eager refuses the gradient of a vector that a scalar index scatters")
        vectors = [_vector(b, value) for value in (x, *rest)]
        made = b.call(name, vectors[0], dim, *vectors[1:], **options)
        shape = tensor(rest[0]).shape if name == "gather" else tensor(x).shape
        if name == "index_select" and not shape:
            b.cx.require(eq(made.shape[0], 1), "index_select(): Index to scalar can have 1 value")
        keeps = name == "index_select" and shape
        if keeps or made.shape == shape:
            return made
        return b.call("clone", b.reshape(made, shape))  # eager's is no view

    op(
        other,
        signature,
        torch=f"torch.ops.aten.{name}.{torch_overload}",
        inline=True,
        expand=expand,
    )

    def overload(x: Any, dim: Arg, *rest: Arg, **options: Arg) -> str | None:
        found = (x, *rest)
        return (
            other if any(is_tensor(value) and not tensor(value).rank for value in found) else None
        )

    return overload


def _is_vector_at_a_scalar(index: Any, source: Any) -> bool:
    """Eager's gradient has the shape of the index there, which is none of the source's."""
    wanted = is_tensor(source) and tensor(source).requires_grad
    return wanted and tensor(source).rank > tensor(index).rank


def _vector(b: Any, value: Arg) -> Any:
    """A tensor without dimensions as a vector; anything else as it is."""
    return b.reshape(value, (1,)) if is_tensor(value) and not tensor(value).rank else value


def _index_select_type(cx: TypeContext, x: Any, dim: int, index: Any) -> TensorType:
    t, positions = tensor(x), tensor(index)
    if positions.rank > 1:
        raise OpError("index_select(): Index is supposed to be a vector")
    if positions.dtype not in (int32, int64):
        raise OpError("index_select(): Expected dtype int32 or int64 for index")
    return new(cx, t, (*t.shape[:dim], positions.shape[0], *t.shape[dim + 1 :]))


op(
    "index_select",
    "input, dim, index",
    torch="torch.index_select",
    vjp=indexing.INDEX_SELECT,
    costly=True,
    type=_index_select_type,
    spellings=("torch.Tensor.index_select",),
    overload=of_scalars("index_select", "input, dim, index"),
    normalize=dim_second,
    lower=Structural(Form.INDEX_SELECT),
    data_indices=ranges.indices_along,
    raises=True,
)


def _normal_gather(
    cx: TypeContext, x: Any, dim: Arg, index: Any, *, sparse_grad: Arg = False
) -> Normal:
    # It changes the gradient, and no result.
    options: dict[str, Arg] = {"sparse_grad": True} if sparse_grad else {}
    return (x, dim_of(dim, tensor(x).rank), index), options


_OTHER_RANK = "Index tensor must have the same number of dimensions as input tensor"


def _ranks_match(index: TensorType, t: TensorType) -> bool:
    """Is there an index for each dimension? A scalar counts as one element in a row."""
    return max(index.rank, 1) == max(t.rank, 1)


def require_within(cx: TypeContext, index: TensorType, t: TensorType, dim: int, name: str) -> None:
    """The index is nowhere longer than the tensor, but along ``dim``."""
    if not _ranks_match(index, t):
        raise OpError(f"{_OTHER_RANK} in {name}")
    for d, (a, b) in enumerate(zip(index.shape or (1,), t.shape or (1,))):
        if d != dim and a is not b and a != b:
            cx.require(le(a, b), f"Size does not match at dimension {d} in {name}")


def require_positions(cx: TypeContext, positions: TensorType, name: str) -> None:
    """Positions are int32 or int64; those that are none may be anything."""
    if positions.dtype not in (int32, int64):
        cx.require(eq(numel(positions.shape), 0), f"{name}(): Expected dtype int32/int64 for index")


def _gather_type(cx: TypeContext, x: Any, dim: int, index: Any, **options: Arg) -> TensorType:
    t, positions = tensor(x), tensor(index)
    require_positions(cx, positions, "gather")
    require_within(cx, positions, t, dim, "gather")
    return new(cx, t, positions.shape)


_of_scalars = of_scalars("gather", "input, dim, index, *, sparse_grad=False")


def _gather_row(x: Any, dim: Any, index: Any, **options: Any) -> str | None:
    if not _ranks_match(tensor(index), tensor(x)):
        return "gather_nothing"
    return _of_scalars(x, dim, index)


op(
    "gather",
    "input, dim, index, *, sparse_grad=False",
    torch="torch.gather",
    vjp=indexing.GATHER,
    costly=True,
    type=_gather_type,
    spellings=("torch.Tensor.gather",),
    overload=_gather_row,
    normalize=_normal_gather,
    lower=Structural(Form.GATHER),
    data_indices=ranges.indices_along,
    raises=True,
)


def _gather_nothing(b: Any, x: Any, dim: Any, index: Any, *, sparse_grad: Any = False) -> Any:
    """An index without elements may have any number of dimensions."""
    dim_of(dim, tensor(x).rank)
    b.cx.require(eq(numel(index.shape), 0), _OTHER_RANK)
    return b.full(index.shape, 0, x.dtype, x.type.device)


op(
    "gather_nothing",
    "input, dim, index, *, sparse_grad=False",
    torch="anyshape.eager.gather_nothing",
    expand=_gather_nothing,
)


def _take_along_dim_expand(b: Any, x: Any, indices: Any, dim: Arg = None) -> Any:
    if dim is None:
        return b.gather(b.reshape(x, (-1,)), 0, b.reshape(indices, (-1,)))
    d = dim_of(dim, len(x.shape))
    indices = b.remainder(indices, x.shape[d])  # eager wraps around what is out of range
    ones = [1 if i == d else n for i, n in enumerate(x.shape)]
    others = [1 if i == d else n for i, n in enumerate(indices.shape)]
    shape = b.cx.broadcast_shapes((tuple(ones), tuple(others)))

    def put(n: Dim) -> tuple[Dim, ...]:
        return (*shape[:d], n, *shape[d + 1 :])

    return b.gather(b.expand(x, put(x.shape[d])), d, b.expand(indices, put(indices.shape[d])))


op(
    "take_along_dim",
    "input, indices, dim=None",
    torch="torch.take_along_dim",
    vjp="expansion",
    spellings=("torch.Tensor.take_along_dim",),
    expand=_take_along_dim_expand,
)
op(
    "take",
    "input, index",
    torch="torch.take",
    vjp="expansion",
    spellings=("torch.Tensor.take",),
    type=lambda cx, x, index: new(cx, tensor(x), tensor(index).shape),
    expand=lambda b, x, index: b.index(b.reshape(x, (-1,)), (index,)),
)

# --- x[i, None, j] ---


def normal_index(cx: TypeContext, x: Any, indices: Any) -> Normal:
    """One index, or ``None``, for each dimension."""
    rank = tensor(x).rank
    for i in (tensor(i) for i in indices if i is not None):
        whole = not i.shape and not i.dtype.is_floating and not i.dtype.is_complex
        if i.dtype not in (int64, int32, uint8, bool_) and not whole:  # an integer is a number
            raise OpError("tensors used as indices must be long, int, byte or bool tensors")
    used = sum(len(i.shape) if _is_mask(i) else 1 for i in indices)
    if max(used, len(indices)) > rank:  # a mask without dimensions counts, and says nothing
        raise OpError(f"too many indices for tensor of dimension {rank}")
    return (x, (*indices, *(None,) * (rank - used))), {}


def index_type(cx: TypeContext, x: Any, indices: tuple[Any, ...]) -> TensorType:
    """What ``x[indices]`` shows."""
    t = tensor(x)
    positions = {d: tensor(i) for d, i in enumerate(indices) if i is not None}
    shape = cx.broadcast_shapes(
        [i.shape for i in positions.values()],
        "shape mismatch: indexing tensors could not be broadcast",
    )
    return _indexed(cx, t, positions, shape)


def _indexed(
    cx: TypeContext, t: TensorType, positions: Mapping[int, TensorType], shape: Shape
) -> TensorType:
    """The result where the dimensions that have positions are replaced by the index shape.

    ATen moves indexed dimensions to the front if not adjacent, and lets TensorIterator go over
    the input, with strides of 0 in what is replaced, and over the positions, viewed with ones for
    what is kept (ATen/native/TensorAdvancedIndexing.cpp, ``AdvancedIndex``).
    """
    at = tuple(positions)
    together = at == tuple(range(at[0], at[0] + len(at)))
    before = [d for d in range(at[0]) if together]
    after = [d for d in range(t.rank) if d not in positions and d not in before]

    def around(values: Shape, middle: Shape) -> Shape:
        return (*(values[d] for d in before), *middle, *(values[d] for d in after))

    result, zeros, ones = around(t.shape, shape), (0,) * len(shape), (1,) * t.rank
    source = TensorType(t.dtype, t.device, result, around(t.strides, zeros))
    operands = [source]
    for i in positions.values():
        missing = (1,) * (len(shape) - i.rank)
        viewed = around(ones, (*missing, *i.shape))
        strides = view_strides(cx, i, viewed)
        if strides is not None:  # ones never need a copy
            operands.append(TensorType(i.dtype, i.device, viewed, strides))
    return TensorType(t.dtype, t.device, result, pointwise_strides(cx, result, operands))


def _is_mask(i: Any) -> bool:
    return i is not None and tensor(i).dtype in (bool_, uint8)


def mask_overload(name: str) -> Any:
    """The row for masks, where there is one among the indices."""
    return lambda x, indices, *rest: name if any(map(_is_mask, indices)) else None


op(
    "index",
    "input, indices",
    torch="anyshape.eager.index",
    vjp=indexing.INDEX,
    costly=True,
    normalize=normal_index,
    type=index_type,
    lower=Structural(Form.INDEX),
    data_indices=ranges.indices_by_dimension,
    overload=mask_overload("masked_index"),
    raises=True,
)


def _require_own_sizes(b: Any, mask: Any, x: Any, at: int) -> None:
    """A mask has the sizes of the dimensions that it stands at: indexing broadcasts none."""
    for size, own in zip(mask.shape, x.shape[at:]):
        b.cx.require(
            eq(size, own),
            "The shape of the mask does not match the shape of the indexed tensor",
        )


def unmasked(b: Any, x: Any, indices: Any) -> tuple[Any, ...]:
    """The indices, each mask as the positions where it is true: a vector for each dimension.

    A mask without dimensions says nothing, as in ATen; ``x[mask]`` gives it a dimension before
    (``capture/indexing.py``).
    """
    normal_index(b.cx, x, indices)
    made: list[Any] = []
    for i in indices:
        if not _is_mask(i):
            made.append(i)
            continue
        _require_own_sizes(b, i, x, len(made))
        if not i.shape:
            continue
        positions = b.nonzero(i)
        made += [b.select(positions, 1, d) for d in range(len(i.shape))]
    return tuple(made)


def mask_over(b: Any, x: Any, indices: Any) -> Any:
    """The only tensor among the indices, a mask, as one that broadcasts over ``x``; else None.

    Indexing counts dimensions from the left, broadcasting from the right: the mask gets a dimension
    for each of those that come after its own.
    """
    normal_index(b.cx, x, indices)
    at, mask = next((d, i) for d, i in enumerate(indices) if i is not None)
    if not _is_mask(mask) or any(i is not None for i in indices[at + 1 :]):
        return None
    _require_own_sizes(b, mask, x, at)
    after = len(x.shape) - at - len(mask.shape)
    return b.reshape(mask, (*mask.shape, *(1,) * after)) if after else mask


op(
    "masked_index",
    "input, indices",
    torch="anyshape.eager.masked_index",
    inline=True,
    expand=lambda b, x, indices: _index_at_masks(b, x, indices),
)


def _index_at_masks(b: Any, x: Any, indices: Any) -> Any:
    positions = unmasked(b, x, indices)
    if not tensor(x).requires_grad:
        return b.index(x, positions)
    return b.index_at_masks(x, positions, indices)


op(
    "index_at_masks",
    "input, positions, masks",
    torch="anyshape.eager_masks.index_at_masks",
    type=lambda cx, x, positions, masks: index_type(cx, x, positions),
    expand=lambda b, x, positions, masks: b.index(x, positions),
    vjp="expansion",
    raises=True,
)
"""An index by positions that masks have given: eager keeps the masks for the gradient."""

INDEXED = frozenset({"index", "index_at_masks"})
"""Rows whose results lie as their indices and the rest of their argument say."""

# --- embedding ---


def _embedding_type(cx: TypeContext, ids: Any, weight: Any, *rest: Arg) -> TensorType:
    t, w = tensor(ids), tensor(weight)
    if w.rank != 2:
        raise OpError("'weight' must be 2-D")
    require_one_device("embedding", (ids, weight))
    if rest and rest[0] is not None:
        padding = size_of(rest[0])
        inside = all_of(ge(padding, -w.shape[0]), lt(padding, maximum(w.shape[0], 1)))
        cx.require(inside, "Padding_idx must be within num_embeddings")
    return new(cx, w, (*t.shape, w.shape[1]))


def _embedding_expand(b: Any, ids: Any, weight: Any, *rest: Arg) -> Any:
    flat = b.index_select(weight, 0, b.reshape(ids, (-1,)))
    return flat if len(ids.shape) == 1 else b.reshape(flat, (*ids.shape, weight.shape[1]))


def _normal_embedding(
    cx: TypeContext,
    ids: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: Any = 2.0,
    scale_grad_by_freq: Any = False,
    sparse: Any = False,
) -> Normal:
    if max_norm is not None:
        raise NoRow("embedding with max_norm changes its weight and has no row")
    if scale_grad_by_freq or sparse:  # they change the gradient, and no result
        return (ids, weight, padding_idx, None, 2.0, bool(scale_grad_by_freq), bool(sparse)), {}
    return (ids, weight, padding_idx), {}


op(
    "embedding",
    "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, "
    "sparse=False",
    torch="torch.nn.functional.embedding",
    vjp=indexing.EMBEDDING,
    normalize=_normal_embedding,
    type=RowMajorRule(_embedding_type),
    expand=_embedding_expand,
)


def _one_hot_expand(b: Any, x: Any, num_classes: Any = -1) -> Any:
    classes = b.arange(num_classes, 0, 1, int64, x.type.device)
    return b.to_dtype(b.eq(b.unsqueeze(x, -1), classes), int64)


op(
    "one_hot",
    "input, num_classes=-1",
    torch="torch.nn.functional.one_hot",
    type=lambda cx, x, n: new(cx, tensor(x), (*tensor(x).shape, n), int64),
    expand=_one_hot_expand,
    refuses=lambda b, x, classes: b.logical_or(b.lt(x, 0), b.ge(x, classes)),
    overload=lambda x, n=-1: "one_hot_of_data" if isinstance(n, int) and n < 0 else None,
)
