"""Functions that sum the moments of one fiber again, in the order of ATen's kernel.

In: a kernel with moments. Out: a C function for those of the same cells, which is called of a fiber
near whose moments squares overflow. It is handed the kernel's parameters, the position of the
fiber, what is known of the fiber, and which moment is asked for; it computes the fiber's cells once
more, one after the other, as the kernel's own elements, and hands them to the functions of
``moments.py``.
"""

from __future__ import annotations

from anyshape.ir.loops import Moment, Scan
from anyshape.nouns import mutable
from anyshape.symbolic import Dim
from anyshape.targets.cpu.c_cells import CellPrinter, moment_name, siblings
from anyshape.targets.cpu.c_loops import LoopPrinter
from anyshape.targets.cpu.c_texts import ALONE, C_TYPES, c_identity, total_type
from anyshape.targets.cpu.few_passes import without_passes
from anyshape.targets.scalar import C_SUFFIXES


def moment_functions(whole: CellPrinter) -> str:
    """The functions of all moments of the kernel that ``whole`` prints."""
    kernel = whole.kernel
    moments = [element for element in kernel.elements if isinstance(element, Moment)]
    named = {moment_name(whole.name, kernel, moment): moment for moment in moments}
    text = "".join(_function(whole, *each) for each in named.items())
    return without_passes(text) if text else ""


def _function(whole: CellPrinter, name: str, moment: Moment) -> str:
    kernel, phases = whole.kernel, whole.phases
    printer = _FiberPrinter(kernel, name, phases, whole.parameters, whole.sums)
    printer.print_fiber(moment)
    elements = kernel.elements
    handed = [f"i64 {axis.name}" for axis in kernel.axes]
    handed += [f"{C_TYPES[elements[n].dtype.name]} v{n}" for n in phases.totals_below(moment)]
    parameters = ", ".join((whole.parameters, *handed, "int squares"))
    body = "\n".join(printer.lines)
    head = f"{ALONE}__attribute__((cold)) {C_TYPES[moment.dtype.name]} {name}"
    return f"{head}({parameters}) {{\n{body}\n}}\n"


@mutable(eq=False)
class _FiberPrinter(LoopPrinter):
    """Prints one fiber, cell by cell."""

    def print_fiber(self, moment: Moment) -> None:
        """The body of the function of the moment and its siblings."""
        phases, self.elements = self.phases, list(self.kernel.elements)
        self.running += [axis.name for axis in self.kernel.axes]  # whoever calls it has a fiber
        fibers = self.kernel.reduction_axes
        count: Dim = 1
        for axis in fibers:
            count = count * axis.extent
        order, kind = f"as_{moment.order}", C_SUFFIXES[moment.dtype.name]
        self._line(f"{order}_{kind} s;")
        self._line(f"{order}_start_{kind}(&s, {self._dim(count)});")
        self._open_loops(fibers[:-1])
        cells = phases.closure((moment.arg,), set(phases.totals_below(moment)))
        for n in cells:
            element = self.elements[n]
            if isinstance(element, Scan):
                self._line(f"{total_type(element)} c{n} = {c_identity(element)};")
        self._open_loops(fibers[-1:])
        self._emit_elements(cells)
        self._line(f"{order}_add_{kind}(&s, v{moment.arg});")
        self._close(len(fibers))
        means, squares = (f"{order}_{part}_{kind}(&s)" for part in ("mean", "squares"))
        parts = {element.part for element in siblings(self.kernel, moment)}
        wanted = f"squares ? {squares} : {means}"
        if len(parts) == 1:
            wanted = means if moment.part == "mean" else squares
        self._line(f"return {wanted};")
