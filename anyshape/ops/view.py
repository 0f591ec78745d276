"""Views: rows that only say where each element lies.

The core views are permute, expand, reshape, slice, select, unsqueeze, squeeze, flip, diagonal and unfold;
the rest expand to them. ``index`` maps an index of the result to one of the input, so that the scheduler
can read through a view without a copy. ``flip`` copies in eager, and ``reshape`` may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anyshape.ir.graph import Arg, TensorType
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.layout import (
    Shape,
    contiguous_strides,
    formatted_strides,
    is_contiguous,
    numel,
    preserved_strides,
    view_strides,
)
from anyshape.ops.rules import dim_of, dims_of, same_as, tensor
from anyshape.ops.table import View, op
from anyshape.symbolic import (
    Dim,
    Expr,
    eq,
    floordiv,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mod,
    ne,
)

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


# --- permute ---


def _normal_permute(cx: TypeContext, x: Any, dims: Arg) -> Normal:
    rank = tensor(x).rank
    order = tuple(dim_of(d, rank) for d in sequence(dims))
    if sorted(order) != list(range(rank)):
        raise OpError(f"permute(sparse_coo): number of dimensions {rank} does not fit dims {dims}")
    return (x, order), {}


def _permute_type(cx: TypeContext, x: Any, dims: tuple[int, ...]) -> TensorType:
    t: TensorType = x.type
    shape, strides = t.shape, t.strides
    return viewed(t, tuple([shape[d] for d in dims]), tuple([strides[d] for d in dims]))


def _permute_index(cx: TypeContext, at: Index, t: TensorType, dims: tuple[int, ...]) -> Index:
    place = {d: i for i, d in enumerate(dims)}
    return tuple(at[place[d]] for d in range(t.rank))


op("permute", "input, dims", torch="torch.permute", type=_permute_type, lower=View(_permute_index),
   normalize=_normal_permute, alias="view")  # fmt: skip


def _swap(rank: int, a: Arg, b: Arg) -> tuple[int, ...]:
    i, j = dim_of(a, rank), dim_of(b, rank)
    order = list(range(rank))
    if rank:
        order[i], order[j] = j, i
    return tuple(order)


def _transpose_type(cx: TypeContext, x: Any, dim0: int, dim1: int) -> TensorType:
    return _permute_type(cx, x, _swap(tensor(x).rank, dim0, dim1))


op("transpose", "input, dim0, dim1", torch="torch.transpose", type=_transpose_type, alias="view",
   spellings=("torch.Tensor.transpose", "torch.swapaxes", "torch.Tensor.swapaxes", "torch.swapdims",
              "torch.Tensor.swapdims"),
   expand=lambda b, x, i, j: b.permute(x, _swap(len(x.shape), i, j)))  # fmt: skip


def _permuted(order: Callable[[int], tuple[int, ...]]) -> dict[str, Any]:
    """Type and expansion of a permutation that depends on the rank alone."""
    return {
        "type": lambda cx, x: _permute_type(cx, x, order(tensor(x).rank)),
        "expand": lambda b, x: b.permute(x, order(len(x.shape))),
        "alias": "view",
    }


def _reversed_two(rank: int) -> tuple[int, ...]:
    if rank > 2:
        raise OpError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return tuple(reversed(range(rank)))


def _swapped_last(rank: int) -> tuple[int, ...]:
    return _swap(rank, -1, -2)


def _all_reversed(rank: int) -> tuple[int, ...]:
    return tuple(reversed(range(rank)))


op("t", "input", torch="torch.t", spellings=("torch.Tensor.t",), **_permuted(_reversed_two))
op("mT", "input", torch="torch.Tensor.mT.__get__", spellings=("torch.adjoint", "torch.Tensor.adjoint"),
   **_permuted(_swapped_last))  # fmt: skip
op("T", "input", torch="torch.Tensor.T.__get__", **_permuted(_all_reversed))


def _moved(rank: int, source: Arg, destination: Arg) -> tuple[int, ...]:
    sources = [dim_of(d, rank) for d in sequence(source)]
    targets = [dim_of(d, rank) for d in sequence(destination)]
    rest = iter(d for d in range(rank) if d not in sources)
    placed = dict(zip(targets, sources, strict=True))
    return tuple(placed[i] if i in placed else next(rest) for i in range(rank))


op("movedim", "input, source, destination", torch="torch.movedim", alias="view",
   spellings=("torch.Tensor.movedim", "torch.moveaxis", "torch.Tensor.moveaxis"),
   type=lambda cx, x, s, d: _permute_type(cx, x, _moved(tensor(x).rank, s, d)),
   expand=lambda b, x, s, d: b.permute(x, _moved(len(x.shape), s, d)))  # fmt: skip

# --- expand ---


def _normal_expand(cx: TypeContext, x: Any, shape: Arg) -> Normal:
    t = tensor(x)
    sizes = sequence(shape)
    offset = len(sizes) - t.rank
    if offset < 0:
        raise OpError("the number of sizes provided must be greater or equal to the tensor's dimensions")
    resolved = []
    for i, size in enumerate(sizes):
        if size.__class__ is int and size == -1:
            if i < offset:
                raise OpError("The expanded size of the tensor (-1) isn't allowed in a leading dimension")
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
    """A size is kept or grows from 1: decided by the facts, or by a guard on what the hints show."""
    if cx.same(own, size):
        return stride
    if cx.known(eq(own, 1)):
        return 0
    joined = cx.broadcast_dims((own, size), "The expanded size of the tensor must match")
    if not cx.same(joined, size):
        cx.require(eq(joined, size), "The expanded size of the tensor must match the existing size")
    return 0 if cx.known(eq(own, 1)) and not cx.known(eq(size, 1)) else stride


def _expand_index(cx: TypeContext, at: Index, t: TensorType, shape: Shape) -> Index:
    offset = len(shape) - t.rank
    places: list[Dim] = []
    for i, own in enumerate(t.shape):
        size = shape[i + offset]
        if own == size or cx.same(own, size):
            places.append(at[i + offset])
        else:
            one = own == 1 or cx.known(eq(own, 1))
            places.append(0 if one else mod(at[i + offset], own))
    return tuple(places)


op("expand", "input, size", torch="torch.Tensor.expand", type=_expand_type, lower=View(_expand_index),
   normalize=_normal_expand, alias="view")  # fmt: skip
op("broadcast_to", "input, size", torch="torch.broadcast_to", spellings=("torch.Tensor.broadcast_to",),
   normalize=_normal_expand, type=_expand_type, expand=lambda b, x, s: b.expand(x, s), alias="view")
op("expand_as", "input, other", torch="torch.Tensor.expand_as", alias="view",
   type=lambda cx, x, y: _expand_type(cx, x, tensor(y).shape),
   expand=lambda b, x, y: b.expand(x, y.shape))  # fmt: skip

# --- reshape ---


def resolve_shape(cx: TypeContext, count: Dim, shape: Arg) -> Shape:
    """The shape with -1 replaced by what is left of ``count`` elements."""
    sizes: list[Any] = list(sequence(shape))
    holes = [i for i, size in enumerate(sizes) if size.__class__ is int and size == -1]
    if not holes:
        return tuple(sizes)
    if len(holes) > 1:
        raise OpError("only one dimension can be inferred")
    known = numel([s for i, s in enumerate(sizes) if i != holes[0]])
    sizes[holes[0]] = _quotient(cx, count, known, shape)
    return tuple(sizes)


def _quotient(cx: TypeContext, count: Dim, known: Dim, shape: Arg) -> Dim:
    if known.__class__ is int:
        if known == 1:
            return count
        if known == 0:
            raise OpError(
                f"cannot reshape tensor into shape {shape} because the unspecified dimension size "
                "-1 can be any value and is ambiguous"
            )
        cx.require(eq(mod(count, known), 0), f"shape '{shape}' is invalid for the input's size")
        return cx.facts.simplify(floordiv(count, known)) if isinstance(count, Expr) else count // known
    divided = divide_product(count, known)
    if divided is not None:
        return divided
    cx.require(ne(known, 0), "cannot reshape: the unspecified dimension is ambiguous")
    cx.require(eq(mod(count, known), 0), f"shape '{shape}' is invalid for the input's size")
    return cx.facts.simplify(floordiv(count, known))


def divide_product(count: Dim, divisor: Dim) -> Dim | None:
    """``count / divisor`` where the divisor is one term that divides each term of the count.

    The result is exact whenever the divisor is not 0; where it is, there are no elements.
    """
    if not isinstance(divisor, Expr) or divisor.constant or len(divisor.terms) != 1:
        return None
    (factors, scale), *_ = divisor.terms.items()
    if not isinstance(count, Expr) or count.constant:
        return None
    result: Dim = 0
    for monomial, coefficient in count.terms.items():
        rest = list(monomial)
        for atom in factors:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % scale:
            return None
        result = result + numel([atom.expr for atom in rest]) * (coefficient // scale)
    return result


def _normal_reshape(cx: TypeContext, x: Any, shape: Arg) -> Normal:
    t = tensor(x)
    sizes = sequence(shape)
    if -1 in sizes:
        return (x, resolve_shape(cx, _count(cx, t), sizes)), {}
    return (x, sizes), {}


def _count(cx: TypeContext, t: TensorType) -> Dim:
    if not t.shape:
        return 1
    return t.shape[0] * contiguous_strides(cx, t.shape)[0]


def _same_count(cx: TypeContext, t: TensorType, shape: Shape) -> None:
    if t.shape == shape:
        return
    count, wanted = _count(cx, t), numel(shape)
    if count is not wanted and count != wanted:
        cx.require(eq(count, wanted), f"shape '{list(shape)}' is invalid for input of size {count}")


def _reshape_type(cx: TypeContext, x: Any, shape: Shape) -> TensorType:
    t: TensorType = x.type
    _same_count(cx, t, shape)
    strides = view_strides(cx, t, shape, decide=True)
    return viewed(t, shape, contiguous_strides(cx, shape) if strides is None else strides)


def _view_type(cx: TypeContext, x: Any, shape: Shape) -> TensorType:
    t: TensorType = x.type
    _same_count(cx, t, shape)
    strides = view_strides(cx, t, shape, decide=True)
    if strides is None:
        raise OpError("view size is not compatible with input tensor's size and stride")
    return viewed(t, shape, strides)


def linear(at: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """The row-major number of the element at an index."""
    place: Dim = 0
    for i, size in zip(at, shape, strict=True):
        place = place * size + i
    return place


def delinear(place: Dim, shape: Sequence[Dim]) -> Index:
    """The index of the element with a row-major number."""
    index: list[Dim] = []
    for size in reversed(shape[1:]):
        index.append(mod(place, size))
        place = floordiv(place, size)
    return (place, *reversed(index)) if shape else ()


def _groups(cx: TypeContext, a: Shape, b: Shape) -> list[tuple[list[int], list[int]]]:
    """Dims of two shapes, last first, in the smallest groups with equal products."""
    groups = []
    left, right = list(range(len(a))), list(range(len(b)))
    while left or right:
        mine, theirs = ([left.pop()] if left else []), ([right.pop()] if right else [])
        while True:
            x, y = numel([a[i] for i in mine]), numel([b[i] for i in theirs])
            if x == y or cx.same(x, y):
                break
            grow_mine = left and (not right or _is_factor(x, y))
            if not (grow_mine or right):
                break
            if grow_mine:
                mine.insert(0, left.pop())
            else:
                theirs.insert(0, right.pop())
        groups.append((mine, theirs))
    return groups


def _is_factor(small: Dim, large: Dim) -> bool:
    if isinstance(small, int):
        return not isinstance(large, int) or small < large
    return divide_product(large, small) is not None


def _reshape_index(cx: TypeContext, at: Index, t: TensorType, shape: Shape) -> Index:
    index: dict[int, Dim] = {}
    for mine, theirs in _groups(cx, t.shape, shape):
        place = linear([at[i] for i in theirs], [shape[i] for i in theirs])
        sizes = [t.shape[i] for i in mine]
        index.update(zip(mine, delinear(place, sizes), strict=True))
    return tuple(0 if t.shape[i] == 1 else index[i] for i in range(t.rank))


op("reshape", "input, shape", torch="torch.reshape", type=_reshape_type, lower=View(_reshape_index),
   normalize=_normal_reshape, alias="maybe")  # fmt: skip
op("view", "input, size", torch="torch.Tensor.view", type=_view_type, normalize=_normal_reshape,
   expand=lambda b, x, shape: b.reshape(x, shape), alias="view")  # fmt: skip
op("reshape_as", "input, other", torch="torch.Tensor.reshape_as", alias="maybe",
   type=lambda cx, x, y: _reshape_type(cx, x, tensor(y).shape),
   expand=lambda b, x, y: b.reshape(x, y.shape))  # fmt: skip
op("view_as", "input, other", torch="torch.Tensor.view_as", alias="view",
   type=lambda cx, x, y: _view_type(cx, x, tensor(y).shape),
   expand=lambda b, x, y: b.reshape(x, y.shape))  # fmt: skip


def _flat_shape(shape: Shape, start: Arg, end: Arg) -> Shape:
    if not shape:
        return (1,)
    i, j = dim_of(start, len(shape)), dim_of(end, len(shape))
    if i > j:
        raise OpError("flatten() has invalid args: start_dim cannot come after end_dim")
    return shape if i == j else (*shape[:i], numel(shape[i : j + 1]), *shape[j + 1 :])


op("flatten", "input, start_dim=0, end_dim=-1", torch="torch.flatten", alias="maybe",
   spellings=("torch.Tensor.flatten",),
   type=lambda cx, x, i, j: _reshape_type(cx, x, _flat_shape(tensor(x).shape, i, j)),
   expand=lambda b, x, i, j: b.reshape(x, _flat_shape(x.shape, i, j)))  # fmt: skip
op("ravel", "input", torch="torch.ravel", alias="maybe", spellings=("torch.Tensor.ravel",),
   type=lambda cx, x: viewed(tensor(x), _flat_shape(tensor(x).shape, 0, -1), (1,)),
   expand=lambda b, x: b.reshape(b.contiguous(x), _flat_shape(x.shape, 0, -1)))  # fmt: skip


def _normal_unflatten(cx: TypeContext, x: Any, dim: Arg, sizes: Arg) -> Normal:
    t = tensor(x)
    d = dim_of(dim, t.rank)
    resolved = resolve_shape(cx, t.shape[d], sizes)
    cx.require(eq(numel(resolved), t.shape[d]), f"unflatten: sizes {sizes} don't multiply up to the size")
    return (x, d, resolved), {}


def _unflat_shape(shape: Shape, dim: int, sizes: Shape) -> Shape:
    return (*shape[:dim], *sizes, *shape[dim + 1 :])


op("unflatten", "input, dim, sizes", torch="torch.unflatten", spellings=("torch.Tensor.unflatten",),
   normalize=_normal_unflatten, alias="view",
   type=lambda cx, x, d, sizes: _view_type(cx, x, _unflat_shape(tensor(x).shape, d, sizes)),
   expand=lambda b, x, d, sizes: b.reshape(x, _unflat_shape(x.shape, d, sizes)))  # fmt: skip

# --- unsqueeze, squeeze ---


def _normal_unsqueeze(cx: TypeContext, x: Any, dim: Arg) -> Normal:
    return (x, dim_of(dim, tensor(x).rank + 1)), {}


def _unsqueeze_type(cx: TypeContext, x: Any, dim: int) -> TensorType:
    t: TensorType = x.type
    step = t.shape[dim] * t.strides[dim] if dim < t.rank else 1
    return viewed(
        t, (*t.shape[:dim], 1, *t.shape[dim:]), (*t.strides[:dim], step, *t.strides[dim:])
    )


op("unsqueeze", "input, dim", torch="torch.unsqueeze", spellings=("torch.Tensor.unsqueeze",),
   normalize=_normal_unsqueeze, type=_unsqueeze_type, alias="view",
   lower=View(lambda cx, at, t, dim: (*at[:dim], *at[dim + 1 :])))  # fmt: skip


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


op("squeeze", "input, dim=None", torch="torch.squeeze", spellings=("torch.Tensor.squeeze",),
   normalize=_normal_squeeze, type=_squeeze_type, lower=View(_squeeze_index), alias="view")

# --- slice, select ---


def _slice_type(cx: TypeContext, x: Any, dim: int, start: Dim, length: Dim, step: int = 1) -> TensorType:
    t: TensorType = x.type
    strides = t.strides
    if step != 1:
        strides = (*strides[:dim], strides[dim] * step, *strides[dim + 1 :])
    return viewed(t, (*t.shape[:dim], length, *t.shape[dim + 1 :]), strides)


def _slice_index(
    cx: TypeContext, at: Index, t: TensorType, dim: int, start: Dim, length: Dim, step: int = 1
) -> Index:
    return (*at[:dim], start + at[dim] * step, *at[dim + 1 :])


op("slice", "input, dim, start, length, step=1", torch="anyshape.reference.slice_", type=_slice_type,
   normalize=_dim_first, lower=View(_slice_index), alias="view")  # fmt: skip


def _normal_select(cx: TypeContext, x: Any, dim: Arg, index: Arg) -> Normal:
    t = tensor(x)
    if not t.shape:
        raise OpError("select() cannot be applied to a 0-dim tensor.")
    d = dim_of(dim, t.rank)
    return (x, d, element_of(cx, index, t.shape[d])), {}


def element_of(cx: TypeContext, index: Any, size: Dim) -> Dim:
    """The index counted from 0, required to lie within the size."""
    text = f"index {index} is out of bounds for dimension with size {size}"
    if isinstance(index, int) or cx.known(ge(index, 0)):
        place = index if not isinstance(index, int) or index >= 0 else size + index
    else:
        place = index if cx.decide(ge(index, 0)) else size + index
    cx.require(ge(place, 0), text)
    cx.require(lt(place, size), text)
    return place


def _select_type(cx: TypeContext, x: Any, dim: int, index: Dim) -> TensorType:
    t: TensorType = x.type
    return viewed(
        t, (*t.shape[:dim], *t.shape[dim + 1 :]), (*t.strides[:dim], *t.strides[dim + 1 :])
    )


op("select", "input, dim, index", torch="torch.select", spellings=("torch.Tensor.select",),
   normalize=_normal_select, type=_select_type, alias="view",
   lower=View(lambda cx, at, t, dim, index: (*at[:dim], index, *at[dim:])))  # fmt: skip


def _normal_narrow(cx: TypeContext, x: Any, dim: Arg, start: Any, length: Any) -> Normal:
    t = tensor(x)
    d = dim_of(dim, t.rank)
    first = start
    if not isinstance(start, int) or start < 0:
        first = start if cx.decide(ge(start, 0)) else start + t.shape[d]
    cx.require(ge(length, 0), "narrow(): length must be non-negative.")
    cx.require(le(first + length, t.shape[d]), "narrow(): start + length exceeds dimension size")
    return (x, d, first, length), {}


op("narrow", "input, dim, start, length", torch="torch.narrow", spellings=("torch.Tensor.narrow",),
   normalize=_normal_narrow, type=_slice_type, alias="view",
   expand=lambda b, x, d, start, length: b.slice(x, d, start, length, 1))  # fmt: skip

# --- flip, diagonal, unfold, as_strided ---


def _normal_dims(cx: TypeContext, x: Any, dims: Arg) -> Normal:
    return (x, dims_of(dims, tensor(x).rank, empty_is_all=False)), {}


def _flip_type(cx: TypeContext, x: Any, dims: tuple[int, ...]) -> TensorType:
    t: TensorType = x.type
    return viewed(t, t.shape, preserved_strides(cx, t))


def _flip_index(cx: TypeContext, at: Index, t: TensorType, dims: tuple[int, ...]) -> Index:
    return tuple(t.shape[d] - 1 - i if d in dims else i for d, i in enumerate(at))


op("flip", "input, dims", torch="torch.flip", type=_flip_type, normalize=_normal_dims,
   lower=View(_flip_index))  # fmt: skip
op("fliplr", "input", torch="torch.fliplr", spellings=("torch.Tensor.fliplr",),
   expand=lambda b, x: b.flip(x, (1,)))  # fmt: skip
op("flipud", "input", torch="torch.flipud", spellings=("torch.Tensor.flipud",),
   expand=lambda b, x: b.flip(x, (0,)))  # fmt: skip


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
    places = {dim1: at[-1] + max(-offset, 0), dim2: at[-1] + max(offset, 0)}
    return tuple(places[d] if d in places else next(rest) for d in range(t.rank))


op("diagonal", "input, offset=0, dim1=0, dim2=1", torch="torch.diagonal", type=_diagonal_type,
   spellings=("torch.Tensor.diagonal",), normalize=_normal_diagonal, lower=View(_diagonal_index),
   alias="view")  # fmt: skip


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


def _unfold_index(cx: TypeContext, at: Index, t: TensorType, dim: int, size: Dim, step: int) -> Index:
    if not t.shape:
        return ()
    return (*at[:dim], at[dim] * step + at[-1], *at[dim + 1 : -1])


op("unfold", "input, dimension, size, step", torch="torch.Tensor.unfold", type=_unfold_type,
   normalize=_dim_first, lower=View(_unfold_index), alias="view")  # fmt: skip
op("as_strided", "input, size, stride, storage_offset=None", torch="torch.as_strided", alias="view",
   spellings=("torch.Tensor.as_strided",),
   type=lambda cx, x, size, stride, offset: viewed(tensor(x), sequence(size), sequence(stride)))

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


op("contiguous", "input, *, memory_format=None", torch="torch.Tensor.contiguous", type=_contiguous_type,
   expand=_contiguous_expand, alias="maybe")  # fmt: skip
op("detach", "input", torch="torch.detach", spellings=("torch.Tensor.detach",), type=same_as(0),
   expand=lambda b, x: x, alias="view")  # fmt: skip
op("alias", "input", torch="anyshape.reference.alias", type=same_as(0), expand=lambda b, x: x, alias="view")
