"""A write to a view as a write to what it views: the column ``write_back`` of the rows of views.

In: the builder, the parent's newest value, the view's new value, the view's node and which of its
results is written. Out: the parent with the view's elements replaced. Also when a row that may copy
gives a view: the column ``views_where``.
"""

from __future__ import annotations

from dataclasses import replace

from anyshape.ir.dtypes import int64
from anyshape.ir.graph import Arg, Node, TensorType, Value
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext, Undecided
from anyshape.ops.layout import contiguous_strides, is_contiguous, numel, view_strides
from anyshape.ops.rules import dim_of, dims_of, size_of
from anyshape.symbolic import Dim, ge


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


def _argument(node: Node, index: int, name: str) -> Arg:
    return node.args[index] if len(node.args) > index else node.kwargs[name]


def reshaped(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    try:
        made: Value = b.call("reshape", new, parent.shape)
    except Undecided:  # which has as many elements: the other way round it was required
        strides = contiguous_strides(b.cx, parent.shape)
        kind = replace(new.tensor, shape=parent.shape, strides=strides)
        made = b.append("reshape", (new, parent.shape), {}, (kind,))
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
    made = b.call("index_put", whole, (b.call("reshape", positions, flat),), part, False)
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
    dense = b.call("clone", new, memory_format="contiguous_format")
    return b.call("view_dtype", dense, parent.dtype)


def same(b: Builder, parent: Value, new: Value, node: Node, position: int) -> Value:
    return new
