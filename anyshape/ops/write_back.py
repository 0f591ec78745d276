"""A write to a view as a write to what it views: the column ``write_back`` of the rows of views.

In: the builder, the parent's newest value, the view's new value, the view's node and which of its
results is written. Out: the parent with the view's elements replaced. Also when a row that may copy
gives a view, and when it surely copies: the columns ``views_where`` and ``copies_where``.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyshape.ir.dtypes import bool_, int64
from anyshape.ir.graph import Arg, Node, TensorType, Value
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext, Undecided
from anyshape.ops.layout import contiguous_strides, is_contiguous, numel, view_strides
from anyshape.ops.rules import dim_of, dims_of, size_of
from anyshape.symbolic import Dim, eq, ge


class WrittenThrough(Exception):
    """A write through a view of which nobody says where in the base it goes: eager torch does."""


def reshape_is_view(cx: TypeContext, node: Node) -> bool:
    source = node.args[0]
    assert isinstance(source, Value) and isinstance(source.type, TensorType)
    made = node.outputs[0].tensor
    if made.strides != contiguous_strides(cx, made.shape):  # those of a view, when it was made
        return True
    return view_strides(cx, source.type, made.shape) is not None


def contiguous_is_view(cx: TypeContext, node: Node) -> bool:
    source = node.args[0]
    assert isinstance(source, Value) and isinstance(source.type, TensorType)
    return node.kwargs.get("memory_format") is None and is_contiguous(cx, source.type)


def reshape_is_copy(cx: TypeContext, node: Node) -> bool:
    """Is there surely no view in the other shape, unless it is empty? Dimensions that surely do not
    lie together have to be cut apart in that shape, too."""
    source, made = node.read[0].tensor, node.outputs[0].tensor
    chunks = _chunks(cx, source)
    left = list(made.shape)
    for size in (chunks or ())[:-1]:
        cut = _cut(cx, left, size)
        if cut is None:
            return False
        if not cut:
            return True
        del left[:cut]
    return False


def _chunks(cx: TypeContext, t: TensorType) -> list[Dim] | None:
    """The sizes of what lies together; None where that is not known."""
    chunks: list[Dim] = []
    outer: Dim | None = None  # the stride of the dimension before
    for size, stride in zip(t.shape, t.strides, strict=True):
        one = cx.known(eq(size, 1))
        if one is None:
            return None
        if one:
            continue
        together = False if outer is None else cx.known(eq(outer, stride * size))
        if together is None:
            return None
        if together:
            chunks[-1] = chunks[-1] * size
        else:
            chunks.append(size)
        outer = stride
    return chunks


def _cut(cx: TypeContext, shape: Sequence[Dim], size: Dim) -> int | None:
    """How many of the first dimensions have so many elements; 0 if no number of them, None if that
    is not known."""
    whole: Dim = 1
    for count, dim in enumerate(shape, 1):
        whole = whole * dim
        same = cx.known(eq(whole, size))
        if same is None:
            return None
        if same:
            return count
    return 0


def contiguous_is_copy(cx: TypeContext, node: Node) -> bool:
    """Has surely some dimension another stride than row-major, unless the tensor is empty?"""
    source = node.read[0].tensor
    if node.kwargs.get("memory_format") is not None:
        return False
    expected: Dim = 1
    for size, stride in zip(reversed(source.shape), reversed(source.strides)):
        if cx.known(eq(stride, expected)) is False and cx.known(eq(size, 1)) is False:
            return True
        expected = expected * size
    return False


def _argument(node: Node, index: int, name: str) -> Arg:
    return node.args[index] if len(node.args) > index else node.kwargs[name]


def reshaped(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return _in_shape(b, new, parent.shape)


def _in_shape(b: Builder, value: Value, shape: tuple[Dim, ...]) -> Value:
    """The elements in a shape of as many: what was written has the shape of the view, and how many
    these are may be said in two ways that are known to be equal only where guards hold."""
    try:
        made: Value = b.call("reshape", value, shape)
    except Undecided:
        kind = replace(value.tensor, shape=shape, strides=contiguous_strides(b.cx, shape))
        made = b.append("reshape", (value, shape), {}, (kind,))
    return made


def permuted(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    dims = dims_of(_argument(node, 1, "dims"), len(parent.shape))
    return b.call("permute", new, tuple(dims.index(i) for i in range(len(dims))))


def transposed(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    order = list(range(len(parent.shape)))
    a, c = (dim_of(d, len(order)) for d in node.args[1:3])
    if order:
        order[a], order[c] = order[c], order[a]
    return b.call("permute", new, tuple(order))


def turned(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    """T, t and mT undo themselves."""
    return b.call(node.op, new)


def moved(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return b.call("movedim", new, _argument(node, 2, "destination"), _argument(node, 1, "source"))


def expanded(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    """Eager writes through an expanded view only where it repeats nothing."""
    lead = len(new.shape) - len(parent.shape)
    if not all(map(b.cx.same, (*(1,) * lead, *parent.shape), new.shape)):
        raise WrittenThrough("a write through expand cannot be undone")
    return b.call("reshape", new, parent.shape) if lead else new


def by_positions(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    """The same view of the elements' numbers says where each element goes."""
    count = numel(parent.shape)
    numbers = b.call("arange", count, 0, 1, int64, parent.tensor.device)
    positions = b.call(
        node.op, b.call("reshape", numbers, parent.shape), *node.args[1:], **node.kwargs
    )
    if isinstance(positions, tuple):
        positions = positions[position]
    flat = (numel(new.shape),)
    whole, part = b.call("reshape", parent, (count,)), b.call("reshape", new, flat)
    made = b.call("index_put", whole, (_in_shape(b, positions, flat),), part, False)
    return b.call("reshape", made, parent.shape)


def unfolded(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    size, step = node.args[2:4]
    if not b.cx.known(ge(size_of(step), size_of(size))):
        raise WrittenThrough("a write through windows that overlap cannot be undone")
    return by_positions(b, parent, new, node, position)


def strided(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    """Positions in memory, where no element is written twice."""
    size, stride = node.args[1:3]
    assert isinstance(size, tuple) and isinstance(stride, tuple)
    reach: Dim = 1
    for count, step in zip(map(size_of, reversed(size)), map(size_of, reversed(stride))):
        if count == 1:
            continue
        if not b.cx.known(ge(step, reach)):
            raise WrittenThrough("a write to positions that may overlap cannot be undone")
        reach = reach + step * (count - 1)
    return by_positions(b, parent, new, node, position)


def selected(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return b.call("select_written", parent, new, *node.args[1:3])


def sliced(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    _, dim, start, length, step = node.args
    assert isinstance(dim, int)
    if start == 0 and step == 1 and length == parent.shape[dim]:
        return new
    return b.call("slice_written", parent, new, dim, start, length, step)


def narrowed(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    _, dim, start, length = node.args
    return b.call("slice_written", parent, new, dim, start, length, 1)


def split(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    """split and chunk: one output is one slice of the parent."""
    dim = dim_of(_argument(node, 2, "dim"), len(parent.shape))
    start: Dim = 0
    for earlier in node.outputs[:position]:
        start = start + earlier.shape[dim]
    length = node.outputs[position].shape[dim]
    return b.call("slice_written", parent, new, dim, start, length, 1)


def unbound(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return b.call("select_written", parent, new, _argument(node, 1, "dim"), position)


def as_real(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return b.call("view_as_complex", b.call("clone", new, memory_format="contiguous_format"))


def as_complex(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return b.call("view_as_real", new)


def as_dtype(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    """A bool that is made keeps of its byte whether it is 0; what lies in memory keeps it all."""
    if parent.dtype != new.dtype and bool_ in (parent.dtype, new.dtype):
        raise WrittenThrough("a write to the bytes of bools cannot be undone")
    dense = b.call("clone", new, memory_format="contiguous_format")
    return b.call("view_dtype", dense, parent.dtype)


def same(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return new
