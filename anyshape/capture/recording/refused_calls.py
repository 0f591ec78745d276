"""Calls that are not recorded: on a side of a branch that may not be taken.

Autocast's lists of what a lower precision pays for are those of products, convolutions and
attention: what takes longer than to go through the elements.
"""

from __future__ import annotations

from anyshape.capture.heap.breaks import broken
from anyshape.ir.graph import Node
from anyshape.ir.scalars import Operand
from anyshape.ops.autocast import ON_ACCELERATOR, ON_HOST
from anyshape.ops.build import Builder
from anyshape.ops.rules import is_tensor
from anyshape.ops.table import OPS, OpDef

COSTLY = frozenset(
    name for lists in (ON_HOST, ON_ACCELERATOR) for name, kind in lists.items() if kind == "lower"
)


def refuse_in_vain(name: str, premise: Operand | None) -> None:
    """Breaks at a row that costs much, or that cannot be taken back, on a side of what data decides
    (``premise``)."""
    if premise is None:
        return
    row = OPS.get(name)
    if row is None or _is_final(row) or len(row.mutates) > 1:
        raise broken("fork", f"{name} on a side of what data decides")


def _is_final(row: OpDef) -> bool:
    return row.name in COSTLY or row.random or row.guessed


def is_in_vain(builder: Builder, node: Node) -> bool:
    """Whether the node, or what it is made of, is such a row, or raises for some data."""
    row = OPS[node.op]
    divides = row.divisor is not None
    if row.expand is not None and row.lower is None:
        scratch = Builder(builder.cx, modes=node.modes)
        if row.expand(scratch, *node.args, **node.kwargs) is not NotImplemented:
            return any(is_in_vain(builder, part) for part in scratch.nodes)
    if divides and any(v.dtype.is_floating for v in node.inputs() if is_tensor(v)):
        return False
    raises = row.raises or row.refuses is not None or row.data_indices is not None
    return raises or _is_final(row)
