"""In whose memory results lie, which of them eager calls views, and what is written through them.

The one place that answers these questions of a node: capture, passes, gradients and the boundary
ask it. ``None`` means that sizes decide, of which nothing is known yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anyshape.ir.graph import Node, Value
from anyshape.ir.nesting import handed
from anyshape.ops.context import TypeContext
from anyshape.ops.table import OpDef

OWN_COUNTERS = frozenset({"data", "unsafe_alias"})
"""Operators whose results lie in the memory of an argument, of which autograd knows nothing: they
have version counters of their own."""
DETACHED = OWN_COUNTERS | {"detach", "view_dtype"}
"""Operators whose results lie in the memory of an argument, which eager calls no views of it."""
VIEWS_OF_NEW = frozenset({"einsum"})
"""Operators that give new memory, of which eager gives a view."""
VIEWS_OF_COPIES = frozenset({"ravel"})
"""Operators that give a view at all sizes: of the argument, or of a copy of it."""
STORAGE_COPIES = frozenset(
    {"select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter"}
)
"""Last names of torch's operators that copy the storage of what they are handed: the result begins
where that does."""

SPLITS = frozenset({"chunk", "split", "tensor_split", "unbind"})
"""Views that do not overlap, and that nobody may write to where gradients are recorded."""
SLICES = frozenset({"narrow", "select", "slice", "slice_read"})
"""Views of what lies along one dimension from a start on."""


def lies_in_argument(cx: TypeContext, node: Node, row: OpDef | None) -> bool:
    """Does the result surely lie in the memory of the first argument: always, or by what is known
    of its layout?"""
    if row is None or row.alias == "none":
        return False
    return row.alias == "view" or (row.views_where is not None and row.views_where(cx, node))


def is_view(
    cx: TypeContext,
    ops: Mapping[str, OpDef],
    makers: Mapping[Value, Node],
    value: Value,
    exact: bool = False,
) -> bool | None:
    """Does eager call this value a view? ``makers``: the nodes that make values; an input may be
    one. ``exact``: all sizes are numbers, so that what does not surely lie in its argument does
    not."""
    node = makers.get(value)
    row = None if node is None else ops.get(node.op)
    if node is None or row is None:
        return None
    if row.mutates:
        return is_view(cx, ops, makers, node.read[0], exact)
    if node.op in DETACHED:
        return False
    if row.alias == "none":
        return None if node.op in VIEWS_OF_NEW else False
    if row.alias == "view" or node.op in VIEWS_OF_COPIES:
        return True
    otherwise = False if exact else None
    if row.new_view:
        return True if lies_in_argument(cx, node, row) else otherwise
    # the argument itself, or a new tensor
    argument = is_view(cx, ops, makers, node.read[0], exact)
    return argument if argument is False or lies_in_argument(cx, node, row) else otherwise


def base_of(value: Value, makers: Mapping[Value, Node], ops: Mapping[str, OpDef]) -> Value:
    """What the value is a view of at last, as far as rows may make views; itself where it is
    none."""
    while (node := makers.get(value)) is not None and _may_share(node, ops):
        value = node.read[0]
    return value


def written_in(nodes: Iterable[Node], ops: Mapping[str, OpDef]) -> set[Value]:
    """The values that the nodes write to, each the base of its views."""
    makers: dict[Value, Node] = {}
    written: set[Value] = set()
    for node in nodes:
        makers.update(dict.fromkeys(node.outputs, node))
        row = ops.get(node.op)
        if row is not None and row.mutates and node.read:
            written.add(base_of(node.read[0], makers, ops))
        for region in node.regions:
            inside = written_in(region.nodes, ops)
            pairs = handed(node, region) if inside else ()
            written |= {base_of(outer, makers, ops) for inner, outer in pairs if inner in inside}
    return written


def _may_share(node: Node, ops: Mapping[str, OpDef]) -> bool:
    row = ops.get(node.op)
    return row is not None and bool(node.read) and (bool(row.mutates) or row.alias != "none")
