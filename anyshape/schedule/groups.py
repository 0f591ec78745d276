"""What the fuser makes, and the nouns that it works with: see ``fuse.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from anyshape.ir.graph import Value, row_major
from anyshape.nouns import frozen
from anyshape.schedule.analysis import Order
from anyshape.schedule.draft import Symbols
from anyshape.schedule.indices import Index, dot
from anyshape.symbolic import Dim, Expr, Symbol

Part = Literal["whole", "copy", "update"]


@frozen
class Refusal:
    """Why a producer was not computed inside a kernel that reads it."""

    value: Value
    reader: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.value.name} is not fused with {self.reader.name}: {self.reason}"


@frozen
class Shared:
    """What a group stores of a value that others read too, the readers that it computes itself for
    that, and between what in the program it has to do so."""

    stored: tuple[Stored, ...]
    fused: frozenset[int]
    low: Order
    high: Order


class ExtraReduction(Exception):
    """The kernel needs loop variables of its own for a reduction."""

    def __init__(self, extents: tuple[Dim, ...]) -> None:
        super().__init__()
        self.extents = extents


@frozen
class LoopNest:
    """The loop variables of a kernel: for each dim of its shape, and for each further one that is
    reduced, the extents that the dim is split into, outermost first."""

    dims: tuple[tuple[Dim, ...], ...]
    reduction_axes: tuple[tuple[Dim, ...], ...] = ()

    @property
    def extents(self) -> tuple[Dim, ...]:
        return tuple(e for part in (*self.dims, *self.reduction_axes) for e in part)

    def refined(self, axis: int, extents: tuple[Dim, ...]) -> LoopNest:
        """The loop nest with loop variable number ``axis`` split."""
        parts: list[tuple[Dim, ...]] = []
        seen = 0
        for part in (*self.dims, *self.reduction_axes):
            made: list[Dim] = []
            for extent in part:
                made.extend(extents if seen == axis else (extent,))
                seen += 1
            parts.append(tuple(made))
        return LoopNest(tuple(parts[: len(self.dims)]), tuple(parts[len(self.dims) :]))

    def index(self, symbols: Symbols) -> Index:
        """One index expression for each dim, reduced dims after the others."""
        result: list[Dim] = []
        number = 0
        for part in (*self.dims, *self.reduction_axes):
            axes = [symbols.axis(number + n) for n in range(len(part))]
            result.append(dot(axes, row_major(part)))
            number += len(part)
        return tuple(result)


@frozen
class Stored:
    """A value that a kernel writes, and the index at which it computes it."""

    value: Value
    index: Index
    per: Literal["cell", "fiber"]


@frozen
class Group:
    """The nodes of one kernel."""

    seed: Value
    extents: Mapping[Symbol, Dim]
    reduction_axes: tuple[Expr, ...]
    stored: tuple[Stored, ...]
    inlined: frozenset[Value]
    refusals: tuple[Refusal, ...]
    part: Part = "whole"
