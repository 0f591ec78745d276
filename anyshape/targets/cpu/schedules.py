"""How C walks a kernel, and from which sizes on.

In: a kernel. Out: its variants: conditions on its sizes, each with a ``KernelSchedule``. The form
of the indices says which axis a vector runs over; sizes choose where that is not enough.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from anyshape.ir.loops import Kernel, Load, Position, Scan
from anyshape.ir.variants import Variant
from anyshape.nouns import frozen
from anyshape.symbolic import Condition, all_of, gt, le
from anyshape.targets.reduction_phases import Phases, analyse, lane, step_of, turned

Walk: TypeAlias = Literal[
    "cells",
    "tiles",
    "in order",
    "fibers",
    "one fiber",
    "columns",
    "shared columns",
    "folded columns",
]
LANES = 64
"""Columns that a reduction over a strided fiber keeps at a time."""
FOLDED_CELLS = 8192
"""Fewer cells than this are not worth the blocks of a fold."""


@frozen
class KernelSchedule:
    """How a vector runs over the cells.

    ``cells``: along the last axis; ``tiles``: the same, as transposed operands are turned; ``in
    order``: one cell after the other; ``fibers``: along each fiber; ``one fiber``: along the only
    fiber, whose blocks threads share; ``columns``: across strided fibers; ``shared columns``: the
    same, whose cells threads share; ``folded columns``: across a few strided fibers and several
    cells of each. ``known`` are the phases and the lane of the kernel that it was chosen for.
    """

    walk: Walk
    known: tuple[Phases, str | None] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.walk


def variants(kernel: Kernel) -> tuple[Variant[KernelSchedule], ...]:
    """The schedules of the kernel, in order; the last is right for every size."""
    if not kernel.reduction_axes and (kernel.ordered or len(kernel.axes) < 2):
        walk: Walk = "in order" if kernel.ordered or not kernel.axes else "cells"
        return (Variant(True, KernelSchedule(walk)),)  # there is no other axis to turn
    known = phases, along = analysed(kernel)
    walk = _walk(kernel, phases, along)
    last = Variant(True, KernelSchedule(walk, known))
    if walk != "columns":
        return (last,)
    few = _few_columns(kernel, phases)
    if few is not False:
        return (Variant(few, KernelSchedule("folded columns", known)), last)
    return (
        Variant(True, KernelSchedule("shared columns", known)) if _is_one_block(kernel) else last,
    )


def analysed(kernel: Kernel) -> tuple[Phases, str | None]:
    """The phases of a kernel, and the axis that a vector runs along."""
    phases = analyse(kernel)
    return phases, lane(kernel, phases)


def _walk(kernel: Kernel, phases: Phases, along: str | None) -> Walk:
    """How the kernel is walked whatever its sizes are."""
    axes = kernel.axes
    if kernel.reduction_axes:
        if along != kernel.reduction_axes[-1].name:
            return "columns"
        return "fibers" if axes else "one fiber"
    if kernel.ordered or not axes:
        return "in order"
    return "cells" if turned(phases, axes[-1].name) is None else "tiles"


def _is_one_block(kernel: Kernel) -> bool:
    """Are there too few columns to be shared among threads, whatever the sizes are?"""
    if len(kernel.axes) != 1 or len(kernel.reduction_axes) != 1:
        return False
    columns = kernel.axes[0].extent
    scans = any(isinstance(element, Scan) for element in kernel.elements)
    return isinstance(columns, int) and columns <= LANES and not scans


def _few_columns(kernel: Kernel, phases: Phases) -> Condition | bool:
    """Where folding brings something; False where it cannot be done: what is reduced must run
    through memory as if the columns and the cells of their fibers were one axis."""
    if len(kernel.axes) != 1 or len(kernel.reduction_axes) != 1:
        return False
    (column,), (fiber,) = kernel.axes, kernel.reduction_axes
    if any(store.per == "cell" for store in kernel.stores):
        return False
    reduced = phases.reduced_by(n for level in range(phases.count) for n in phases.reduces(level))
    for element in (kernel.elements[n] for n in phases.closure(reduced, frozenset())):
        if isinstance(element, Scan):
            return False
        if isinstance(element, Load | Position):
            along, across = (step_of(phases, element, axis.name) for axis in (fiber, column))
            if along is None or across is None or along != across * column.extent:
                return False
    cells = column.extent * fiber.extent
    return all_of(le(column.extent, LANES // 2), gt(cells, FOLDED_CELLS))
