"""In whose memory values lie: each view's root.

In: a graph. Out: for each value the input or the result that owns its memory, as far as it may be a
view: a result that may be its argument counts as one.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.ir.graph import Graph, Node, Value
from anyshape.ops.context import TypeContext
from anyshape.ops.shared_memory import lies_in_argument
from anyshape.ops.table import OpDef


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
