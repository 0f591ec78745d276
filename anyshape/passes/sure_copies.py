"""Values that surely are copies, of those that eager makes as views or as copies by their layout.

    %t = transpose(%x, 0, 1); %f = flatten(%t)

``%f`` is a copy if both sizes are known not to be 1, unless it has no elements: what is empty is a
view in any shape. In: a captured graph. Out: such values among those that outputs are made of by
views. Where in memory the elements of an argument's view are is known whatever strides dimensions
of one element have; of what operators make it is not, and nothing is said of that.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.ir.graph import Graph, Node, Value, values_in
from anyshape.ops.context import TypeContext
from anyshape.ops.table import OpDef


def sure_copies(graph: Graph, ops: Mapping[str, OpDef]) -> frozenset[Value]:
    """They are row-major, if they are not empty."""
    nodes = leading_to_outputs(graph, ops)
    if not any(ops[node.op].copies_where is not None for node in nodes):
        return frozenset()
    cx = TypeContext(graph.space, graph.facts.fork(), graph.hints)
    known = {entry.value for entry in graph.inputs}  # where their elements are
    found: set[Value] = set()
    for node in nodes:
        row = ops[node.op]
        if node.read[0] not in known:
            continue
        if row.alias == "view":
            known.update(node.outputs)
        elif row.copies_where is not None and row.copies_where(cx, node):
            known.add(node.output)
            found.add(node.output)
    return frozenset(found)


def leading_to_outputs(graph: Graph, ops: Mapping[str, OpDef]) -> list[Node]:
    """The views, and the copies and writes that may be views, which outputs are made by alone."""
    wanted = set(values_in(graph.outputs))
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        row = ops.get(node.op)
        if row is None or not node.read or wanted.isdisjoint(node.outputs):
            continue
        if row.alias == "view" or row.views_where is not None or row.mutates:
            nodes.append(node)
            wanted.add(node.read[0])
    return nodes[::-1]
