"""In whose memory values lie: each view's root.

In: a graph. Out: for each value the input or the result that owns its memory, as far as it may be a
view: a result that may be its argument counts as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from anyshape.ir.graph import Arg, Graph, Node, Value
from anyshape.ops.context import TypeContext
from anyshape.ops.shared_memory import SLICES, SPLITS, lies_in_argument
from anyshape.ops.table import OpDef
from anyshape.symbolic import Dim, Expr, Facts, le


def roots(graph: Graph, ops: Mapping[str, OpDef]) -> dict[Value, Value]:
    """The owner of each value's memory; a value that is not listed owns its own."""
    cx = TypeContext(graph.space, graph.facts.fork(), graph.hints)
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        if views(cx, node, ops):
            source = next(node.inputs())
            root = found.get(source, source)
            found.update(dict.fromkeys(node.outputs, root))
    return found


def roots_at_some_sizes(graph: Graph, ops: Mapping[str, OpDef]) -> dict[Value, Value]:
    """The same where each operator that gives a view at some sizes alone does so."""
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        row = ops.get(node.op)
        if row is not None and node.read and (row.mutates or row.alias != "none"):
            source = node.read[0]
            found.update(dict.fromkeys(node.outputs, found.get(source, source)))
    return found


def views(cx: TypeContext, node: Node, ops: Mapping[str, OpDef]) -> bool:
    """Whether the results may lie in the memory of the first argument, which may be written."""
    row = ops.get(node.op)
    if row is None or next(node.inputs(), None) is None:
        return False
    if row.mutates:
        return True
    if row.alias == "maybe" and row.views_where is None:
        return True
    return lies_in_argument(cx, node, row)


Cut: TypeAlias = "Node | tuple[Value, Arg]"
"""A split, or the dimension of a value along which slices are taken."""
Pieces: TypeAlias = "Mapping[Cut, tuple[Dim, Dim]]"
"""Of each cut that a view comes from, where its piece begins and ends."""


def pieces(graph: Graph, ops: Mapping[str, OpDef]) -> dict[Value, Pieces]:
    """For each view of a piece of something, the cuts behind it."""
    cx = TypeContext(graph.space, graph.facts.fork(), graph.hints)
    found: dict[Value, Pieces] = {}
    for node in graph.nodes:
        row = ops.get(node.op)
        if row is None or row.mutates or not views(cx, node, ops):
            continue
        behind = found.get(next(node.inputs()), {})
        for number, value in enumerate(node.outputs):
            found[value] = {**behind, **_cut(node, number)}
    return found


def _cut(node: Node, number: int) -> Pieces:
    if node.op in SPLITS:
        return {node: (number, number + 1)}
    if node.op not in SLICES:
        return {}
    source, dim, *given = node.args
    numbers = [n for n in given if isinstance(n, (int, Expr))]
    if not isinstance(source, Value) or len(numbers) < len(given):
        return {}
    start, length, step = (*numbers, 1, 1)[:3]
    return {(source, dim): (start, start + (length - 1) * step + 1)}


def are_disjoint(facts: Facts, one: Pieces, other: Pieces) -> bool:
    """Are these two views pieces of one cut that do not overlap?"""
    pairs = [(one[cut], other[cut]) for cut in one if cut in other]
    return any(
        facts.decide(le(end, next_start)) or facts.decide(le(next_end, start))
        for (start, end), (next_start, next_end) in pairs
    )
