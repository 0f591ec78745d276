"""Functions that sum a moment of one row again, in the order of ATen's kernel.

In: a kernel with moments. Out: a C function for each, which is called of a row near whose moments
squares overflow. It is handed the kernel's parameters, the position of the row, and what is known
of the row; it computes the row's cells once more, one after the other, as the kernel's own
elements, and hands them to the functions of ``moments.py``.
"""

from __future__ import annotations

from anyshape.ir.loops import Kernel, Moment, Scan
from anyshape.nouns import mutable
from anyshape.symbolic import Dim
from anyshape.targets.cpu.c_cells import moment_name
from anyshape.targets.cpu.c_loops import LoopPrinter
from anyshape.targets.cpu.c_texts import C_TYPES, c_identity, total_type
from anyshape.targets.reduction_phases import Phases
from anyshape.targets.scalar import C_SUFFIXES


def moment_functions(kernel: Kernel, phases: Phases, name: str) -> str:
    """The functions of all moments of the kernel, which is printed under that name."""
    moments = [(n, e) for n, e in enumerate(kernel.elements) if isinstance(e, Moment)]
    return "".join(_function(kernel, phases, name, n, moment) for n, moment in moments)


def _function(kernel: Kernel, phases: Phases, name: str, number: int, moment: Moment) -> str:
    printer = _RowPrinter(kernel, name)
    printer.print_row(phases, moment)
    elements = kernel.elements
    handed = [f"i64 {axis.name}" for axis in kernel.axes]
    handed += [f"{C_TYPES[elements[n].dtype.name]} v{n}" for n in phases.totals_below(moment)]
    head = f"{C_TYPES[moment.dtype.name]} {moment_name(name, number)}"
    parameters = ", ".join((printer.parameters(), *handed))
    body = "\n".join(printer.lines)
    return f"static __attribute__((cold, noinline)) {head}({parameters}) {{\n{body}\n}}\n"


@mutable(eq=False)
class _RowPrinter(LoopPrinter):
    """Prints one row, cell by cell."""

    def print_row(self, phases: Phases, moment: Moment) -> None:
        """The body of the moment's function."""
        self.phases, self.elements = phases, list(self.kernel.elements)
        self.running += [axis.name for axis in self.kernel.axes]  # whoever calls it has a row
        rows = self.kernel.reduction_axes
        count: Dim = 1
        for axis in rows:
            count = count * axis.extent
        order, kind = f"as_{moment.order}", C_SUFFIXES[moment.dtype.name]
        self._line(f"{order}_{kind} s;")
        self._line(f"{order}_start_{kind}(&s, {self._dim(count)});")
        self._open_loops(rows[:-1])
        cells = phases.closure((moment.arg,), set(phases.totals_below(moment)))
        for n in cells:
            element = self.elements[n]
            if isinstance(element, Scan):
                self._line(f"{total_type(element)} c{n} = {c_identity(element)};")
        self._open_loops(rows[-1:])
        self._emit_elements(cells)
        self._line(f"{order}_add_{kind}(&s, v{moment.arg});")
        self._close(len(rows))
        self._line(f"return {order}_{moment.part}_{kind}(&s);")
