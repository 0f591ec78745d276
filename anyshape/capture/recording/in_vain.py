"""What is not computed on a side of a branch that may not be taken.

Autocast's lists of what a lower precision pays for are those of products, convolutions and
attention: what takes longer than to go through the elements.
"""

from __future__ import annotations

from anyshape.capture.heap.breaks import broken
from anyshape.ops.autocast import ON_ACCELERATOR, ON_HOST
from anyshape.ops.table import OPS

COSTLY = frozenset(
    name for lists in (ON_HOST, ON_ACCELERATOR) for name, kind in lists.items() if kind == "lower"
)


def refuse_in_vain(name: str) -> None:
    """Breaks at a row that costs much, or that cannot be taken back."""
    row = OPS.get(name)
    if row is None or name in COSTLY or row.random or row.guessed or len(row.mutates) > 1:
        raise broken("fork", f"{name} on a side of what data decides")
