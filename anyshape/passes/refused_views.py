"""Views that eager refuses where an argument has a stride of its own in a dimension of one element.

    %y = conv2d(%x, %w); %v = view(%y, (-1, 4))

An image of one pixel may lie as one whose channels are innermost; then so does ``%y``, which has no
such view. Types have strides as if every size were above 1, and say nothing of that. In: a captured
graph. Out: graphs that make such views, from values that lie as their types say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anyshape.ir.graph import Graph, Value
from anyshape.nouns import replace
from anyshape.ops.row_major_results import DECIDED_BY_ONES
from anyshape.ops.table import OpDef
from anyshape.passes.ambiguous_layouts import ambiguous_layouts


def refused_views(graph: Graph, ops: Mapping[str, OpDef]) -> tuple[Graph, ...]:
    """Nothing where there are no such views, or where data or regions decide how they lie."""
    made = tuple(_views(graph, ops))
    if not made:
        return ()
    _, odd, lines = ambiguous_layouts(replace(graph, outputs=made), ops)
    return tuple([found.graph for found in (odd, lines) if found is not None])


def _views(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Value]:
    """Those of values whose dimensions of several elements may lie in another order for the stride
    of one of a single element; other operators keep the order of such dimensions. ``kron`` views
    what it has multiplied."""
    turned: set[Value] = set()
    for node in graph.nodes:
        row = ops.get(node.op)
        if node.op in DECIDED_BY_ONES or (row is not None and row.image_order is not None):
            turned.update(node.outputs)
        elif turned and not turned.isdisjoint(node.inputs()):
            turned.update(node.outputs)
        if node.op == "kron" or (node.op == "view" and node.output in turned):
            yield node.output
