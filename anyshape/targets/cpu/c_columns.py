"""Strided fibers in C: neighbouring fibers are done together, with a vector over them.

In: a kernel whose neighbours in memory lie across its fibers, as in a sum over the first dimension.
Out: lines. ``walk_columns`` takes LANES fibers at a time and shares these blocks among threads.
Where there is one such block, ``walk_shared_columns`` shares the cells of its fibers instead;
``walk_folded_columns`` takes several cells of each fiber at a time, too, so that the vector is
full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from anyshape.ir.loops import SCALAR_OPS, Axis, Moment, Op, Reduce, Scan, operands
from anyshape.nouns import mutable
from anyshape.targets.cpu.c_lanes import CONVERTED_WIDE, Work
from anyshape.targets.cpu.c_loops import LoopPrinter
from anyshape.targets.cpu.c_texts import c_combine, c_identity, total_type
from anyshape.targets.cpu.schedules import LANES

CELLS = 128
"""Cells of a strided fiber that are summed in the elements' own type."""
SLOW = 3
"""An operator of a column alone that costs this much, a quotient or a root, is done once for all of
its cells."""


@mutable(eq=False)
class ColumnPrinter(LoopPrinter):
    """Prints the schedules ``columns``, ``shared columns`` and ``folded columns``."""

    of_columns: dict[int, str] = field(default_factory=dict)  # what was computed for each column

    def walk_columns(self) -> None:
        """``LANES`` neighbouring fibers at a time, with a vector over them."""
        *outer, column = self.kernel.axes
        self._parallel(len(outer) + 1)
        self._open_loops(outer)
        self._open_blocks(column, LANES)
        for n, element in enumerate(self.elements):
            if isinstance(element, Reduce):
                self._line(f"{total_type(element)} t{n}[{LANES}]; {self._type(n)} a{n}[{LANES}];")
                self._spread(column, f"t{n}[{_lane(column)}] = {c_identity(element)};")
            elif isinstance(element, Scan):
                self._line(f"{total_type(element)} c{n}[{LANES}];")
        for level in range(self.phases.count):
            self._column_pass(level, column)
        self._close(len(outer) + 1)

    def _spread(self, column: Axis, *lines: str) -> None:
        """A vector loop over the columns of a block."""
        self._open_columns(column)
        for line in lines:
            self._line(line)
        self._close(1)

    def _open_columns(self, column: Axis) -> None:
        name = column.name
        self._line("#pragma omp simd")
        self._loop(name, f"{name}b", f"{name}e")

    def _column_pass(self, level: int, column: Axis) -> None:
        work, lane = self._work(level, set()), _lane(column)
        if work:
            work.known.clear()
            *outer, inner = self.kernel.reduction_axes
            self._open("")
            self._compute_of_columns(work, column)
            for n in self._scans(work):
                self._spread(column, f"c{n}[{lane}] = {c_identity(self.elements[n])};")
            self._open_loops(outer)
            self._open_blocks(inner, CELLS)
            for n in work.reduces:
                self._spread(column, f"a{n}[{lane}] = {c_identity(self.elements[n])};")
            name = inner.name
            self._loop(name, f"{name}b", f"{name}e")
            self._column_cells(work, column)
            self._close(1)
            for n in work.reduces:
                total = f"t{n}[{lane}]"
                self._spread(
                    column, f"{total} = {c_combine(self.elements[n], total, f'a{n}[{lane}]')};"
                )
            self._close(2 + len(outer))
            self.of_columns = {}
        self._store_columns(level, column)

    def _compute_of_columns(self, work: Work, column: Axis) -> None:
        """What takes long and is the same for all cells of a column, into ``h{number}``."""
        numbers = self._slow_of_columns(work)
        if not numbers:
            return
        for n in numbers:
            self._line(f"{self._type(n)} h{n}[{LANES}];")
        self._open_columns(column)
        self._columns_known(numbers, column)
        found = {n: f"h{n}[{_lane(column)}]" for n in numbers}
        for n, element in found.items():
            self._line(f"{element} = v{n};")
        self._close(1)
        self.of_columns = found

    def _slow_of_columns(self, work: Work) -> list[int]:
        roots = self._roots(work)
        slow: set[int] = set()
        read = set(roots)
        for n in self.phases.closure(roots, set()):
            element = self.elements[n]
            own = set(self.phases.read_by(element))
            if self.phases.in_fiber(n):
                read |= own
            elif isinstance(element, Moment):
                slow.add(n)
            elif isinstance(element, Op):
                if SCALAR_OPS[element.op].cost >= SLOW or not slow.isdisjoint(own):
                    slow.add(n)
        return sorted(slow & read)

    def _column_cells(self, work: Work, column: Axis) -> None:
        """One cell of each column of a block."""
        self._load_columns(self._roots(work), column)
        self._open_columns(column)
        self._columns_known(self._roots(work), column)
        self.loaded = {}
        for n in work.reduces:
            element, total = self.elements[n], f"a{n}[{_lane(column)}]"
            assert isinstance(element, Reduce)
            self._line(f"{total} = {c_combine(element, total, f'v{element.arg}')};")
        for store in work.stores:
            self._store(store)
        self._close(1)

    def _store_columns(self, level: int, column: Axis) -> None:
        """What is stored once for each column after phase ``level``."""
        after = self.phases.stores(level, "fiber")
        if after:
            self._open_columns(column)
            self._columns_known([n for s in after for n in operands(s)], column)
            for store in after:
                self._store(store)
            self._close(1)

    def _load_columns(self, roots: list[int], column: Axis) -> None:
        """What has helpers that convert it, for all columns of a block, into ``wide{number}``."""
        body = self.phases.closure(roots, set(self.of_columns))
        loads = self._converted_loads(body, column.name, CONVERTED_WIDE)
        for n, _ in loads:
            self._line(f"f32 wide{n}[{LANES}];")
        if loads:
            left = f"(int)({column.name}e - {column.name}b) - h"
            self._open(f"for (int h = 0; h < {LANES} && {left} > 0; h += 16)")
            self._line(f"const i64 {column.name} = {column.name}b + h;")
            for n, e in loads:
                self._line(self._load_call(n, e, left))
            self._close(1)
        self.loaded = {n: f"wide{n}[{_lane(column)}]" for n, _ in loads}

    def _columns_known(self, roots: list[int], column: Axis) -> None:
        """Elements of one column, reductions read back from their vectors."""
        lane = _lane(column)
        body = self.phases.closure(roots, set(self.of_columns))
        if self.of_columns:
            read = set(roots).union(*(operands(self.elements[n]) for n in body))
            for n in sorted(read & self.of_columns.keys()):
                self._line(f"const {self._type(n)} v{n} = {self.of_columns[n]};")
        for n in body:
            element = self.elements[n]
            if isinstance(element, Reduce):
                self._line(f"const {self._type(n)} v{n} = t{n}[{lane}];")
            elif isinstance(element, Scan):
                total = f"c{n}[{lane}]"
                self._line(f"{total} = {c_combine(element, total, f'v{element.arg}')};")
                self._line(f"const {self._type(n)} v{n} = {total};")
            else:
                self._emit_elements([n])

    # --- few columns ---

    def walk_shared_columns(self) -> None:
        """The one block of columns, whose cells threads share by ``CELLS``: what is added up is
        what ``walk_columns`` adds, in the same order."""
        (column,) = self.kernel.axes
        name, columns = column.name, self._dim(column.extent)
        self._line(f"const i64 {name}b = 0, {name}e = {columns};")
        self._declare_totals()
        for level in range(self.phases.count):
            work = self._work(level, set())
            work.known.clear()
            if work:
                self._open("")
                self._compute_of_columns(work, column)
                self._pass_by_blocks(work, column, str(CELLS), self._block_of_cells)
                self._close(1)
                self.of_columns = {}
            self._store_columns(level, column)

    def _block_of_cells(self, work: Work, column: Axis, fiber: Axis) -> None:
        """The parts of one block of cells."""
        lane = _lane(column)
        for n in work.reduces:
            self._line(f"{self._type(n)} a{n}[{LANES}];")
            self._spread(column, f"a{n}[{lane}] = {c_identity(self.elements[n])};")
        self._loop(fiber.name, f"{fiber.name}b", f"{fiber.name}e")
        self._column_cells(work, column)
        self._close(1)
        for n in work.reduces:
            self._spread(column, f"q{n}[b * {LANES} + {lane}] = a{n}[{lane}];")

    def walk_folded_columns(self) -> None:
        """``fold`` cells of each fiber at a time: lane ``k * columns + c`` is column ``c`` of every
        ``fold``-th cell from the ``k``-th on. Threads share blocks of cells, whose results are
        combined in order, so that the result does not depend on the number of threads."""
        (column,) = self.kernel.axes
        name, columns = column.name, self._dim(column.extent)
        self._line(
            f"const i64 {name}b = 0, fold = {LANES} / ({columns}), width = fold * {columns};"
        )
        self._declare_totals()
        for level in range(self.phases.count):
            work = self._work(level, set())
            work.known.clear()
            if work:
                self._folded_pass(work, column)
            if self.phases.stores(level, "fiber"):
                self._open("")
                self._line(f"const i64 {name}e = {columns};")
                self._store_columns(level, column)
                self._close(1)

    def _declare_totals(self) -> None:
        for n in self._reductions():
            self._line(f"{total_type(self.elements[n])} t{n}[{LANES}];")

    def _reductions(self) -> list[int]:
        return [n for n, element in enumerate(self.elements) if isinstance(element, Reduce)]

    def _pass_by_blocks(
        self, work: Work, column: Axis, block: str, cells: Callable[[Work, Axis, Axis], None]
    ) -> None:
        """The reductions of one phase: a part of each block of cells, and one total of each lane.
        The brackets around it are the caller's."""
        (fiber,) = self.kernel.reduction_axes
        name, lane = fiber.name, _lane(column)
        self._line(f"const i64 cells = {self._dim(fiber.extent)}, block = {block};")
        self._line("const i64 blocks = (cells + block - 1) / block;")
        for n in work.reduces:
            kind = self._type(n)
            self._line(f"{kind} *q{n} = malloc(blocks * {LANES} * sizeof({kind}) + 1);")
        self._parallel_pass(1)
        self._loop("b", "0", "blocks")
        self._line(f"const i64 {name}b = b * block;")
        self._line(f"const i64 {name}e = {name}b + block < cells ? {name}b + block : cells;")
        cells(work, column, fiber)
        self._close(1)
        for n in work.reduces:
            element = self.elements[n]
            total, part = f"t{n}[{lane}]", f"q{n}[b * {LANES} + {lane}]"
            self._spread(column, f"{total} = {c_identity(element)};")
            self._loop("b", "0", "blocks")
            self._spread(column, f"{total} = {c_combine(element, total, part)};")
            self._close(1)
            self._line(f"free(q{n});")

    def _folded_pass(self, work: Work, column: Axis) -> None:
        """As ``_pass_by_blocks``; then each lane of a column gets its total."""
        start = self._dim(column.extent)
        self._open("")
        self._line(f"const i64 {column.name}e = width;")
        self.indices[column.name] = f"{column.name} % ({start})"
        self._compute_of_columns(work, column)
        self._pass_by_blocks(work, column, f"{CELLS} * fold", self._folded_block)
        for n in work.reduces:
            first = f"t{n}[l % ({start})]"
            self._line(
                f"for (i64 l = {start}; l < width; l++) "
                f"{first} = {c_combine(self.elements[n], first, f't{n}[l]')};"
            )
            self._line(f"for (i64 l = {start}; l < width; l++) t{n}[l] = {first};")
        self.of_columns = {}
        self._close(1)

    def _folded_block(self, work: Work, column: Axis, fiber: Axis) -> None:
        """The parts of the lanes of one block of cells."""
        name = fiber.name
        for n in work.reduces:
            self._line(f"{self._type(n)} a{n}[{LANES}];")
            self._line(
                f"for (int l = 0; l < {LANES}; l++) a{n}[l] = {c_identity(self.elements[n])};"
            )
        head = f"for (i64 {name} = {name}b; {name} < {name}e; {name} += fold)"
        self._open(head, name)
        left = f"({name}e - {name}) * {self._dim(column.extent)}"
        self._line(f"const i64 {column.name}e = {name} + fold <= {name}e ? width : {left};")
        self._column_cells(work, column)
        self._close(1)
        for n in work.reduces:
            self._line(f"for (int l = 0; l < {LANES}; l++) q{n}[b * {LANES} + l] = a{n}[l];")


def _lane(column: Axis) -> str:
    """The position of a column in its block."""
    return f"{column.name} - {column.name}b"
