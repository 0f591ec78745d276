"""The one loop that passes share: read nodes in order, write nodes in order.

A pass subclasses nothing: it hands ``rebuild`` a function that is called for each node with its
arguments already rewritten and that returns the values standing for the node's outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from anyshape.ir.established import Established, established
from anyshape.ir.graph import Arg, Graph, Node, Value, map_values
from anyshape.nouns import mutable, replace
from anyshape.ops.context import TypeContext
from anyshape.symbolic import Facts


@mutable(eq=False)
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


@mutable(eq=False)
class Reader:
    """Reads a graph node by node: ``cx`` knows of sizes what has been tested where it stands,
    ``whole`` what is tested anywhere: in whose memory a value lies, capture has asked by all that,
    and a call in which a later test fails has not written anything."""

    cx: TypeContext
    whole: TypeContext
    established: Established
    facts: Facts

    @classmethod
    def of(cls, graph: Graph) -> Reader:
        """In front of the first node."""
        known = established(graph)
        facts = known.at(0)
        here = TypeContext(graph.space, facts.fork(), graph.hints)
        if facts is graph.facts:  # nothing is tested on the way
            return cls(here, here, known, facts)
        return cls(here, TypeContext(graph.space, graph.facts.fork(), graph.hints), known, facts)

    def stand_at(self, position: int) -> None:
        """In front of this node; what rules have learned of sizes of their own stays known."""
        facts = self.established.at(position)
        if facts is not self.facts:
            learned = self.cx.facts.since(self.facts)
            self.facts, self.cx.facts = facts, facts.fork()
            self.cx.facts.assume_all(learned)


Transform = Callable[[Node, Rebuilding], tuple[Arg, ...]]


def rebuild(
    graph: Graph,
    transform: Transform,
    finish: Callable[[Rebuilding], None] | None = None,
    reader: Reader | None = None,
) -> Graph:
    """The graph that ``transform`` writes node by node.

    ``transform(node, out)`` gets the node over rewritten arguments, appends what it likes to
    ``out`` and returns one argument for each of the node's outputs. ``finish(out)`` may append at
    the end. ``reader`` moves along: what it knows of sizes is what has been tested by then.
    """
    out = Rebuilding()
    for position, node in enumerate(graph.nodes):
        if reader is not None:
            reader.stand_at(position)
        results = transform(out.with_new_inputs(node), out)
        for old, new in zip(node.outputs, results, strict=True):
            if old is not new:
                out.substitutes[old] = new
    if finish is not None:
        finish(out)
    if not out.substitutes and out.nodes == list(graph.nodes):
        return graph
    outputs = tuple(out.rewrite(output) for output in graph.outputs)
    return replace(graph, nodes=tuple(out.nodes), outputs=outputs)
