"""Putting tensors together: cat, stack, pad, repeat, roll.

The core rows are ``cat(tensors, dim)`` and ``pad(x, pads, value)`` with one ``(low, high)`` pair
for each dimension; negative pads crop.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import int64
from anyshape.ir.graph import HOST, Arg, TensorType
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.gradients import indexing
from anyshape.ops.image_layout import suggests_channels_last
from anyshape.ops.layout import (
    Shape,
    channels_last_strides,
    contiguous_strides,
    numel,
    preserved_strides,
)
from anyshape.ops.rules import device_of, dim_of, dims_of, new, promoted, sizes_of, tensor
from anyshape.ops.table import Form, OneByOne, Structural, op
from anyshape.ops.view import Normal, sequence
from anyshape.symbolic import (
    Dim,
    Expr,
    all_of,
    any_of,
    eq,
    ge,
    le,
    maximum,
    minimum,
    ne,
    total,
)

# --- cat, stack ---


def _normal_cat(cx: TypeContext, tensors: Any, dim: Arg = 0) -> Normal:
    if not tensors:
        raise OpError("expected a non-empty list of Tensors")
    if any(not tensor(x).shape for x in tensors):
        raise OpError("zero-dimensional tensor cannot be concatenated")
    if len({tensor(x).rank for x in tensors}) > 1:
        raise OpError("Tensors must have same number of dimensions")
    return (tuple(tensors), dim_of(dim, tensor(tensors[0]).rank)), {}


def _cat_row(tensors: Any, dim: Arg) -> str | None:
    ranks = {tensor(x).rank for x in tensors}
    return "cat_beside_vectors" if 1 in ranks and len(ranks) > 1 else None


def _normal_cat_beside_vectors(cx: TypeContext, tensors: Any, dim: Arg = 0) -> Normal:
    """Vectors among tensors of more dimensions: torch leaves them out, if they are empty."""
    for x in tensors:
        if tensor(x).rank == 1:
            cx.require(eq(tensor(x).shape[0], 0), "Tensors must have same number of dimensions")
    _, dim = _normal_cat(cx, _without_vectors(tensors), dim)[0]
    return (tuple(tensors), dim), {}


def _without_vectors(tensors: Any) -> tuple[Any, ...]:
    return tuple(x for x in tensors if tensor(x).rank != 1)


def _cat_beside_vectors_type(cx: TypeContext, tensors: tuple[Any, ...], dim: int) -> TensorType:
    """Row-major, as vectors are, and in a dtype that theirs counts for."""
    shape = _cat_type(cx, _without_vectors(tensors), dim).shape
    kinds = [tensor(x) for x in tensors]
    return TensorType(promoted(cx, tensors), device_of(kinds), shape, contiguous_strides(cx, shape))


def _cat_beside_vectors(b: Any, tensors: tuple[Any, ...], dim: int) -> Any:
    dtype = promoted(b.cx, tensors)
    joined = [x if x.dtype is dtype else b.to_dtype(x, dtype) for x in _without_vectors(tensors)]
    return b.contiguous(b.cat(tuple(joined), dim))


def _cat_type(cx: TypeContext, tensors: tuple[Any, ...], dim: int) -> TensorType:
    types = [tensor(x) for x in tensors]
    first = types[0]
    shape = list(first.shape)
    for t in types[1:]:
        for d, size in enumerate(t.shape):
            if d != dim and size is not shape[d] and size != shape[d]:
                text = "Sizes of tensors must match except in the dimension of cat"
                cx.require(eq(size, shape[d]), text)
                shape[d] = size if isinstance(size, int) else shape[d]
    shape[dim] = total([t.shape[dim] for t in types])
    sizes = tuple(shape)
    if all(suggests_channels_last(cx, t) for t in types):
        strides = channels_last_strides(sizes)
    else:
        strides = contiguous_strides(cx, sizes)
    return TensorType(promoted(cx, tensors), device_of(types), sizes, strides)


op(
    "cat",
    "tensors, dim=0",
    torch="torch.cat",
    image_order="tensors",
    vjp=indexing.CAT,
    spellings=("torch.concat", "torch.concatenate"),
    normalize=_normal_cat,
    overload=_cat_row,
    type=_cat_type,
    lower=Structural(Form.CAT),
)
op(
    "cat_beside_vectors",
    "tensors, dim=0",
    torch="torch.ops.aten.cat.default",
    normalize=_normal_cat_beside_vectors,
    type=_cat_beside_vectors_type,
    expand=_cat_beside_vectors,
)


def _stack_type(cx: TypeContext, tensors: tuple[Any, ...], dim: int = 0) -> TensorType:
    types = [tensor(x) for x in tensors]
    if not types:
        raise OpError("stack expects a non-empty TensorList")
    d = dim_of(dim, types[0].rank + 1)
    for t in types[1:]:
        if t.rank != types[0].rank:
            raise OpError("stack expects each tensor to be equal size")
        for a, b in zip(t.shape, types[0].shape):
            cx.require(eq(a, b), "stack expects each tensor to be equal size")
    shape = (*types[0].shape[:d], len(types), *types[0].shape[d:])
    if d < types[0].rank:  # eager views what `cat` gives
        outer, inner = _cat_type(cx, tensors, d).strides, types[0].shape[d]
        strides = (*outer[:d], outer[d] * inner, *outer[d:])
    else:
        strides = contiguous_strides(cx, shape)
    return TensorType(promoted(cx, tensors), types[0].device, shape, strides)


op(
    "stack",
    "tensors, dim=0",
    torch="torch.stack",
    type=_stack_type,
    expand=lambda b, xs, dim=0: b.cat(
        tuple(b.unsqueeze(x, dim) for x in xs), dim_of(dim, len(xs[0].shape) + 1)
    ),
    vjp="expansion",
)


def _at_least(b: Any, x: Any, rank: int) -> Any:
    """``atleast_1d``, ``_2d``, ``_3d``."""
    have = tensor(x).rank
    if have >= rank:
        return x
    if have == 0:
        return b.reshape(x, (1,) * rank)
    if rank == 2:
        return b.unsqueeze(x, 0)
    return b.unsqueeze(b.unsqueeze(x, 0), -1) if have == 1 else b.unsqueeze(x, -1)


for _name, _rank, _dim in (("hstack", 1, 1), ("vstack", 2, 0), ("dstack", 3, 2)):

    def _stack_along(b: Any, tensors: Any, rank: int = _rank, dim: int = _dim) -> Any:
        pieces = tuple(_at_least(b, x, rank) for x in tensors)
        return b.cat(pieces, min(dim, len(pieces[0].shape) - 1))

    op(
        _name,
        "tensors",
        torch=f"torch.{_name}",
        expand=_stack_along,
        vjp="expansion",
        spellings=("torch.row_stack",) if _name == "vstack" else (),
    )

for _rank in (1, 2, 3):
    op(
        f"atleast_{_rank}d",
        "input",
        torch=f"torch.atleast_{_rank}d",
        one_by_one=OneByOne(0, "several"),
        alias="maybe",
        inline=True,
        expand=lambda b, x, rank=_rank: (
            tuple(_at_least(b, y, rank) for y in x)
            if isinstance(x, tuple)
            else _at_least(b, x, rank)
        ),
    )

# --- pad ---


def _pad_type(cx: TypeContext, x: Any, pads: tuple[tuple[Dim, Dim], ...], value: Arg) -> TensorType:
    t = tensor(x)
    shape = tuple(size + low + high for size, (low, high) in zip(t.shape, pads, strict=True))
    for size, pair in zip(shape, pads):
        if all(isinstance(pad, int) and pad >= 0 for pad in pair):
            continue  # no size is negative
        cx.require(
            ge(size, 0), "The input size, plus negative padding, resulted in a negative output size"
        )
    strides = (
        channels_last_strides(shape)
        if suggests_channels_last(cx, t)
        else contiguous_strides(cx, shape)
    )
    return TensorType(t.dtype, t.device, shape, strides)


op(
    "pad",
    "input, pads, value",
    torch="anyshape.eager.pad",
    vjp=indexing.PAD,
    type=_pad_type,
    lower=Structural(Form.PAD),
)


def _pairs(rank: int, pad: Arg) -> tuple[tuple[Any, Any], ...]:
    flat = sequence(pad)
    if len(flat) % 2 or len(flat) > 2 * rank:
        raise OpError(f"Padding length should be even and at most {2 * rank}, not {len(flat)}")
    pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
    return (*((0, 0),) * (rank - len(pairs)), *reversed(pairs))


def _torch_pad_expand(b: Any, x: Any, pad: Arg, mode: str = "constant", value: Any = None) -> Any:
    pairs = _pairs(len(x.shape), pad)
    if mode == "constant":
        return _constant_pad(b, x, pairs, 0 if value is None else value)
    _can_pad(b.cx, x.shape, pairs[len(x.shape) - len(sequence(pad)) // 2 :], mode)
    made = x
    for d, (low, high) in enumerate(pairs):
        if (low, high) != (0, 0):
            made = b.index_select(made, d, _padded_positions(b, made, d, low, high, mode))
    on_host = x.type.device == HOST  # other devices make row-major results
    if mode != "circular" and on_host and suggests_channels_last(b.cx, x.type):
        made = b.clone(made, memory_format="channels_last")
    return made


def _constant_pad(b: Any, x: Any, pairs: tuple[tuple[Any, Any], ...], value: Arg) -> Any:
    """Eager cuts before it adds: by more than there is, not even where something is added."""
    for size, pair in zip(x.shape, pairs, strict=True):
        cuts = [minimum(pad, 0) for pad in pair if b.cx.known(ge(pad, 0)) is not True]
        if cuts:
            b.cx.require(ge(total((size, *cuts)), 0), "narrow(): length must be non-negative.")
    return b.pad(x, pairs, value)


def _can_pad(cx: TypeContext, shape: Shape, pairs: tuple[Any, ...], mode: str) -> None:
    """What eager asks of the sizes before it pads the last dimensions by ``pairs``."""
    padded = shape[len(shape) - len(pairs) :]
    made = [size + low + high for size, (low, high) in zip(padded, pairs, strict=True)]
    for size in made:
        cx.require(ge(size, 0), "Negative padding value is resulting in an empty dimension")
    if mode == "circular":
        for size, pair in zip(padded, pairs, strict=True):
            for pad in pair:
                cx.require(le(pad, size), "Padding value causes wrapping around more than once.")
        return
    for size in shape[1 if len(shape) == len(pairs) + 2 else 0 :]:
        cx.require(ne(size, 0), "Expected an input with possibly 0 batch size and no other 0")
    cx.require(any_of(*(ge(size, 1) for size in made)), "the input is too small for this padding")


def _padded_positions(b: Any, x: Any, dim: int, low: Any, high: Any, mode: str) -> Any:
    """Where each element of the padded dimension comes from."""
    size, cx = x.shape[dim], b.cx
    positions = b.arange(size + low + high, -low, 1, int64, x.type.device)
    if mode == "circular":
        first, cropped = (maximum(-n, 0) for n in (low, high))
        return b.add(b.remainder(b.sub(positions, first), size - first - cropped), first)
    if mode == "reflect":
        for pad in (low, high):
            cx.require(ge(size - 1, pad), "Padding size should be less than the input dimension")
        return b.rsub(b.abs(b.rsub(b.abs(positions), size - 1)), size - 1)
    return b.clamp(positions, 0, size - 1)  # replicate


def _aten_pad(x: Any, pad: Arg, mode: str = "constant", value: Any = None) -> str:
    kind = {"reflect": "reflection", "replicate": "replication"}.get(mode, mode)
    return f"{kind}_pad{len(sequence(pad)) // 2}d"


op(
    "torch_pad",
    "input, pad, mode='constant', value=None",
    torch="torch.nn.functional.pad",
    aten=_aten_pad,
    image_order="input",
    vjp="expansion",
    expand=_torch_pad_expand,
)
op(
    "constant_pad_nd",
    "input, pad, value=0",
    torch="torch.constant_pad_nd",
    image_order="input",
    vjp="expansion",
    expand=lambda b, x, pad, value=0: _constant_pad(b, x, _pairs(len(x.shape), pad), value),
)

# --- repeat, tile, roll ---


def _repeat_expand(b: Any, x: Any, repeats: Arg) -> Any:
    times = sequence(repeats)
    rank = len(times)
    if rank < len(x.shape):
        raise OpError(
            "Number of dimensions of repeat dims can not be smaller than that of the tensor"
        )
    sizes = (*(1,) * (rank - len(x.shape)), *x.shape)
    split = [part for size in sizes for part in (1, size)]
    spread = [part for n, size in zip(times, sizes) for part in (n, size)]
    wide = b.expand(b.reshape(x, tuple(split)), tuple(spread))
    return b.clone(b.reshape(wide, tuple(n * size for n, size in zip(times, sizes))))


def _repeat_type(cx: TypeContext, x: Any, repeats: Arg) -> TensorType:
    t, times = tensor(x), sizes_of(repeats)
    if len(times) < t.rank:
        raise OpError(
            "Number of dimensions of repeat dims can not be smaller than that of the tensor"
        )
    sizes = (*(1,) * (len(times) - t.rank), *t.shape)
    return new(cx, t, [n * size for n, size in zip(times, sizes)])


op(
    "repeat",
    "input, repeats",
    torch="torch.Tensor.repeat",
    one_by_one=OneByOne(1, "method"),
    vjp="expansion",
    type=_repeat_type,
    expand=_repeat_expand,
    keeps_elements=True,
)


def _tile(b: Any, x: Any, dims: Arg) -> Any:
    times = sequence(dims)
    return b.repeat(x, (*(1,) * (len(x.shape) - len(times)), *times))


op(
    "tile",
    "input, dims",
    torch="torch.tile",
    one_by_one=OneByOne(1, "method"),
    vjp="expansion",
    spellings=("torch.Tensor.tile",),
    expand=_tile,
)


def _roll_one(b: Any, x: Any, shift: Dim, dim: int) -> Any:
    size = x.shape[dim]
    if size == 0:
        return x
    positions = b.arange(size, 0, 1, int64, x.type.device)
    return b.index_select(x, dim, b.remainder(b.sub(positions, shift), size))


def _roll_expand(b: Any, x: Any, shifts: Arg, dims: Arg = None) -> Any:
    amounts = sizes_of(shifts)
    if dims is None or dims == ():
        flat = _roll_one(b, b.reshape(x, (-1,)), amounts[0], 0)
        return b.reshape(flat, x.shape)
    for shift, dim in zip(amounts, dims_of(dims, len(x.shape)), strict=True):
        x = _roll_one(b, x, shift, dim)
    return x


def _roll_type(cx: TypeContext, x: Any, shifts: Arg, dims: Arg = None) -> TensorType:
    """Eager joins the two parts, or rolls all elements in a row; it copies what is empty."""
    if dims is None or dims == ():
        return new(cx, tensor(x), tensor(x).shape)
    dims_of(dims, len(tensor(x).shape))  # of what is empty, eager asks for none
    t = tensor(x)
    if any(cx.same(size, 0) for size in t.shape):
        return TensorType(t.dtype, t.device, t.shape, preserved_strides(cx, t))
    return _cat_type(cx, (x,), 0)


op(
    "roll",
    "input, shifts, dims=None",
    torch="anyshape.eager.roll_",
    vjp="expansion",
    expand=_roll_expand,
    spellings=("torch.roll", "torch.Tensor.roll"),
    type=_roll_type,
)


def _repeat_interleave_expand(
    b: Any, x: Any, repeats: Any, dim: Arg = None, *, output_size: Arg = None
) -> Any:
    if dim is None:
        x, dim = b.reshape(x, (-1,)), 0
    d = dim_of(dim, len(x.shape))
    wide = b.expand(b.unsqueeze(x, d + 1), (*x.shape[: d + 1], repeats, *x.shape[d + 1 :]))
    return b.clone(b.reshape(wide, (*x.shape[:d], x.shape[d] * repeats, *x.shape[d + 1 :])))


def _repeat_interleave_type(
    cx: TypeContext, x: Any, repeats: Any, dim: Arg = None, *, output_size: Arg = None
) -> TensorType:
    t = tensor(x)
    shape = (numel(t.shape),) if dim is None else t.shape
    d = dim_of(0 if dim is None else dim, len(shape))
    return new(cx, t, (*shape[:d], shape[d] * repeats, *shape[d + 1 :]))


op(
    "repeat_interleave",
    "input, repeats=None, dim=None, *, output_size=None",
    torch="torch.repeat_interleave",
    vjp="expansion",
    spellings=("torch.Tensor.repeat_interleave",),
    overload=lambda x, repeats=None, *rest, **kw: (
        None if isinstance(repeats, (int, Expr)) else "repeat_each"
    ),
    type=_repeat_interleave_type,
    expand=_repeat_interleave_expand,
)


def _meshgrid_expand(b: Any, tensors: tuple[Any, ...], *, indexing: str = "ij") -> tuple[Any, ...]:
    vectors = [x if x.shape else b.reshape(x, (1,)) for x in tensors]
    swapped = indexing == "xy" and len(vectors) > 1
    order = [1, 0, *range(2, len(vectors))] if swapped else list(range(len(vectors)))
    shape = tuple(vectors[i].shape[0] for i in order)
    made = []
    for i, x in enumerate(vectors):
        position = order.index(i)
        line = b.reshape(x, tuple(x.shape[0] if d == position else 1 for d in range(len(vectors))))
        made.append(b.expand(line, shape))
    return tuple(made)


op(
    "meshgrid",
    "tensors, *, indexing='ij'",
    torch="anyshape.eager.meshgrid",
    one_by_one=OneByOne(0),
    spellings=("torch.meshgrid",),
    alias="maybe",
    inline=True,
    expand=_meshgrid_expand,
    vjp="expansion",
)


def _cartesian_expand(b: Any, tensors: tuple[Any, ...]) -> Any:
    """Every choice of one element of each, one to a row."""
    if len(tensors) == 1:
        return tensors[0]
    grids = b.meshgrid(tensors)
    return b.stack(tuple(b.reshape(grid, (-1,)) for grid in grids), 1)


op(
    "cartesian_prod",
    "tensors",
    torch="anyshape.eager.cartesian_prod",
    one_by_one=OneByOne(0),
    spellings=("torch._C._VariableFunctions.cartesian_prod",),
    alias="maybe",
    inline=True,
    expand=_cartesian_expand,
)


def _broadcast_tensors_expand(b: Any, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Each as it is, where it has the common shape already: the very object, which a guard decides
    where sizes do; of sizes that nobody may guard on it is checked that they are alike.
    """
    cx = b.cx
    shape = cx.broadcast_shapes([x.shape for x in tensors])

    def has_it(x: Any) -> bool:
        if len(x.shape) != len(shape):
            return False
        alike = all_of(*map(eq, x.shape, shape))
        if cx.known(alike) is None and cx.hint(alike) is None:
            cx.require(alike, "a tensor that is broadcast to its own shape is given back")
            return True
        return cx.decide(alike)

    return tuple(x if has_it(x) else b.expand(x, shape) for x in tensors)


op(
    "broadcast_tensors",
    "tensors",
    torch="anyshape.eager.broadcast_tensors",
    one_by_one=OneByOne(0),
    spellings=("torch.broadcast_tensors",),
    alias="maybe",
    inline=True,
    expand=_broadcast_tensors_expand,
    vjp="expansion",
)
