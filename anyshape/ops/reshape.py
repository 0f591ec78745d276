"""reshape, view and their forms: the same elements in row-major order under another shape.

``view`` must keep memory, ``reshape`` may copy; which it is where that depends on sizes is the
layout module's to tell. The index map works group by group: dims of both shapes, last first, in the
smallest groups with equal products, so that indices stay polynomials wherever they can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import write_back
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.layout import Shape, contiguous_strides, numel, view_strides
from anyshape.ops.rules import dim_of, tensor
from anyshape.ops.table import OneByOne, View, op
from anyshape.ops.view import Index, Normal, sequence, viewed
from anyshape.symbolic import Dim, Expr, eq, floordiv, mod, ne


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
        return (
            cx.facts.simplify(floordiv(count, known)) if isinstance(count, Expr) else count // known
        )
    cx.require(ne(known, 0), "cannot reshape: the unspecified dimension is ambiguous")
    divided = divide_product(count, known)
    if divided is not None:
        return divided
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
    if 0 in t.shape:  # strides count it as 1
        return 0
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
    if strides is None:  # it must be a view, if only because a size is 1
        strides = view_strides(cx, t, shape, decide=True, ones=True)
    if strides is None and cx.on_guard is None:  # what passes make lies otherwise than in eager
        strides = contiguous_strides(cx, shape)
    if strides is None:
        raise OpError("view size is not compatible with input tensor's size and stride")
    return viewed(t, shape, strides)


def _is_dtype(size: Arg) -> bool:
    """``x.view(torch.int32)``, where a size is expected."""
    return any(isinstance(part, DType) for part in sequence(size))


def linear(at: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """The row-major number of the element at an index."""
    position: Dim = 0
    for i, size in zip(at, shape, strict=True):
        position = position * size + i
    return position


def delinear(position: Dim, shape: Sequence[Dim]) -> Index:
    """The index of the element with a row-major number."""
    index: list[Dim] = []
    for size in reversed(shape[1:]):
        index.append(mod(position, size))
        position = floordiv(position, size)
    return (position, *reversed(index)) if shape else ()


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
        position = linear([at[i] for i in theirs], [shape[i] for i in theirs])
        sizes = [t.shape[i] for i in mine]
        index.update(zip(mine, delinear(position, sizes), strict=True))
    return tuple(0 if t.shape[i] == 1 else index[i] for i in range(t.rank))


op(
    "reshape",
    "input, shape",
    torch="torch.reshape",
    one_by_one=OneByOne(1, "method"),
    type=_reshape_type,
    lower=View(_reshape_index),
    normalize=_normal_reshape,
    alias="maybe",
    views_where=write_back.reshape_is_view,
    copies_where=write_back.reshape_is_copy,
    new_view=True,
    write_back=write_back.reshaped,
    keeps_elements=True,
)
op(
    "view",
    "input, size",
    by_layout=True,
    torch="torch.Tensor.view",
    one_by_one=OneByOne(1, "method"),
    type=_view_type,
    overload=lambda x, size: "view_dtype" if _is_dtype(size) else None,
    normalize=_normal_reshape,
    expand=lambda b, x, shape: b.reshape(x, shape),
    alias="view",
    write_back=write_back.reshaped,
    keeps_elements=True,
)


def _view_dtype_type(cx: TypeContext, x: Any, dtype: DType) -> TensorType:
    """The same bytes under another dtype; where its size differs, the last dimension's elements
    are taken apart or put together."""
    t = tensor(x)
    old, new = t.dtype.size_bytes, dtype.size_bytes
    shape, strides = t.shape, t.strides
    if old != new:
        if not shape:
            raise OpError("self.dim() cannot be 0 to view as a dtype of another size")
        cx.require(eq(strides[-1], 1), "self.stride(-1) must be 1 to view as another dtype")
    if old > new:
        shape = (*shape[:-1], shape[-1] * (old // new))
        strides = (*(s * (old // new) for s in strides[:-1]), 1)
    elif old < new:
        each = new // old
        for size in (shape[-1], *strides[:-1]):
            cx.require(eq(mod(size, each), 0), f"sizes and strides must be divisible by {each}")
        shape = (*shape[:-1], cx.facts.simplify(floordiv(shape[-1], each)))
        strides = (*(cx.facts.simplify(floordiv(s, each)) for s in strides[:-1]), 1)
    return TensorType(dtype, t.device, shape, strides)


op(
    "view_dtype",
    "input, dtype",
    by_layout=True,
    torch="anyshape.eager.view_dtype",
    normalize=lambda cx, x, dtype: ((x, sequence(dtype)[0]), {}),
    type=_view_dtype_type,
    alias="view",
    write_back=write_back.as_dtype,
    differentiable=False,
)
op(
    "reshape_as",
    "input, other",
    torch="torch.Tensor.reshape_as",
    alias="maybe",
    inline=True,  # a node that read `other` would say that gradients go there
    expand=lambda b, x, y: b.reshape(x, y.shape),
)
op(
    "view_as",
    "input, other",
    by_layout=True,
    torch="torch.Tensor.view_as",
    alias="view",
    inline=True,
    expand=lambda b, x, y: b.view(x, y.shape),
)


def _flat_shape(shape: Shape, start: Arg, end: Arg) -> Shape:
    if not shape:
        return (1,)
    i, j = dim_of(start, len(shape)), dim_of(end, len(shape))
    if i > j:
        raise OpError("flatten() has invalid args: start_dim cannot come after end_dim")
    return shape if i == j else (*shape[:i], numel(shape[i : j + 1]), *shape[j + 1 :])


def _flatten_row(x: Any, start: Arg, end: Arg) -> str | None:
    """One dimension is flat already; of no dimension there are two names."""
    rank = tensor(x).rank
    first, last = dim_of(start, rank or 1), dim_of(end, rank or 1)
    return "flat" if rank and first == last else None


op(
    "flat",
    "input, start_dim=0, end_dim=-1",
    by_layout=True,
    torch="torch.ops.aten.flatten.using_ints",
    alias="view",
    inline=True,
    expand=lambda b, x, i, j: x,
)
op(
    "flatten",
    "input, start_dim=0, end_dim=-1",
    torch="torch.flatten",
    alias="maybe",
    views_where=write_back.reshape_is_view,
    copies_where=write_back.reshape_is_copy,
    new_view=True,
    write_back=write_back.reshaped,
    spellings=("torch.Tensor.flatten",),
    overload=_flatten_row,
    type=lambda cx, x, i, j: _reshape_type(cx, x, _flat_shape(tensor(x).shape, i, j)),
    expand=lambda b, x, i, j: b.reshape(x, _flat_shape(x.shape, i, j)),
    keeps_elements=True,
)


def _ravel_type(cx: TypeContext, x: Any) -> TensorType:
    """One element is a view, with the stride of its last dimension; what else is one has rows."""
    t = tensor(x)
    is_one = bool(t.shape) and all(size.__class__ is int and size == 1 for size in t.shape)
    return viewed(t, _flat_shape(t.shape, 0, -1), t.strides[-1:] if is_one else (1,))


op(
    "ravel",
    "input",
    torch="torch.ravel",
    alias="maybe",
    views_where=write_back.contiguous_is_view,
    copies_where=write_back.contiguous_is_copy,
    new_view=True,
    write_back=write_back.reshaped,
    spellings=("torch.Tensor.ravel",),
    type=_ravel_type,
    expand=lambda b, x: b.reshape(b.contiguous(x), _flat_shape(x.shape, 0, -1)),
    keeps_elements=True,
)


def _normal_unflatten(cx: TypeContext, x: Any, dim: Arg, sizes: Arg) -> Normal:
    t = tensor(x)
    d = dim_of(dim, t.rank)
    if not t.shape:
        raise OpError("unflatten: a tensor without dimensions has none to take apart")
    resolved = resolve_shape(cx, t.shape[d], sizes)
    cx.require(
        eq(numel(resolved), t.shape[d]), f"unflatten: sizes {sizes} don't multiply up to the size"
    )
    return (x, d, resolved), {}


def _unflat_shape(shape: Shape, dim: int, sizes: Shape) -> Shape:
    return (*shape[:dim], *sizes, *shape[dim + 1 :])


op(
    "unflatten",
    "input, dim, sizes",
    torch="torch.unflatten",
    spellings=("torch.Tensor.unflatten",),
    normalize=_normal_unflatten,
    alias="view",
    write_back=write_back.reshaped,
    type=lambda cx, x, d, sizes: _view_type(cx, x, _unflat_shape(tensor(x).shape, d, sizes)),
    expand=lambda b, x, d, sizes: b.reshape(x, _unflat_shape(x.shape, d, sizes)),
    keeps_elements=True,
)
