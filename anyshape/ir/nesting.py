"""The one walker that knows that a graph may hold graphs.

A node may have *regions*: graphs with inputs of their own, which read nothing else; sizes of the
graph around them are known in them. What concerns every graph or node, however deep, goes through
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyshape.ir.graph import Graph, Node, TensorType, Value, values_in
from anyshape.ir.known_sizes import sizes_of
from anyshape.nouns import replace
from anyshape.symbolic import Symbol


def graphs_in(graph: Graph) -> Iterator[Graph]:
    """The graph and the regions of its nodes, at any depth; what is around comes first."""
    yield graph
    for node in graph.nodes:
        for region in node.regions:
            yield from graphs_in(region)


def nodes_in(graph: Graph) -> Iterator[Node]:
    """The nodes of the graph and of all regions in it."""
    return (node for inner in graphs_in(graph) for node in inner.nodes)


def with_nested(node: Node) -> Iterator[Node]:
    """The node, and those of its regions."""
    yield node
    for region in node.regions:
        yield from nodes_in(region)


def is_flat(graph: Graph) -> bool:
    """Does no node hold a graph?"""
    for node in graph.nodes:
        if node.regions:
            return False
    return True


def map_regions(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with every region in it changed, those inside regions first."""
    if is_flat(graph):
        return graph
    nodes = (
        replace(node, regions=tuple(change(map_regions(r, change)) for r in node.regions))
        if node.regions
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def handed(node: Node, region: Graph) -> Iterator[tuple[Value, Value]]:
    """Each tensor that the region reads, with the one that the node hands it at first."""
    inside = (entry.value for entry in region.inputs)
    around = values_in(node.args[1:])  # the first says how often or whether a region runs
    yield from zip(*(filter(_is_tensor, values) for values in (inside, around)), strict=True)


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def head_symbols(node: Node, region: Graph) -> frozenset[Symbol]:
    """The sizes and numbers that have other values each time the region runs: those of its inputs
    that the node's arguments do not have."""
    inside = {s for entry in region.inputs for s in sizes_of(entry.value)}
    around = {s for value in values_in(node.args) for s in sizes_of(value)}
    return frozenset(inside - around)


def made_in(region: Graph) -> frozenset[Symbol]:
    """The symbols that nodes of the region give values, those of regions in it included."""
    made = (value for node in nodes_in(region) for value in node.outputs)
    return frozenset(s for value in made for s in sizes_of(value) if s.knowledge == "midrun")
