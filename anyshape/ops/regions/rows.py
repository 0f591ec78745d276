"""The two rows with regions. Their types come of the regions: ``build.py`` makes such nodes.

``loop(trips, carried, captured)`` has one region, ``(turn, *carried, *captured) -> carried``;
``branch(predicate, captured)`` has two, ``(*captured) -> results``. ``trips`` and ``predicate`` are
a size, a host number or a tensor of one element; ``trips`` may be a vector of integers as well, the
numbers of the turns.
"""

from __future__ import annotations

from typing import Any

from anyshape.ops.context import NoRow, TypeContext
from anyshape.ops.table import Regions, op


def _typed_by_regions(cx: TypeContext, *args: Any) -> Any:
    raise NoRow("its results have the types that its regions give them")


op(
    "loop",
    "trips, carried, captured",
    torch="anyshape.eager.loop",
    type=_typed_by_regions,
    lower=Regions(),
)
op(
    "branch",
    "predicate, captured",
    torch="anyshape.eager.branch",
    type=_typed_by_regions,
    lower=Regions(),
)
