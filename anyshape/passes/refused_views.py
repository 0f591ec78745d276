"""Views that eager refuses where an argument has a stride of its own in a dimension of one element.

    %y = conv2d(%x, %w); %v = view(%y, (-1, 4))

An image of one pixel may lie as one whose channels are innermost; then so does ``%y``, which has no
such view. Types have strides as if every size were above 1, and say nothing of that. In: a captured
graph. Out: graphs that make such views, from values that lie as their types say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anyshape.ir.graph import Graph
from anyshape.ops.table import OpDef
from anyshape.passes.ambiguous_layouts import ambiguous_layouts

VIEWS = frozenset({"view", "view_as", "kron"})
"""Operators that eager refuses for strides; ``kron`` views what it has multiplied."""


def refused_views(graph: Graph, ops: Mapping[str, OpDef]) -> tuple[Graph, ...]:
    """Nothing where there are no such views, or where data or regions decide how they lie."""
    made = tuple([node.output for node in graph.nodes if node.op in VIEWS])
    if not made:
        return ()
    _, odd, lines = ambiguous_layouts(replace(graph, outputs=made), ops)
    return tuple([found.graph for found in (odd, lines) if found is not None])
