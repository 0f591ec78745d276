"""A kernel as one C function.

In: a ``Kernel`` and a name. Out: text of ``void NAME(pointers, sizes, scalars)`` in the order of
the kernel's parameters; it uses the helpers of ``c_prelude()``. Parallel axes are shared among
threads where there is enough work; the innermost axis with unit steps is vectorised. Reductions
have vectors of accumulators, by blocks, so that long rows lose no precision; what is left of a row
goes sixteen at a time, the last under a mask. Read on: ``reduction_phases.py``, ``c_lanes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anyshape.costs import COSTS
from anyshape.ir.dtypes import float16
from anyshape.ir.loops import (
    SCALAR_OPS,
    Axis,
    Kernel,
    Load,
    Op,
    Reduce,
    Scan,
    operands,
)
from anyshape.symbolic import Dim
from anyshape.targets.cpu.c_lanes import CONVERTED_WIDE, WIDE, LanePrinter, Work
from anyshape.targets.cpu.c_texts import (
    C_TYPES,
    STORAGE,
    c_combine,
    c_identity,
    total_type,
)
from anyshape.targets.cpu.prelude import prelude
from anyshape.targets.reduction_phases import analyse, lane, step_of, thresholds, turned

CHUNK = 2048
"""Cells of the innermost axis that one thread takes at a time."""
BLOCK = 64
"""Cells that one accumulator of a lane takes before the total of its block is added."""
ROWS = 128
"""Cells of a strided row that are summed in the elements' own type."""
LANES = 64
"""Columns that a reduction over a strided row keeps at a time."""
TILE = 64
"""Side of the tiles in which transposed operands are turned; ``as_turn`` knows it too."""
SCRATCH_BYTES = 262144
"""Rows up to this size are kept on the stack between phases."""
VECTOR_BYTES = 512
"""What the last vector of a row may read and write behind what is kept: ``WIDE`` lanes."""


def c_prelude() -> str:
    """Text that must come before any kernel."""
    return prelude()


def emit_c(kernel: Kernel, name: str) -> str:
    """The kernel as a C function."""
    return _Emitter(_rounding_once(kernel), name).text()


def _rounding_once(kernel: Kernel) -> Kernel:
    """``store(cast(x, float16))`` -> ``store(x)``: stores of float16 round by themselves."""
    stores = []
    for store in kernel.stores:
        value = kernel.elements[store.value]
        if (
            isinstance(value, Op)
            and value.op == "cast"
            and value.dtype is float16
            and store.mode == "set"
            and kernel.pointer(store.pointer).dtype is float16
        ):
            store = replace(store, value=value.args[0])
        stores.append(store)
    return replace(kernel, stores=tuple(stores))


@dataclass(slots=True, eq=False)
class _Emitter(LanePrinter):
    started: set[int] = field(default_factory=set)
    shared: str | None = None  # when the whole body is worth sharing among threads

    def text(self) -> str:
        kernel = self.kernel
        self.phases = analyse(kernel)
        self.elements = list(kernel.elements)
        self.lane = lane(kernel, self.phases)
        if self.lane is not None and not kernel.ordered:
            self.splits = thresholds(self.phases, self.lane)
        params = ", ".join(self._param(p) for p in kernel.params) or "void"
        if not kernel.reduction_axes:
            self._map()
        elif self.lane != kernel.reduction_axes[-1].name:
            self._by_column()
        elif kernel.axes:
            self._by_row()
        else:
            self._whole()
        body = "\n".join(self.lines)
        if self.shared is None:
            return f"void {self.name}({params}) {{\n{body}\n}}\n"
        return self._with_threads(params, body)

    def _with_threads(self, params: str, body: str) -> str:
        """The body as a function of its own, called by one thread or by all: to start threads that
        are not needed costs more than a small kernel."""
        work = f"{self.name}_work"
        call = f"{work}({', '.join(p.name for p in self.kernel.params)});"
        return (
            f"static __attribute__((noinline)) void {work}({params}) {{\n{body}\n}}\n"
            f"void {self.name}({params}) {{\n"
            f"  if (!({self.shared})) {{ {call} return; }}\n"
            f"  #pragma omp parallel\n  {call}\n}}\n"
        )

    # --- shapes of kernels ---

    def _map(self) -> None:
        """No rows: every cell on its own."""
        axes = self.kernel.axes
        work = Work(stores=list(self.kernel.stores))
        if axes and self.kernel.ordered and self._writes_apart(axes[-1]):
            self._open_loops(axes[:-1])
            known = self._outer_elements()
            self._emit_elements(known)
            work.known.update(known)
            self._lane_loop(axes[-1], "0", self._dim(axes[-1].extent), work)
            self._close(len(axes) - 1)
            return
        if not axes or self.kernel.ordered:
            self._open_loops(axes)
            self._cells(work)
            self._close(len(axes))
            return
        *outer, inner = axes
        across = turned(self.phases, inner.name)
        if across is not None:
            self._turned_map(inner, *across)
            return
        chunked = self._chunked(inner)
        self._parallel(len(outer) + chunked)
        self._open_loops(outer)
        start, end = "0", self._dim(inner.extent)
        if chunked:
            start, end = self._open_blocks(inner, CHUNK)
        known = self._outer_elements()
        self._emit_elements(known)
        work.known.update(known)
        self._segments(inner, start, end, work)
        self._close(len(outer) + chunked)

    def _writes_apart(self, axis: Axis) -> bool:
        """Does each turn of this loop write to a place of its own, next to the last?"""
        return all(step_of(self.phases, s, axis.name) == 1 for s in self.kernel.stores)

    def _turned_map(self, inner: Axis, across: str, loads: list[int]) -> None:
        """Some loads run along another axis than the stores: square tiles, turned in registers."""
        *outer, inner = self.kernel.axes
        others = [axis for axis in outer if axis.name != across]
        other = next(axis for axis in outer if axis.name == across)
        self._parallel(len(outer) + 1)
        self._open_loops(others)
        name = inner.name
        self._blocks(other, TILE)
        self._blocks(inner, TILE)
        for axis in (other, inner):
            extent, end = self._dim(axis.extent), f"{axis.name}e"
            self._line(
                f"i64 {end} = {axis.name}b + {TILE} < {extent} ? {axis.name}b + {TILE} : {extent};"
            )
        for n in loads:
            self._load_tile(n, other, inner)
        self._loop(across, f"{across}b", f"{across}e")
        known = [n for n in self._outer_elements() if n not in loads]
        self._emit_elements(known)
        work = Work(stores=list(self.kernel.stores), known=set(known))
        self._segments(inner, f"{name}b", f"{name}e", work)
        self._close(3 + len(others))

    def _load_tile(self, number: int, other: Axis, inner: Axis) -> None:
        """Loads a tile of a transposed operand; its element is then read from the tile."""
        element = self.kernel.elements[number]
        assert isinstance(element, Load)
        storage, size = STORAGE[element.dtype.name], element.dtype.size_bytes
        word = f"u{8 * size}"
        step = step_of(self.phases, element, inner.name)
        assert step is not None
        self._line(f"{storage} w{number}[{TILE * TILE}];")
        self._open("")
        for axis in (other, inner):
            self._line(f"const i64 {axis.name} = {axis.name}b;")
        self._line(
            f"as_turn_{word}((const {word}_u *)({element.pointer} + ({self._dim(element.index)})), "
            f"{self._dim(step)}, {other.name}e - {other.name}b, {inner.name}e - {inner.name}b, "
            f"({word} *)w{number});"
        )
        self._close(1)
        place = f"({other.name} - {other.name}b) * {TILE} + {inner.name} - {inner.name}b"
        self.tiles[number] = f"w{number}[{place}]"

    def _chunked(self, axis: Axis) -> bool:
        return not isinstance(axis.extent, int) or axis.extent > 2 * CHUNK

    def _open_blocks(self, axis: Axis, size: int) -> tuple[str, str]:
        name, extent = axis.name, self._dim(axis.extent)
        self._blocks(axis, size)
        self._line(f"i64 {name}e = {name}b + {size} < {extent} ? {name}b + {size} : {extent};")
        return f"{name}b", f"{name}e"

    def _blocks(self, axis: Axis, size: int) -> None:
        name = axis.name
        head = f"for (i64 {name}b = 0; {name}b < {self._dim(axis.extent)}; {name}b += {size})"
        self._open(head, name)

    def _outer_elements(self) -> list[int]:
        """The elements that do not vary along the lane."""
        needed = self.phases.closure((n for s in self.kernel.stores for n in operands(s)), set())
        return [n for n in needed if self.lane not in self.phases.axes_of[n]]

    def _by_row(self) -> None:
        """The row is the vector: one place of the parallel axes at a time, phase by phase."""
        axes = self.kernel.axes
        self._find_kept()
        self._parallel(len(axes), scratch=bool(self.kept))
        self._open_loops(axes)
        done: set[int] = set()
        for level in range(self.phases.count):
            self._row_elements(level, done)
            self._row_pass(level, done)
            for store in self.phases.stores(level, "row"):
                self._store(store)
        self._close(len(axes))
        self._free_scratch()

    def _whole(self) -> None:
        """One row in all: each phase is shared among threads by blocks, whose results are combined
        in order, so that the result does not depend on the number of threads."""
        self._find_kept()
        if self.kept:
            self._open("")
            self._scratch()
        done: set[int] = set()
        for level in range(self.phases.count):
            self._row_elements(level, done)
            self._shared_pass(level, done)
            for store in self.phases.stores(level, "row"):
                self._store(store)
        self._free_scratch()

    def _row_elements(self, level: int, done: set[int]) -> None:
        """Elements that do not vary along the row and are known before phase ``level``."""
        phases = self.phases
        roots = [
            n
            for n in range(len(self.elements))
            if not phases.in_row(n) and phases.level[n] == level
        ]
        new = [n for n in phases.closure(roots, done) if not phases.in_row(n)]
        plain = [n for n in new if not isinstance(self.elements[n], Reduce)]
        self._emit_elements(plain)
        done.update(plain)

    def _work(self, level: int, done: set[int]) -> Work:
        """What a phase computes for each cell."""
        phases = self.phases
        return Work(
            stores=phases.stores(level, "cell"),
            reduces=phases.reduces(level),
            keep=[n for n in self.kept if phases.level[n] == level],
            known=done | self._known_rows(level),
        )

    def _known_rows(self, level: int) -> set[int]:
        """Reductions of earlier phases: their values are variables already."""
        return {
            n
            for n, e in enumerate(self.elements)
            if isinstance(e, Reduce) and self.phases.level[n] <= level
        }

    def _row_pass(self, level: int, done: set[int]) -> None:
        kernel, work = self.kernel, self._work(level, done)
        self._declare(work.reduces, "d", total=True)
        if not work:
            return
        self._start_scans(work)
        *outer, inner = kernel.reduction_axes
        self._open_loops(outer)
        start, end = "0", self._dim(inner.extent)
        block = BLOCK * self._vectors(work)[0][0]
        blocked = bool(work.reduces) and not _at_most(inner.extent, block)
        if blocked:
            start, end = self._open_blocks(inner, block)
        self._declare(work.reduces, "a")
        self._segments(inner, start, end, work)
        self._combine_into(work.reduces, "d{0}", "a{0}")
        self._close(blocked + len(outer))
        self._name_totals(work)
        done.update(work.reduces)

    def _shared_pass(self, level: int, done: set[int]) -> None:
        kernel, work = self.kernel, self._work(level, done)
        self._declare(work.reduces, "d", total=True)
        if not work:
            return
        if self._scans(work):
            self._row_pass_again(work, done)
            return
        *outer, inner = kernel.reduction_axes
        extent, block = self._dim(inner.extent), BLOCK * WIDE
        units, unit = f"(({extent} + {block - 1}) / {block})", f"{inner.name}b / {block}"
        for axis in reversed(outer):
            unit = f"{axis.name} * {units} + {unit}"
            units = f"({self._dim(axis.extent)}) * {units}"
        for n in work.reduces:
            self._line(f"{self._type(n)} *q{n} = malloc({units} * sizeof({self._type(n)}) + 1);")
        self._parallel_pass(len(outer) + 1)
        self._open_loops(outer)
        start, end = self._open_blocks(inner, block)
        self._declare(work.reduces, "a")
        self._segments(inner, start, end, work)
        for n in work.reduces:
            self._line(f"q{n}[{unit}] = a{n};")
        self._close(len(outer) + 1)
        if work.reduces:
            self._open(f"for (i64 u = 0; u < {units}; u++)")
            self._combine_into(work.reduces, "d{0}", "q{0}[u]")
            self._close(1)
        self._name_totals(work)
        for n in work.reduces:
            self._line(f"free(q{n});")
        done.update(work.reduces)

    def _row_pass_again(self, work: Work, done: set[int]) -> None:
        """A scan over the only row runs in order."""
        self._start_scans(work)
        *outer, inner = self.kernel.reduction_axes
        self._open_loops(outer)
        self._declare(work.reduces, "a", total=True)
        self._segments(inner, "0", self._dim(inner.extent), work)
        self._combine_into(work.reduces, "d{0}", "a{0}")
        self._close(len(outer))
        self._name_totals(work)
        done.update(work.reduces)

    def _start_scans(self, work: Work) -> None:
        """A scan that several phases need runs again in each."""
        for n in self._scans(work):
            kind = "" if n in self.started else f"{total_type(self.elements[n])} "
            self._line(f"{kind}c{n} = {c_identity(self.elements[n])};")
            self.started.add(n)

    def _declare(self, reduces: list[int], letter: str, total: bool = False) -> None:
        for n in reduces:
            element = self.elements[n]
            kind = total_type(element) if total else self._type(n)
            self._line(f"{kind} {letter}{n} = {c_identity(element)};")

    def _name_totals(self, work: Work) -> None:
        for n in work.reduces:
            self._line(f"const {self._type(n)} v{n} = d{n};")

    # --- rows that are strided ---

    def _by_column(self) -> None:
        """The row is strided: ``LANES`` neighbouring rows at a time, with a vector over them."""
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
        work, place = self._work(level, set()), _lane(column)
        if work:
            work.known.clear()
            *outer, inner = self.kernel.reduction_axes
            for n in self._scans(work):
                self._spread(column, f"c{n}[{place}] = {c_identity(self.elements[n])};")
            self._open_loops(outer)
            self._open_blocks(inner, ROWS)
            for n in work.reduces:
                self._spread(column, f"a{n}[{place}] = {c_identity(self.elements[n])};")
            name = inner.name
            self._loop(name, f"{name}b", f"{name}e")
            self._load_columns(self._roots(work), column)
            self._open_columns(column)
            self._columns_known(self._roots(work), column)
            self.loaded = {}
            for n in work.reduces:
                element, total = self.elements[n], f"a{n}[{place}]"
                assert isinstance(element, Reduce)
                self._line(f"{total} = {c_combine(element, total, f'v{element.arg}')};")
            for store in work.stores:
                self._store(store)
            self._close(2)
            for n in work.reduces:
                total = f"t{n}[{place}]"
                self._spread(
                    column, f"{total} = {c_combine(self.elements[n], total, f'a{n}[{place}]')};"
                )
            self._close(1 + len(outer))
        after = self.phases.stores(level, "row")
        if after:
            self._open_columns(column)
            self._columns_known([n for s in after for n in operands(s)], column)
            for store in after:
                self._store(store)
            self._close(1)

    def _load_columns(self, roots: list[int], column: Axis) -> None:
        """What has helpers that convert it, for all columns of a block, into ``x{number}``."""
        body = self.phases.closure(roots, set())
        loads = self._converted_loads(body, column.name, CONVERTED_WIDE)
        for n, _ in loads:
            self._line(f"f32 x{n}[{LANES}];")
        if loads:
            left = f"(int)({column.name}e - {column.name}b) - h"
            self._open(f"for (int h = 0; h < {LANES} && {left} > 0; h += 16)")
            self._line(f"const i64 {column.name} = {column.name}b + h;")
            for n, e in loads:
                self._line(self._load_call(n, e, left))
            self._close(1)
        self.loaded = {n: f"x{n}[{_lane(column)}]" for n, _ in loads}

    def _columns_known(self, roots: list[int], column: Axis) -> None:
        """Elements of one column, reductions read back from their vectors."""
        place = _lane(column)
        for n in self.phases.closure(roots, set()):
            element = self.elements[n]
            if isinstance(element, Reduce):
                self._line(f"const {self._type(n)} v{n} = t{n}[{place}];")
            elif isinstance(element, Scan):
                total = f"c{n}[{place}]"
                self._line(f"{total} = {c_combine(element, total, f'v{element.arg}')};")
                self._line(f"const {self._type(n)} v{n} = {total};")
            else:
                self._emit_elements([n])

    # --- what is kept between phases ---

    def _find_kept(self) -> None:
        """Costly elements of a row that several phases need are kept instead of computed again."""
        phases, kernel = self.phases, self.kernel
        if phases.count < 2 or len(kernel.reduction_axes) != 1:
            return
        used: dict[int, set[int]] = {}
        for level in range(phases.count):
            roots = phases.reduced_by(phases.reduces(level))
            roots += [n for s in phases.stores(level, "cell") for n in operands(s)]
            for n in phases.closure(roots, set()):
                used.setdefault(n, set()).add(level)
        for n, element in enumerate(kernel.elements):
            if (
                isinstance(element, Op)
                and SCALAR_OPS[element.op].cost >= 8
                and phases.in_row(n)
                and len(used.get(n, ())) > 1
            ):
                self.kept[n] = f"s{n}"

    def _scratch(self) -> None:
        extent = f"({self._dim(self.kernel.reduction_axes[0].extent)})"
        for n, name in self.kept.items():
            kind = C_TYPES[self.kernel.elements[n].dtype.name]
            self._line(
                f"{kind} *{name} = {extent} * sizeof({kind}) <= {SCRATCH_BYTES} ? "
                f"__builtin_alloca({extent} * sizeof({kind}) + {VECTOR_BYTES}) : "
                f"malloc({extent} * sizeof({kind}) + {VECTOR_BYTES});"
            )
            self._line(f"__builtin_memset({name} + {extent}, 0, {VECTOR_BYTES});")

    def _free_scratch(self) -> None:
        if not self.kept:
            return
        extent = f"({self._dim(self.kernel.reduction_axes[0].extent)})"
        for n, name in self.kept.items():
            kind = C_TYPES[self.kernel.elements[n].dtype.name]
            self._line(f"if ({extent} * sizeof({kind}) > {SCRATCH_BYTES}) free({name});")
        self._close(1)

    # --- loops ---

    def _parallel(self, loops: int, scratch: bool = False) -> None:
        """The pragma for the nest of ``loops`` parallel loops that is all of the kernel, if there
        is anything to share: threads share it where the kernel is called by several."""
        self.shared = self._enough_work() if loops else None
        if scratch:
            self._open("")
            self._scratch()
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
        cost = sum(
            SCALAR_OPS[e.op].cost if isinstance(e, Op) else 1
            for e in self.kernel.elements
            if isinstance(e, (Op, Load, Reduce))
        )
        least = COSTS.cells_for_threads(cost)
        cells: Dim = 1
        for axis in (*self.kernel.axes, *self.kernel.reduction_axes):
            cells = cells * axis.extent
        if isinstance(cells, int):
            return "1" if cells > least else None
        return f"{self._dim(cells)} > {least}"

    def _open_loops(self, axes: tuple[Axis, ...] | list[Axis]) -> None:
        for axis in axes:
            self._loop(axis.name, "0", self._dim(axis.extent))


def _lane(column: Axis) -> str:
    """The place of a column in its block."""
    return f"{column.name} - {column.name}b"


def _at_most(dim: Dim, limit: int) -> bool:
    return isinstance(dim, int) and dim <= limit
