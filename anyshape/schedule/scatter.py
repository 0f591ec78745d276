"""Functional writes at places that data decides: a copy of the operand, then writes in order.

In: a node of scatter, scatter_reduce, index_add or index_put. Out: for each element of its source,
the place in the result and how the element is combined with what is there. Later writes win, as
they do in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyshape.ir.graph import Arg, Node, Value
from anyshape.ops.rules import dim_of
from anyshape.schedule.draft import Cell, computed
from anyshape.schedule.indices import Index, broadcast_index
from anyshape.schedule.lower import Lowering, number, places_of
from anyshape.symbolic import Dim, broadcast

Mode = Literal["set", "sum", "prod", "max", "min"]

REDUCES: dict[Arg, Mode] = {
    None: "set",
    "add": "sum",
    "multiply": "prod",
    "sum": "sum",
    "prod": "prod",
    "amax": "max",
    "amin": "min",
}


@dataclass(frozen=True, slots=True)
class Write:
    """One write: the element, where it goes, whether, and how."""

    cell: Cell
    index: Index
    mode: Mode
    mask: Cell | None = None


def is_scatter(node: Node) -> bool:
    """Can the node be done as writes in order? (Averages and ``include_self=False`` cannot.)"""
    match node.op:
        case "scatter":
            return node.kwargs.get("reduce") in REDUCES
        case "scatter_reduce":
            return node.args[4] in REDUCES and bool(node.kwargs.get("include_self", True))
        case "index_add" | "index_put":
            return True
    return False


def update_shape(node: Node) -> tuple[Dim, ...]:
    """The shape of the loops over the writes."""
    result = node.output
    match node.op:
        case "scatter" | "scatter_reduce":
            index = node.args[2]
            assert isinstance(index, Value)
            return index.shape
        case "index_add":
            source = node.args[3]
            assert isinstance(source, Value)
            return source.shape
    return _put_shape(result, node)


def _put_shape(result: Value, node: Node) -> tuple[Dim, ...]:
    """The shape that ``result[indices]`` has."""
    places = node.args[1]
    assert isinstance(places, tuple)
    padded = (*places, *(None,) * (len(result.shape) - len(places)))
    used = [d for d, place in enumerate(padded) if place is not None]
    rank = max(len(p.shape) for p in places if isinstance(p, Value))
    shared = _widest([p for p in places if isinstance(p, Value)], rank)
    adjacent = used == list(range(used[0], used[-1] + 1))
    first = used[0] if adjacent else 0
    rest = [size for d, size in enumerate(result.shape) if d not in used]
    return (*rest[:first], *shared, *rest[first:])


def _widest(places: list[Value], rank: int) -> tuple[Dim, ...]:
    """The broadcast shape of the index tensors."""
    shape: list[Dim] = [1] * rank
    for place in places:
        for d, size in enumerate(place.shape, rank - len(place.shape)):
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
    match node.op:
        case "scatter":
            mode = REDUCES[node.kwargs.get("reduce")]
            return _along_dim(lowering, node, index, mode)
        case "scatter_reduce":
            return _along_dim(lowering, node, index, REDUCES[node.args[4]])
        case "index_add":
            return _index_add(lowering, node, index)
    return _put(lowering, node, index)


def _along_dim(lowering: Lowering, node: Node, index: Index, mode: Mode) -> Write:
    dim, places, source = node.args[1:4]
    cell = _source(lowering, node, source, index)
    if not index:
        return Write(cell, (), mode)
    axis = dim_of(dim, len(index))
    at = lowering.integer(places, index)
    return Write(cell, (*index[:axis], at, *index[axis + 1 :]), mode)


def _source(lowering: Lowering, node: Node, source: Arg, index: Index) -> Cell:
    dtype = computed(node.output.dtype)
    if isinstance(source, Value) and hasattr(source.type, "shape"):
        return lowering.draft.cast(lowering.read(source, index), dtype)
    return lowering.draft.literal(number(lowering, source, dtype), dtype)


def _index_add(lowering: Lowering, node: Node, index: Index) -> Write:
    dim, places, source = node.args[1:4]
    assert isinstance(source, Value) and isinstance(places, Value)
    draft, dtype = lowering.draft, computed(node.output.dtype)
    cell = draft.cast(lowering.read(source, index), dtype)
    alpha = node.kwargs.get("alpha", 1)
    if alpha != 1:
        cell = draft.op("mul", cell, draft.literal(number(lowering, alpha, dtype), dtype))
    if not index:
        return Write(cell, (), "sum")
    axis = dim_of(dim, len(index))
    at = lowering.integer(places, (index[axis],) if places.shape else ())
    return Write(cell, (*index[:axis], at, *index[axis + 1 :]), "sum")


def _put(lowering: Lowering, node: Node, index: Index) -> Write:
    _, places, values, *rest = node.args
    assert isinstance(places, tuple) and isinstance(values, Value)
    result, sizes = node.output, lowering.sizes
    shape = sizes.shape(_put_shape(result, node))
    own = broadcast_index(sizes, index, shape, sizes.shape(values.shape))
    cell = lowering.draft.cast(lowering.read(values, own), computed(result.dtype))
    accumulate = rest[0] if rest else node.kwargs.get("accumulate", False)
    return Write(cell, places_of(lowering, result, places, index), "sum" if accumulate else "set")
