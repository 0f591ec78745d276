"""Masks of attention that hide later keys and nothing else, or no key at all: the library is told
so, and no mask is made.

    %m = le(%key_positions, %query_positions)
    %y = scaled_dot_product_attention(%q, %k, %v, %m, 0.0, False)
    ->
    %y = scaled_dot_product_attention(%q, %k, %v, None, 0.0, True)

Where all of the mask is true the flag stays False. What an element of the mask is, rows say
(``lower.py``), at indices that are symbols. Libraries skip the keys that are hidden, and some have
fast kernels for no other mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value, values_in
from anyshape.nouns import replace
from anyshape.ops.table import CausalMask, OpDef, Scan
from anyshape.schedule.analysis import Analysis, analyse, kind_of
from anyshape.schedule.build import draft_element
from anyshape.schedule.indices import Index
from anyshape.schedule.known_elements import DecidedByData, KnownElements
from anyshape.symbolic import Facts, eq, le, lt

MADE = ("kernel", "view")


def without_causal_masks(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph, where masks that hide later keys and nothing else are flags of attention, and
    those that hide no key are none."""
    producers = {value: node for node in graph.nodes for value in node.outputs}
    masks = {
        mask for node in graph.nodes if (mask := _mask_of(node, ops, graph.facts)) in producers
    }
    flags = {mask: _flag_of(graph, mask, ops) for mask in masks if mask is not None}
    replaced = {mask: flag for mask, flag in flags.items() if flag is not None}
    if not replaced:
        return graph
    nodes = tuple(
        _flagged(node, ops[node.op].causal, replaced[mask])
        if (mask := _mask_of(node, ops, graph.facts)) in replaced
        else node
        for node in graph.nodes
    )
    return _without_unread(replace(graph, nodes=nodes), set(replaced), ops)


def _mask_of(node: Node, ops: Mapping[str, OpDef], facts: Facts) -> Value | None:
    row = ops.get(node.op)
    if row is None or row.causal is None or node.args[row.causal.flag] is not False:
        return None
    mask = node.args[row.causal.mask]
    is_mask = isinstance(mask, Value) and isinstance(mask.type, TensorType)
    if not is_mask or mask.dtype is not bool_ or len(mask.shape) < 2:  # type: ignore[union-attr]
        return None
    attended = node.args[row.causal.query :][:2]
    return mask if _is_part_of(mask, attended, facts) else None  # type: ignore[arg-type, return-value]


def _is_part_of(mask: Value, attended: Sequence[Arg], facts: Facts) -> bool:
    """Is the mask known to be broadcast to which queries see which keys? Eager refuses one that is
    not."""
    query, key = attended
    if not isinstance(query, Value) or not isinstance(key, Value):
        return False
    heads = [value.shape[:-2] for value in (query, key)]
    if len(heads[0]) != len(heads[1]) or len(mask.shape) - 2 > len(heads[0]):
        return False
    behind = zip(reversed(mask.shape[:-2]), *map(reversed, heads), strict=False)
    rows, columns = mask.shape[-2:]
    sizes = ((rows, query.shape[-2]), (columns, key.shape[-2]), *((m, *n) for m, *n in behind))
    return all(any(facts.known(eq(m, n)) is True for n in (1, *other)) for m, *other in sizes)


def _flagged(node: Node, causal: CausalMask | None, flag: bool) -> Node:
    assert causal is not None
    args = list(node.args)
    args[causal.mask], args[causal.flag] = None, flag
    return replace(node, args=tuple(args))


def _flag_of(graph: Graph, mask: Value, ops: Mapping[str, OpDef]) -> bool | None:
    """True where an element is true where its key is not behind its query, and only there; False
    where all of them are true; None of any other mask."""
    above = tuple(_above(graph, {mask}, ops))
    found = analyse(replace(graph, nodes=above, outputs=(mask,)), ops)
    zeros: set[Value] = set()
    for node in above:
        if _is_sum_of_zeros(found, node, zeros):
            zeros.add(node.output)
    *_, query, key = index = _index(found, mask)
    known, number = _known(found, mask, index, zeros)
    try:
        truth = known.truth(number)
    except DecidedByData:
        return None
    if truth is True:
        return False
    is_row = found.sizes.facts.known(eq(mask.shape[-2], 1)) is True  # each query's
    return True if truth == le(key, query) and not is_row else None


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
    inside = (lt(axis, size) for axis, size in zip(index, value.shape, strict=True))
    return KnownElements(draft, found.sizes.facts.supposing(inside)), number


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
