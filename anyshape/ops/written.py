"""Whose memory operators write to: directly, through views, and in the regions of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anyshape.ir.graph import Node, Value
from anyshape.ir.nesting import handed
from anyshape.ops.table import OpDef


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
