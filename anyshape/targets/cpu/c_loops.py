"""Loops of a kernel in C, and how threads share them.

In: axes of a kernel. Out: lines that open its loops, whole or by blocks, with OpenMP's pragmas
where there is enough work, and what a phase computes for each cell.
"""

from __future__ import annotations

from anyshape.costs import COSTS
from anyshape.ir.loops import SCALAR_OPS, Axis, Kernel, Load, Op, Reduce
from anyshape.nouns import mutable
from anyshape.symbolic import Dim
from anyshape.targets.cpu.c_lanes import LanePrinter, Work


@mutable(eq=False)
class LoopPrinter(LanePrinter):
    """Prints the loops around the innermost one; a subclass knows which a kernel has."""

    shared: str | None = None  # when the whole body is worth sharing among threads

    def _work(self, level: int, done: set[int]) -> Work:
        """What a phase computes for each cell."""
        phases = self.phases
        return Work(
            stores=phases.stores(level, "cell"),
            reduces=phases.reduces(level),
            keep=[n for n in self.kept if phases.level[n] == level],
            known=done | self._known_fibers(level),
        )

    def _known_fibers(self, level: int) -> set[int]:
        """Reductions of earlier phases: their values are variables already."""
        return {
            n
            for n, e in enumerate(self.elements)
            if isinstance(e, Reduce) and self.phases.level[n] <= level
        }

    def _parallel(self, loops: int) -> None:
        """The pragma for the nest of ``loops`` parallel loops that is all of the kernel, if there
        is anything to share: threads share it where the kernel is called by several."""
        self.shared = self._enough_work() if loops else None
        if self.shared:
            collapse = f" collapse({loops})" if loops > 1 else ""
            self._line(f"#pragma omp for schedule(static){collapse} nowait")

    def _parallel_pass(self, loops: int) -> None:
        """The pragma for a nest that is one of several."""
        condition = self._enough_work()
        if condition:
            collapse = f" collapse({loops})" if loops > 1 else ""
            self._line(f"#pragma omp parallel for schedule(static){collapse} if ({condition})")

    def _enough_work(self) -> str | None:
        """C text of "worth sharing among threads"; None where it is known not to be."""
        least = COSTS.cells_for_threads(cell_cost(self.kernel))
        cells: Dim = 1
        for axis in (*self.kernel.axes, *self.kernel.reduction_axes):
            cells = cells * axis.extent
        if isinstance(cells, int):
            return "1" if cells > least else None
        return f"{self._dim(cells)} > {least}"

    def _open_loops(self, axes: tuple[Axis, ...] | list[Axis]) -> None:
        for axis in axes:
            self._loop(axis.name, "0", self._dim(axis.extent))

    def _open_blocks(self, axis: Axis, size: int) -> tuple[str, str]:
        name, extent = axis.name, self._dim(axis.extent)
        self._blocks(axis, size)
        self._line(f"i64 {name}e = {name}b + {size} < {extent} ? {name}b + {size} : {extent};")
        return f"{name}b", f"{name}e"

    def _blocks(self, axis: Axis, size: int) -> None:
        name = axis.name
        head = f"for (i64 {name}b = 0; {name}b < {self._dim(axis.extent)}; {name}b += {size})"
        self._open(head, name)


def cell_cost(kernel: Kernel) -> int:
    """What a cell costs, in simple operations."""
    return sum(
        SCALAR_OPS[e.op].cost if isinstance(e, Op) else 1
        for e in kernel.elements
        if isinstance(e, (Op, Load, Reduce))
    )
