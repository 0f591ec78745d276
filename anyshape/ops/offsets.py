"""Where the result of a view begins in the memory of what it views.

In: the node of a view and which of its results is asked for. Out: how many elements after its
argument the result begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyshape.ir.graph import Node
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import dot
from anyshape.ops.parts import Part
from anyshape.ops.table import OpDef, View
from anyshape.symbolic import Dim


def begins_at(cx: TypeContext, row: OpDef, node: Node, position: int) -> Dim | None:
    """None where nobody says."""
    before = node.read[0]
    if row.part is not None:
        whole = Part(tuple((0, 1, n) for n in before.shape), tuple(range(len(before.shape))))
        first: Sequence[Any] = [start for start, _, _ in row.part(whole, node, position).spans]
    elif row.mutates or row.keeps_elements:
        return 0
    elif isinstance(row.lower, View):
        origin = (0,) * len(node.outputs[position].shape)
        first = row.lower.index(cx, origin, before.tensor, *node.args[1:])
    else:
        return None
    return dot(first, before.tensor.strides)
