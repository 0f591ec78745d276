"""What the backward part of one graph computes again rather than keep: where a program calls
``backward()`` itself, forward and backward are one graph, and this is its cut.

    %s = sigmoid(%x); %y = mul(%x, %s); ...; %gx = <of %g, %x, %s>
    ->
    %s = sigmoid(%x); %y = mul(%x, %s); ...; %s2 = sigmoid(%x); %gx = <of %g, %x, %s2>

In: a graph of core rows. Out: the same, with copies of elementwise work and views in front of their
first reader in the backward part. A minimum cut chooses what is kept, by its
bytes at the hints, as in ``partition.py``; where nothing is saved by computing again, nothing is.
Wherever the graph is cut, results are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyshape.autograd.budget import (
    Allowed,
    costly_nodes,
    is_cheap,
    read_by_memory_bound_products,
    within_budget,
)
from anyshape.autograd.checkpoints import Copier, runs_once
from anyshape.autograd.decisions import in_front_of_decisions
from anyshape.autograd.memory import roots
from anyshape.autograd.minimum_cut import minimum_cut
from anyshape.autograd.sizes import cost_of_keeping, size_bytes, stored_anyway
from anyshape.ir.graph import Graph, Node, TensorType, Value, values_in
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.gradients.decisions import decides
from anyshape.ops.table import OpDef


def recompute_cheap(graph: Graph, ops: Mapping[str, OpDef], budget: float = 1.0) -> Graph:
    """See the module; ``budget``: see ``autograd/budget.py``."""
    start = _first_backward(graph.nodes)
    forward, backward = graph.nodes[:start], graph.nodes[start:]
    again = within_budget(
        budget,
        costly_nodes(forward, graph, ops),
        lambda allowed: _again(graph, ops, forward, backward, allowed),
    )
    if not again:
        return graph
    builder = Builder(TypeContext(graph.space, graph.facts.fork(), graph.hints), ops)
    builder.reserve(graph)
    copier = Copier(again, forward, -len(graph.nodes) - 1, builder.fresh_name)
    nodes = list(forward)
    for node in backward:
        nodes += copier.missing(node.inputs())
        nodes.append(copier.reading_copies(node))
    return replace(graph, nodes=tuple(nodes))


def _first_backward(nodes: Sequence[Node]) -> int:
    """Where the backward part begins; what both parts compute lies in front of it."""
    for position, node in enumerate(nodes):
        if node.modes is not None and node.modes.backward:
            return position
    return len(nodes)


def _again(
    graph: Graph,
    ops: Mapping[str, OpDef],
    forward: Sequence[Node],
    backward: Sequence[Node],
    allowed: Allowed,
) -> tuple[frozenset[Value], int]:
    """What is not kept of what the backward part reads, and of what that is made of, where the
    nodes that are allowed may be computed again; the bytes that are kept."""
    makers = {value: node for node in forward for value in node.outputs}
    read = dict.fromkeys(v for node in backward for v in node.inputs())
    needed = [v for v in read if v in makers and isinstance(v.type, TensorType)]
    owner = roots(graph, ops)
    alive = {owner.get(v, v) for v in values_in(graph.outputs)}
    alive.update(entry.value for entry in graph.inputs)
    stored = stored_anyway(forward, ops)
    memory_bound = (
        set() if allowed else read_by_memory_bound_products(backward, graph, ops) & stored.keys()
    )
    compared = {v for node in in_front_of_decisions(backward) for v in node.inputs()}
    capacities: dict[Value, int] = {}
    edges: list[tuple[Value, Value]] = []
    fed: list[Value] = []
    waiting = list(needed)
    while waiting:
        value = waiting.pop()
        if value in capacities:
            continue
        free = owner.get(value, value) in alive
        capacities[value] = 0 if free else cost_of_keeping(value, graph, stored)
        maker = makers.get(value)
        stays = value in compared or value in memory_bound
        if maker is None or stays or not (maker in allowed or _is_cheap(maker, ops)):
            fed.append(value)
            continue
        sources = [v for v in maker.inputs() if isinstance(v.type, TensorType)]
        edges.extend((source, value) for source in sources)
        waiting.extend(sources)
    kept = minimum_cut(capacities, edges, fed, needed, latest=True)
    kept_bytes = sum(size_bytes(value.tensor, graph) for value in kept if capacities[value])
    return _not_kept(needed, kept, makers), kept_bytes


def _is_cheap(node: Node, ops: Mapping[str, OpDef]) -> bool:
    return is_cheap(node, ops) and not runs_once(node, ops) and not decides(node)


def _not_kept(
    needed: Sequence[Value], kept: set[Value], makers: Mapping[Value, Node]
) -> frozenset[Value]:
    again: set[Value] = set()
    waiting = list(needed)
    while waiting:
        value = waiting.pop()
        maker = makers.get(value)
        if value in kept or value in again or maker is None:
            continue
        again.update(maker.outputs)
        waiting.extend(v for v in maker.inputs() if isinstance(v.type, TensorType))
    return frozenset(again)
