"""The one loop that passes share: read nodes in order, write nodes in order, keep checks in place.

A pass subclasses nothing: it hands ``rebuild`` a function that is called for each node with its
arguments already rewritten and that returns the values standing for the node's outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anyshape.ir.graph import Arg, Check, Graph, Node, Value, map_values


@dataclass(slots=True, eq=False)
class Rebuilding:
    """The graph being written: ``emit`` appends, ``substitutes`` maps old values to new."""

    nodes: list[Node] = field(default_factory=list)
    substitutes: dict[Value, Arg] = field(default_factory=dict)

    def emit(self, node: Node) -> tuple[Value, ...]:
        self.nodes.append(node)
        return node.outputs

    def rewrite(self, arg: Arg) -> Arg:
        """The argument with values replaced by what stands for them."""
        return map_values(arg, lambda value: self.substitutes.get(value, value))

    def with_new_inputs(self, node: Node) -> Node:
        """The node over rewritten arguments; the same object where nothing changed."""
        if self.substitutes.keys().isdisjoint(node.read):
            return node
        kwargs = {name: self.rewrite(arg) for name, arg in node.kwargs.items()}
        args = tuple(self.rewrite(arg) for arg in node.args)
        return replace(node, args=args, kwargs=kwargs)


Transform = Callable[[Node, Rebuilding], tuple[Arg, ...]]


def rebuild(
    graph: Graph, transform: Transform, finish: Callable[[Rebuilding], None] | None = None
) -> Graph:
    """The graph that ``transform`` writes node by node.

    ``transform(node, out)`` gets the node over rewritten arguments, appends what it likes to
    ``out`` and returns one argument for each of the node's outputs. ``finish(out)`` may append at
    the end.
    """
    out = Rebuilding()
    written_after = [0]
    for node in graph.nodes:
        results = transform(out.with_new_inputs(node), out)
        for old, new in zip(node.outputs, results, strict=True):
            if old is not new:
                out.substitutes[old] = new
        written_after.append(len(out.nodes))
    if finish is not None:
        finish(out)
    checks = tuple(
        Check(c.condition, c.message, written_after[c.after], c.location) for c in graph.checks
    )
    outputs = tuple(out.rewrite(output) for output in graph.outputs)
    return replace(graph, nodes=tuple(out.nodes), outputs=outputs, checks=checks)
