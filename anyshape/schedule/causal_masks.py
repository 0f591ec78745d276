"""Masks of attention that hide later keys and nothing else: the library is told so, and no mask is
made.

    %m = le(%key_positions, %query_positions)
    %y = scaled_dot_product_attention(%q, %k, %v, %m, 0.0, False)
    ->
    %y = scaled_dot_product_attention(%q, %k, %v, None, 0.0, True)

What an element of the mask is, rows say (``lower.py``), at places that are symbols. Libraries skip
the keys that are hidden, and some have fast kernels for no other mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import Graph, Node, TensorType, Value, values_in
from anyshape.ops.table import CausalMask, OpDef, Scan
from anyshape.schedule.analysis import Analysis, analyse, kind_of
from anyshape.schedule.build import draft_element
from anyshape.schedule.indices import Index
from anyshape.schedule.known_elements import DecidedByData, KnownElements
from anyshape.symbolic import le, lt

MADE = ("kernel", "view")


def without_causal_masks(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph, where masks that hide later keys and nothing else are flags of attention."""
    producers = {value: node for node in graph.nodes for value in node.outputs}
    masks = {mask for node in graph.nodes if (mask := _mask_of(node, ops)) in producers}
    replaced = {mask for mask in masks if mask is not None and _is_causal(graph, mask, ops)}
    if not replaced:
        return graph
    nodes = tuple(
        _flagged(node, ops[node.op].causal) if _mask_of(node, ops) in replaced else node
        for node in graph.nodes
    )
    return _without_unread(replace(graph, nodes=nodes), replaced, ops)


def _mask_of(node: Node, ops: Mapping[str, OpDef]) -> Value | None:
    row = ops.get(node.op)
    if row is None or row.causal is None or node.args[row.causal.flag] is not False:
        return None
    mask = node.args[row.causal.mask]
    is_mask = isinstance(mask, Value) and isinstance(mask.type, TensorType)
    return mask if is_mask and mask.dtype is bool_ and len(mask.shape) > 1 else None  # type: ignore[return-value, union-attr]


def _flagged(node: Node, causal: CausalMask | None) -> Node:
    assert causal is not None
    args = list(node.args)
    args[causal.mask], args[causal.flag] = None, True
    return replace(node, args=tuple(args))


def _is_causal(graph: Graph, mask: Value, ops: Mapping[str, OpDef]) -> bool:
    """Is an element true where its key is not behind its query, and only there?"""
    above = tuple(_above(graph, {mask}, ops))
    found = analyse(replace(graph, nodes=above, outputs=(mask,)), ops)
    zeros: set[Value] = set()
    for node in above:
        if _is_sum_of_zeros(found, node, zeros):
            zeros.add(node.output)
    *_, query, key = index = _index(found, mask)
    known, number = _known(found, mask, index, zeros)
    try:
        return known.truth(number) == le(key, query)
    except DecidedByData:
        return False


def _is_sum_of_zeros(found: Analysis, node: Node, zeros: Set[Value]) -> bool:
    lowering = found.ops[node.op].lower
    summed = node.args[0] if isinstance(lowering, Scan) and lowering.combine == "sum" else None
    if not isinstance(summed, Value):
        return False
    known, number = _known(found, summed, _index(found, summed), zeros)
    try:
        return known.constant(number) == 0
    except DecidedByData:
        return False


def _index(found: Analysis, value: Value) -> Index:
    return tuple(map(found.symbols.axis, range(len(value.shape))))


def _known(
    found: Analysis, value: Value, index: Index, zeros: Set[Value]
) -> tuple[KnownElements, int]:
    """What is known of an element that there is, and its number."""
    draft, number = draft_element(found, value, index, zeros)
    facts = found.sizes.facts.fork()
    for axis, size in zip(index, value.shape, strict=True):
        facts.assume(lt(axis, size))
    return KnownElements(draft, facts), number


def _above(graph: Graph, values: set[Value], ops: Mapping[str, OpDef]) -> Iterator[Node]:
    """The nodes, in order, that kernels would make the values of."""
    wanted, found = set(values), []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs) and kind_of(node, ops) in MADE:
            wanted.update(node.inputs())
            found.append(node)
    yield from reversed(found)


def _without_unread(graph: Graph, values: set[Value], ops: Mapping[str, OpDef]) -> Graph:
    """The graph without what made these values, where nothing else reads it."""
    above = set(map(id, _above(graph, values, ops)))
    read = set(values_in(graph.outputs))
    kept = []
    for node in reversed(graph.nodes):
        if id(node) not in above or not read.isdisjoint(node.outputs):
            read.update(node.read)
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept)))
