"""Views: rows that only say where each element lies.

The core views are permute, expand, reshape, slice, select, unsqueeze, squeeze, flip, diagonal and
unfold; the rest expand to them. ``index`` maps an index of the result to one of the input, so that
the scheduler can read through a view without a copy. ``flip`` copies in eager, and ``reshape`` may.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import REAL_OF_COMPLEX, bool_
from anyshape.ir.graph import Arg, TensorType, Value
from anyshape.ops import parts, ranges, write_back
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.gradients import indexing
from anyshape.ops.layout import (
    Shape,
    broadcasts,
    contiguous_strides,
    dot,
    formatted_strides,
    is_contiguous,
    preserved_strides,
)
from anyshape.ops.rules import dim_of, dims_of, same_as, sizes_of, tensor
from anyshape.ops.table import OneByOne, View, op
from anyshape.symbolic import Dim, eq, floordiv, ge, gt, le, lt, maximum, minimum, mod

Index = tuple[Dim, ...]
Normal = tuple[tuple[Arg, ...], dict[str, Arg]]


def viewed(t: TensorType, shape: Shape, strides: Shape) -> TensorType:
    """The same memory under another shape."""
    return TensorType(t.dtype, t.device, shape, strides)


def _dim_first(cx: TypeContext, x: Any, dim: Arg, *rest: Arg) -> Normal:
    return (x, dim_of(dim, tensor(x).rank), *rest), {}


def sequence(arg: Arg) -> tuple[Arg, ...]:
    """Sizes or dims given as one tuple or a single number."""
    return arg if isinstance(arg, tuple) else (arg,)


# --- expand ---


def _normal_expand(cx: TypeContext, x: Any, shape: Arg) -> Normal:
    t = tensor(x)
    sizes = sequence(shape)
    offset = len(sizes) - t.rank
    if offset < 0:
        raise OpError(
            "the number of sizes provided must be greater or equal to the tensor's dimensions"
        )
    resolved = []
    for i, size in enumerate(sizes):
        if size.__class__ is int and size == -1:
            if i < offset:
                raise OpError(
                    "The expanded size of the tensor (-1) isn't allowed in a leading dimension"
                )
            size = t.shape[i - offset]
        resolved.append(size)
    return (x, tuple(resolved)), {}


def _expand_type(cx: TypeContext, x: Any, shape: Shape) -> TensorType:
    t: TensorType = x.type
    offset = len(shape) - t.rank
    strides: list[Dim] = []
    for i, size in enumerate(shape):
        own = t.shape[i - offset] if i >= offset else None
        if own is None:
            strides.append(0)
        elif own is size or own == size:
            strides.append(t.strides[i - offset])
        elif own.__class__ is int and own == 1:
            strides.append(0)
        else:
            strides.append(_expanded_stride(cx, own, size, t.strides[i - offset]))
    return viewed(t, shape, tuple(strides))


def _expanded_stride(cx: TypeContext, own: Dim, size: Dim, stride: Dim) -> Dim:
    """A size is kept or grows from 1: by the facts, or by a guard on what the hints show."""
    if cx.same(own, size):
        return stride
    if cx.known(eq(own, 1)):
        return 0
    joined = cx.broadcast_dims((own, size), "The expanded size of the tensor must match")
    if not cx.same(joined, size):
        cx.require(eq(joined, size), "The expanded size of the tensor must match the existing size")
    return 0 if broadcasts(cx, own, size) else stride


def _expand_index(cx: TypeContext, at: Index, t: TensorType, shape: Shape) -> Index:
    offset = len(shape) - t.rank
    positions: list[Dim] = []
    for i, own in enumerate(t.shape):
        size = shape[i + offset]
        if own == size or cx.same(own, size):
            positions.append(at[i + offset])
        else:
            one = own == 1 or cx.known(eq(own, 1))
            positions.append(0 if one else mod(at[i + offset], own))
    return tuple(positions)


op(
    "expand",
    "input, size",
    torch="torch.Tensor.expand",
    one_by_one=OneByOne(1, "method"),
    vjp=indexing.EXPAND,
    type=_expand_type,
    lower=View(_expand_index),
    normalize=_normal_expand,
    alias="view",
    write_back=write_back.expanded,
    keeps_elements=True,
)
op(
    "broadcast_to",
    "input, size",
    torch="torch.broadcast_to",
    one_by_one=OneByOne(1, "method"),
    vjp=indexing.EXPAND,
    spellings=("torch.Tensor.broadcast_to",),
    normalize=_normal_expand,
    type=_expand_type,
    expand=lambda b, x, s: b.expand(x, s),
    alias="view",
    write_back=write_back.expanded,
    keeps_elements=True,
)
op(
    "expand_as",
    "input, other",
    torch="torch.Tensor.expand_as",
    alias="view",
    inline=True,  # a node that read `other` would say that gradients go there
    expand=lambda b, x, y: b.expand(x, y.shape),
)

# --- unsqueeze, squeeze ---


def _normal_unsqueeze(cx: TypeContext, x: Any, dim: Arg) -> Normal:
    return (x, dim_of(dim, tensor(x).rank + 1)), {}


def _unsqueeze_type(cx: TypeContext, x: Any, dim: int) -> TensorType:
    t: TensorType = x.type
    step = t.shape[dim] * t.strides[dim] if dim < t.rank else 1
    return viewed(
        t, (*t.shape[:dim], 1, *t.shape[dim:]), (*t.strides[:dim], step, *t.strides[dim:])
    )


op(
    "unsqueeze",
    "input, dim",
    torch="torch.unsqueeze",
    spellings=("torch.Tensor.unsqueeze",),
    normalize=_normal_unsqueeze,
    type=_unsqueeze_type,
    alias="view",
    write_back=write_back.reshaped,
    part=parts.unsqueezed,
    lower=View(lambda cx, at, t, dim: (*at[:dim], *at[dim + 1 :])),
)


def _normal_squeeze(cx: TypeContext, x: Any, dim: Arg = None) -> Normal:
    t = tensor(x)
    asked = dims_of(dim, t.rank, empty_is_all=False)
    return (x, tuple(d for d in asked if cx.decide(eq(t.shape[d], 1)))), {}


def _squeeze_type(cx: TypeContext, x: Any, dims: tuple[int, ...]) -> TensorType:
    t: TensorType = x.type
    kept = [d for d in range(t.rank) if d not in dims]
    return viewed(t, tuple(t.shape[d] for d in kept), tuple(t.strides[d] for d in kept))


def _squeeze_index(cx: TypeContext, at: Index, t: TensorType, dims: tuple[int, ...]) -> Index:
    rest = iter(at)
    return tuple(0 if d in dims else next(rest) for d in range(t.rank))


op(
    "squeeze",
    "input, dim=None",
    torch="torch.squeeze",
    spellings=("torch.Tensor.squeeze",),
    normalize=_normal_squeeze,
    type=_squeeze_type,
    lower=View(_squeeze_index),
    alias="view",
    write_back=write_back.reshaped,
)

# --- slice, select ---


def _slice_type(
    cx: TypeContext, x: Any, dim: int, start: Dim, length: Dim, step: int = 1
) -> TensorType:
    t: TensorType = x.type
    strides = t.strides
    if step != 1:
        strides = (*strides[:dim], strides[dim] * step, *strides[dim + 1 :])
    return viewed(t, (*t.shape[:dim], length, *t.shape[dim + 1 :]), strides)


def _slice_index(
    cx: TypeContext, at: Index, t: TensorType, dim: int, start: Dim, length: Dim, step: int = 1
) -> Index:
    return (*at[:dim], start + at[dim] * step, *at[dim + 1 :])


op(
    "slice",
    "input, dim, start, length, step=1",
    torch="anyshape.eager.slice_",
    type=_slice_type,
    normalize=_dim_first,
    lower=View(_slice_index),
    alias="view",
    write_back=write_back.sliced,
    part=parts.sliced,
    keeps_elements=True,
)

for _name in ("slice_read", "slice_set"):  # slices to autograd only where they leave something out
    op(
        _name,
        "input, dim, start, length, step=1",
        torch=f"anyshape.eager.{_name}",
        type=_slice_type,
        alias="view",
        write_back=write_back.sliced,
        part=parts.sliced,
        expand=lambda b, x, dim, start, length, step=1: b.slice(x, dim, start, length, step),
        keeps_elements=True,
    )


def _normal_select(cx: TypeContext, x: Any, dim: Arg, index: Arg) -> Normal:
    t = tensor(x)
    if not t.shape:
        raise OpError("select() cannot be applied to a 0-dim tensor.")
    d = dim_of(dim, t.rank)
    return (x, d, element_of(cx, index, t.shape[d])), {}


def element_of(cx: TypeContext, index: Any, size: Dim) -> Dim:
    """The index counted from 0, required to lie within the size."""
    text = f"index {index} is out of bounds for dimension with size {size}"
    position = cx.from_zero(index, size)
    cx.require(ge(position, 0), text)
    cx.require(lt(position, size), text)
    return position


def _select_type(cx: TypeContext, x: Any, dim: int, index: Dim) -> TensorType:
    t: TensorType = x.type
    return viewed(
        t, (*t.shape[:dim], *t.shape[dim + 1 :]), (*t.strides[:dim], *t.strides[dim + 1 :])
    )


op(
    "select",
    "input, dim, index",
    torch="torch.select",
    spellings=("torch.Tensor.select",),
    normalize=_normal_select,
    type=_select_type,
    alias="view",
    write_back=write_back.selected,
    part=parts.selected,
    lower=View(lambda cx, at, t, dim, index: (*at[:dim], index, *at[dim:])),
)


def _normal_narrow(cx: TypeContext, x: Any, dim: Arg, start: Any, length: Any) -> Normal:
    t = tensor(x)
    d = dim_of(dim, t.rank)
    first = cx.from_zero(start, t.shape[d])
    cx.require(ge(first, 0), "start out of range")
    cx.require(ge(length, 0), "narrow(): length must be non-negative.")
    cx.require(le(first + length, t.shape[d]), "narrow(): start + length exceeds dimension size")
    return (x, d, first, length), {}


op(
    "narrow",
    "input, dim, start, length",
    torch="torch.narrow",
    spellings=("torch.Tensor.narrow",),
    overload=lambda x, dim, start, length: "narrow_at_item" if isinstance(start, Value) else None,
    normalize=_normal_narrow,
    type=_slice_type,
    alias="view",
    write_back=write_back.narrowed,
    part=parts.sliced,
    expand=lambda b, x, d, start, length: b.slice(x, d, start, length, 1),
    keeps_elements=True,
)


def _narrow_at_item(b: Any, x: Any, dim: Arg, start: Any, length: Any) -> Any:
    """A tensor says where to start."""
    t = tensor(start)
    if t.shape or t.dtype is bool_ or t.dtype.is_floating or t.dtype.is_complex:
        raise OpError("start must be an 0-dim integral Tensor.")
    return b.narrow(x, dim, b.item(start).type.expr, length)


op(
    "narrow_at_item",
    "input, dim, start, length",
    torch="torch.ops.aten.narrow.Tensor",
    inline=True,
    expand=_narrow_at_item,
)

# --- flip, diagonal, unfold, as_strided ---


def _normal_dims(cx: TypeContext, x: Any, dims: Arg) -> Normal:
    return (x, dims_of(dims, tensor(x).rank, empty_is_all=False)), {}


def _flip_type(cx: TypeContext, x: Any, dims: tuple[int, ...]) -> TensorType:
    t: TensorType = x.type
    return viewed(t, t.shape, preserved_strides(cx, t))


def _flip_index(cx: TypeContext, at: Index, t: TensorType, dims: tuple[int, ...]) -> Index:
    return tuple(t.shape[d] - 1 - i if d in dims else i for d, i in enumerate(at))


op(
    "flip",
    "input, dims",
    torch="torch.flip",
    one_by_one=OneByOne(1, "method"),
    vjp=indexing.FLIP,
    type=_flip_type,
    normalize=_normal_dims,
    lower=View(_flip_index),
)
op(
    "fliplr",
    "input",
    torch="torch.fliplr",
    spellings=("torch.Tensor.fliplr",),
    expand=lambda b, x: b.flip(x, (1,)),
    vjp="expansion",
)
op(
    "flipud",
    "input",
    torch="torch.flipud",
    spellings=("torch.Tensor.flipud",),
    expand=lambda b, x: b.flip(x, (0,)),
    vjp="expansion",
)


def _normal_diagonal(cx: TypeContext, x: Any, offset: Any, dim1: Arg, dim2: Arg) -> Normal:
    rank = tensor(x).rank
    i, j = dim_of(dim1, rank), dim_of(dim2, rank)
    if i == j:
        raise OpError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return (x, offset, i, j), {}


def diagonal_length(cx: TypeContext, rows: Dim, columns: Dim, offset: int) -> Dim:
    """The number of elements of the diagonal ``offset`` columns right of the main one."""
    down, right = max(-offset, 0), max(offset, 0)
    from_rows, from_columns = rows - down, columns - right
    if from_rows == from_columns or cx.known(le(from_rows, from_columns)):
        shorter = from_rows
    elif cx.known(le(from_columns, from_rows)):
        shorter = from_columns
    else:
        shorter = minimum(from_rows, from_columns)
    return shorter if cx.known(ge(shorter, 0)) else maximum(shorter, 0)


def _diagonal_type(cx: TypeContext, x: Any, offset: int, dim1: int, dim2: int) -> TensorType:
    t: TensorType = x.type
    kept = [d for d in range(t.rank) if d not in (dim1, dim2)]
    length = diagonal_length(cx, t.shape[dim1], t.shape[dim2], offset)
    shape = (*(t.shape[d] for d in kept), length)
    return viewed(t, shape, (*(t.strides[d] for d in kept), t.strides[dim1] + t.strides[dim2]))


def _diagonal_index(
    cx: TypeContext, at: Index, t: TensorType, offset: int, dim1: int, dim2: int
) -> Index:
    rest = iter(at)
    positions = {dim1: at[-1] + max(-offset, 0), dim2: at[-1] + max(offset, 0)}
    return tuple(positions[d] if d in positions else next(rest) for d in range(t.rank))


op(
    "diagonal",
    "input, offset=0, dim1=0, dim2=1",
    torch="torch.diagonal",
    type=_diagonal_type,
    spellings=("torch.Tensor.diagonal",),
    normalize=_normal_diagonal,
    lower=View(_diagonal_index),
    alias="view",
    write_back=write_back.by_positions,
    by_value=("offset",),
)


def _unfold_type(cx: TypeContext, x: Any, dim: int, size: Any, step: Any) -> TensorType:
    t: TensorType = x.type
    if not t.shape:
        return viewed(t, (size,), (1,))
    cx.require(le(size, t.shape[dim]), "maximum size for tensor at dimension is smaller than size")
    cx.require(gt(step, 0), "step must be > 0")
    count = floordiv(t.shape[dim] - size, step) + 1
    shape = (*t.shape[:dim], count, *t.shape[dim + 1 :], size)
    strides = (*t.strides[:dim], t.strides[dim] * step, *t.strides[dim + 1 :], t.strides[dim])
    return viewed(t, shape, strides)


def _unfold_index(
    cx: TypeContext, at: Index, t: TensorType, dim: int, size: Dim, step: int
) -> Index:
    if not t.shape:
        return ()
    return (*at[:dim], at[dim] * step + at[-1], *at[dim + 1 : -1])


op(
    "unfold",
    "input, dimension, size, step",
    torch="torch.Tensor.unfold",
    type=_unfold_type,
    normalize=_dim_first,
    lower=View(_unfold_index),
    alias="view",
    write_back=write_back.unfolded,
)


def _as_strided_type(cx: TypeContext, x: Any, size: Any, stride: Any, *_: Any) -> TensorType:
    shape, strides = sizes_of(size), sizes_of(stride)
    if len(shape) != len(strides):
        raise OpError("mismatch in length of strides and shape")
    return viewed(tensor(x), shape, strides)


op(
    "as_strided",
    "input, size, stride, storage_offset=None",
    by_layout=True,
    torch="torch.as_strided",
    alias="view",
    spellings=("torch.Tensor.as_strided",),
    type=_as_strided_type,
)
op(
    "strided_part",
    "input, size, stride, offset",
    by_layout=True,
    torch="anyshape.eager.strided_part",
    alias="view",
    type=lambda cx, x, size, stride, offset: viewed(tensor(x), sizes_of(size), sizes_of(stride)),
    lower=View(lambda cx, at, t, size, stride, offset: (dot(at, stride) + offset,)),
    write_back=write_back.strided,
)

# --- the same tensor, or a copy of it ---


def _contiguous_type(cx: TypeContext, x: Any, *, memory_format: Arg = None) -> TensorType:
    t = tensor(x)
    if memory_format in ("channels_last", "channels_last_3d"):
        return viewed(t, t.shape, formatted_strides(cx, t, memory_format))
    return t if is_contiguous(cx, t) else viewed(t, t.shape, contiguous_strides(cx, t.shape))


def _contiguous_expand(b: Any, x: Any, *, memory_format: Arg = None) -> Any:
    if memory_format in ("channels_last", "channels_last_3d"):
        return b.clone(x, memory_format=memory_format)
    if is_contiguous(b.cx, x.type):
        return x
    return b.clone(x, memory_format="contiguous_format")


op(
    "contiguous",
    "input, *, memory_format=None",
    torch="torch.Tensor.contiguous",
    type=_contiguous_type,
    expand=_contiguous_expand,
    alias="maybe",
    views_where=write_back.contiguous_is_view,
    copies_where=write_back.contiguous_is_copy,
    write_back=write_back.reshaped,
    keeps_elements=True,
)
# Other tensors of the same memory; `data` is `detach` but for the version counter, and so is
# `unsafe_alias` to `alias`: autograd takes it for new memory.
for _name, _torch, _spellings in (
    ("detach", "torch.detach", ("torch.Tensor.detach",)),
    ("data", "anyshape.eager.data", ()),
    ("alias", "anyshape.eager.alias", ()),
    ("unsafe_alias", "anyshape.eager.unsafe_alias", ()),
):
    op(
        _name,
        "input",
        torch=_torch,
        spellings=_spellings,
        type=same_as(0),
        expand=lambda b, x: x,
        alias="view",
        write_back=write_back.same,
        part=parts.same,
        keeps_elements=True,
        differentiable=_name in ("alias", "unsafe_alias"),
        holds=ranges.content if _name == "alias" else None,
    )


# --- complex numbers as pairs of real ones ---


def _as_real_type(cx: TypeContext, x: Any) -> TensorType:
    t = tensor(x)
    part = REAL_OF_COMPLEX.get(t.dtype)
    if part is None:
        raise OpError("view_as_real is only supported for complex tensors")
    return TensorType(part, t.device, (*t.shape, 2), (*(s * 2 for s in t.strides), 1))


def _as_complex_type(cx: TypeContext, x: Any) -> TensorType:
    t = tensor(x)
    whole = next((c for c, part in REAL_OF_COMPLEX.items() if part is t.dtype), None)
    if whole is None or not t.shape:
        raise OpError("view_as_complex is only supported for floating point tensors of pairs")
    cx.require(eq(t.shape[-1], 2), "Tensor must have a last dimension of size 2")
    cx.require(eq(t.strides[-1], 1), "Tensor must have a last dimension with stride 1")
    for stride in t.strides[:-1]:
        cx.require(eq(mod(stride, 2), 0), "Tensor must have a stride divisible by 2")
    strides = tuple(cx.facts.simplify(floordiv(s, 2)) for s in t.strides[:-1])
    return TensorType(whole, t.device, t.shape[:-1], strides)


op(
    "view_as_real",
    "input",
    torch="torch.view_as_real",
    type=_as_real_type,
    alias="view",
    write_back=write_back.as_real,
)
op(
    "view_as_complex",
    "input",
    by_layout=True,
    torch="torch.view_as_complex",
    type=_as_complex_type,
    alias="view",
    write_back=write_back.as_complex,
)


def _part_of(b: Any, x: Any, part: int) -> Any:
    if not x.dtype.is_complex:
        if part:
            raise OpError("imag is not implemented for tensors with non-complex dtypes.")
        return b.alias(x)
    return b.select(b.view_as_real(x), len(x.shape), part)


for _name, _part in (("real", 0), ("imag", 1)):
    op(
        _name,
        "input",
        torch=f"torch.{_name}",
        alias="view",
        inline=True,
        expand=lambda b, x, part=_part: _part_of(b, x, part),
    )
