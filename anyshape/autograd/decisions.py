"""Nodes whose result the last bit of what they read decides: they are computed once.

    %m = amax(%y, ...); %best = eq(%y, %m)      where %y is computed again, nowhere true

One kernel computes a vector of cosines, another one at a time: what is computed again may differ in
its last bit. So masks that compare two tensors of floats, and whole numbers made of floats, are
kept, not computed again, and so is what those read in the backward part of one graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyshape.ir.graph import Node, Value
from anyshape.ops.gradients.decisions import decides


def in_front_of_decisions(nodes: Sequence[Node]) -> frozenset[Node]:
    """Those among the nodes that decide, and what they read of the others."""
    wanted: set[Value] = set()
    found: set[Node] = set()
    for node in reversed(nodes):
        if decides(node) or not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs())
            found.add(node)
    return frozenset(found)
