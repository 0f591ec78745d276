"""Outputs that begin in the middle of a storage at some sizes, and are copies at others.

    %y = mul(%x, 2); %d = diagonal(%y, 1); %c = contiguous(%d)

``%c`` is ``%d`` itself, one element after the beginning of ``%y``, where ``%d`` has one element; a
returned tensor shows that. In: a captured graph. Out: the graph that makes those outputs, by
views of values that have a storage of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from anyshape.ir.graph import Graph, Node, Value, map_values, values_in
from anyshape.ir.parts import part_of
from anyshape.nouns import frozen, replace
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.parts import begins_at
from anyshape.ops.shared_memory import lies_in_argument
from anyshape.ops.table import OpDef
from anyshape.passes.sure_copies import leading_to_outputs
from anyshape.symbolic import Dim


@frozen(eq=False)
class AmbiguousOffsets:
    """``graph`` has the inputs of the program, then values that it makes, and some of its outputs.
    ``outputs`` are their positions; ``moved`` those that begin elsewhere at some sizes, ``lent``
    those that may be views of an argument where that is empty. ``where_empty``: nothing of this is
    so unless one of them is empty."""

    graph: Graph
    outputs: tuple[int, ...]
    moved: frozenset[int]
    lent: frozenset[int]
    where_empty: bool


@frozen
class _Offset:
    """Where a value begins in the storage of what it views at last, the ``root``, if every copy is
    a view; None where nobody says. ``unsure``: there are such copies; ``full``: some of which may
    be views of what is not empty."""

    begins: Dim | None
    root: Value
    unsure: bool = False
    full: bool = False


def ambiguous_offsets(
    graph: Graph,
    ops: Mapping[str, OpDef],
    seen: Set[int] = frozenset(),
    copied: Set[Value] = frozenset(),
) -> AmbiguousOffsets | None:
    """None where there are none. ``seen`` are outputs of which only sizes tell whether eager calls
    them views, ``copied`` the copies that are none unless they are empty."""
    nodes = leading_to_outputs(graph, ops)
    if not any(ops[node.op].views_where is not None for node in nodes):
        return None
    offsets = _offsets(graph, nodes, ops, copied)
    unsure = {
        position: offsets[output]
        for position, output in enumerate(graph.outputs)
        if isinstance(output, Value) and output in offsets and offsets[output].unsure
    }
    given = {entry.value for entry in graph.inputs if entry.kind == "argument"}
    moved = frozenset(position for position, offset in unsure.items() if offset.begins != 0)
    lent = frozenset(position for position, offset in unsure.items() if offset.root in given)
    wanted = moved | lent | seen
    positions = tuple(position for position in unsure if position in wanted)
    if not positions:
        return None
    where_empty = seen.isdisjoint(positions) and not any(unsure[p].full for p in positions)
    part = part_leading_to(graph, ops, positions, views)
    return AmbiguousOffsets(part, positions, moved, lent, where_empty)


def _offsets(
    graph: Graph, nodes: Sequence[Node], ops: Mapping[str, OpDef], copied: Set[Value]
) -> dict[Value, _Offset]:
    cx = Builder(TypeContext(graph.space, graph.facts.fork(), graph.hints), ops).cx
    found: dict[Value, _Offset] = {}
    for node in nodes:
        row, source = ops[node.op], node.read[0]
        before = found.get(source, _Offset(0, source))
        copies = row.views_where is not None and not lies_in_argument(cx, node, row)
        unsure = before.unsure or copies
        full = before.full or (copies and copied.isdisjoint(node.outputs))
        for position, output in enumerate(node.outputs):
            after = begins_at(cx, row, node, position)
            if before.begins is None or after is None:
                found[output] = _Offset(None, before.root, unsure, full)
            else:
                begins = cx.facts.simplify(before.begins + after)
                found[output] = _Offset(begins, before.root, unsure, full)
    return found


def views(row: OpDef) -> bool:
    """Does it view its argument, always or at some sizes?"""
    return row.alias == "view" or row.views_where is not None


def part_leading_to(
    graph: Graph,
    ops: Mapping[str, OpDef],
    positions: Sequence[int],
    is_kept: Callable[[OpDef], bool],
) -> Graph:
    """The nodes, of rows that are kept, on the way to the outputs at these positions."""
    written = {n.output: n.read[0] for n in graph.nodes if n.op in ops and ops[n.op].mutates}

    def unwritten(value: Value) -> Value:
        while value in written:
            value = written[value]
        return value

    outputs = tuple(map_values(graph.outputs[position], unwritten) for position in positions)
    wanted = set(values_in(outputs))
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if wanted.isdisjoint(node.outputs) or not is_kept(ops[node.op]):
            continue
        node = replace(node, args=tuple(map_values(arg, unwritten) for arg in node.args))
        nodes.append(node)
        wanted.update(node.inputs())
    return part_of(graph, nodes[::-1], outputs)
