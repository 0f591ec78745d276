"""Functional writes at positions that data decides: a copy of the operand, then writes in order.

In: a node of scatter, scatter_reduce, index_add or index_put. Out: for each element of its source,
the position in the result and how the element is combined with what is there. Later writes win, as
they do in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyshape.ir.graph import Arg, Node, Value
from anyshape.nouns import frozen
from anyshape.ops.rules import dim_of
from anyshape.ops.table import OpDef, Scatter, WriteMode
from anyshape.schedule.draft import Cell, computed
from anyshape.schedule.indices import Index, broadcast_index
from anyshape.schedule.lower import Lowering, number, positions_of
from anyshape.symbolic import Dim, broadcast


@frozen
class Write:
    """One write: the element, where it goes, whether, and how."""

    cell: Cell
    index: Index
    mode: WriteMode
    mask: Cell | None = None


def write_mode(row: OpDef, node: Node) -> WriteMode | None:
    """How the node's writes are combined with what is there; None where it is not done as writes
    in order."""
    return row.lower.mode(node) if isinstance(row.lower, Scatter) else None


def update_shape(row: OpDef, node: Node) -> tuple[Dim, ...]:
    """The shape of the loops over the writes."""
    assert isinstance(row.lower, Scatter)
    match row.lower.targets:
        case "elements":
            looped = node.args[2]
        case "rows":
            looped = node.args[3]
        case "indices":
            return _put_shape(node.output, node)
    assert isinstance(looped, Value)
    return looped.shape


def _put_shape(result: Value, node: Node) -> tuple[Dim, ...]:
    """The shape that ``result[indices]`` has."""
    positions = node.args[1]
    assert isinstance(positions, tuple)
    padded = (*positions, *(None,) * (len(result.shape) - len(positions)))
    used = [d for d, position in enumerate(padded) if position is not None]
    rank = max(len(p.shape) for p in positions if isinstance(p, Value))
    shared = _widest([p for p in positions if isinstance(p, Value)], rank)
    adjacent = used == list(range(used[0], used[-1] + 1))
    first = used[0] if adjacent else 0
    rest = [size for d, size in enumerate(result.shape) if d not in used]
    return (*rest[:first], *shared, *rest[first:])


def _widest(positions: list[Value], rank: int) -> tuple[Dim, ...]:
    """The broadcast shape of the index tensors."""
    shape: list[Dim] = [1] * rank
    for position in positions:
        for d, size in enumerate(position.shape, rank - len(position.shape)):
            shape[d] = broadcast(shape[d], size)
    return tuple(shape)


def copied(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The element that the result starts from."""
    base = node.args[0]
    assert isinstance(base, Value)
    return lowering.read(base, index)


def updated(lowering: Lowering, node: Node, index: Index) -> Cell:
    """The element written in one turn of the loops."""
    return write_of(lowering, node, index).cell


def write_of(lowering: Lowering, node: Node, index: Index) -> Write:
    """The write that one turn of the loops does."""
    row = lowering.ops[node.op].lower
    assert isinstance(row, Scatter)
    mode = row.mode(node)
    assert mode is not None
    return WRITES[row.targets](lowering, node, index, mode)


def _elements(lowering: Lowering, node: Node, index: Index, mode: WriteMode) -> Write:
    dim, positions, source = node.args[1:4]
    cell = _source(lowering, node, source, index)
    if not index:
        return Write(cell, (), mode)
    axis = dim_of(dim, len(index))
    at = lowering.integer(positions, index)
    return Write(cell, (*index[:axis], at, *index[axis + 1 :]), mode)


def _source(lowering: Lowering, node: Node, source: Arg, index: Index) -> Cell:
    dtype = computed(node.output.dtype)
    if isinstance(source, Value) and hasattr(source.type, "shape"):
        return lowering.draft.cast(lowering.read(source, index), dtype)
    return lowering.draft.literal(number(lowering, source, dtype), dtype)


def _rows(lowering: Lowering, node: Node, index: Index, mode: WriteMode) -> Write:
    dim, positions, source = node.args[1:4]
    assert isinstance(source, Value) and isinstance(positions, Value)
    draft, dtype = lowering.draft, computed(node.output.dtype)
    cell = draft.cast(lowering.read(source, index), dtype)
    alpha = node.kwargs.get("alpha", 1)
    if alpha != 1:
        cell = draft.op("mul", cell, draft.literal(number(lowering, alpha, dtype), dtype))
    if not index:
        return Write(cell, (), mode)
    axis = dim_of(dim, len(index))
    at = lowering.integer(positions, (index[axis],) if positions.shape else ())
    return Write(cell, (*index[:axis], at, *index[axis + 1 :]), mode)


def _put(lowering: Lowering, node: Node, index: Index, mode: WriteMode) -> Write:
    _, positions, values = node.args[:3]
    assert isinstance(positions, tuple) and isinstance(values, Value)
    result, sizes = node.output, lowering.sizes
    shape = sizes.shape(_put_shape(result, node))
    own = broadcast_index(sizes, index, shape, sizes.shape(values.shape))
    cell = lowering.draft.cast(lowering.read(values, own), computed(result.dtype))
    return Write(cell, positions_of(lowering, result, positions, index), mode)


WRITES: Mapping[str, Callable[[Lowering, Node, Index, WriteMode], Write]] = {
    "elements": _elements,
    "rows": _rows,
    "indices": _put,
}
