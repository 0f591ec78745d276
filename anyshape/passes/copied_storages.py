"""Outputs that lie in a copy of an argument's storage.

    %t = slice_scatter(%x, %y, 0, 1); %w = mul_(%t, 2)

eager copies the whole storage in which ``%x`` lies, of which nobody knows more before the call: a
returned tensor shows where it begins in it, ``as_strided`` what lies around. What is written is new
memory here. In: a captured graph. Out: the graph that makes those outputs, by the operators that
copy storages and by views, from arguments and other values.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.ir.graph import Graph, Value
from anyshape.ops.table import OpDef
from anyshape.passes.ambiguous_offsets import part_leading_to, views
from anyshape.passes.sure_copies import leading_to_outputs


def copied_storages(graph: Graph, ops: Mapping[str, OpDef]) -> tuple[Graph, tuple[int, ...]] | None:
    """The graph and the positions of these outputs, written or not; None where there are none."""
    inside = {
        value
        for node in graph.nodes
        if (row := ops.get(node.op)) is not None and row.copies_storage
        for value in node.outputs
    }
    if not inside:
        return None
    for node in leading_to_outputs(graph, ops):
        if node.read[0] in inside:
            inside.update(node.outputs)
    outputs = enumerate(graph.outputs)
    positions = tuple([p for p, v in outputs if isinstance(v, Value) and v in inside])
    if not positions:
        return None
    part = part_leading_to(graph, ops, positions, lambda row: views(row) or row.copies_storage)
    return part, positions
