"""A kernel as one C function.

In: a ``Kernel`` and a name. Out: text of ``void NAME(pointers, sizes, scalars)`` in the order of
the kernel's parameters; it uses the helpers of ``prelude.py``. Parallel axes are shared among
threads where there is enough work; the innermost axis with unit steps is vectorised. Reductions
have vectors of accumulators, by blocks, so that long fibers lose no precision; what is left of a
fiber goes sixteen at a time, the last under a mask. Read on: ``schedules.py``,
``reduction_phases.py``, ``c_columns.py``, ``c_loops.py``, ``c_lanes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from anyshape.ir.code import ArgType
from anyshape.ir.dtypes import float16
from anyshape.ir.loops import (
    SCALAR_OPS,
    Axis,
    Kernel,
    Load,
    Op,
    PointerParam,
    Reduce,
    ScalarParam,
    SizeParam,
    operands,
)
from anyshape.ir.variants import Variant
from anyshape.nouns import mutable, replace
from anyshape.symbolic import Dim, Expr
from anyshape.targets.cpu.c_cells import declared
from anyshape.targets.cpu.c_columns import ColumnPrinter
from anyshape.targets.cpu.c_lanes import WIDE, Work
from anyshape.targets.cpu.c_moments import moment_functions
from anyshape.targets.cpu.c_texts import ALONE, C_TYPES, STORAGE, c_identity, total_type
from anyshape.targets.cpu.schedules import KernelSchedule, Walk, analysed, variants
from anyshape.targets.cpu.sizes import to_c
from anyshape.targets.reduction_phases import step_of, thresholds, turned

CHUNK = 2048
"""Cells of the innermost axis that one thread takes at a time."""
BLOCK = 64
"""Cells that one accumulator of a lane takes before the total of its block is added."""
TILE = 64
"""Side of the tiles in which transposed operands are turned; ``as_turn`` knows it too."""
SCRATCH_BYTES = 262144
"""Fibers up to this size are kept on the stack between phases."""
VECTOR_BYTES = 512
"""What the last vector of a fiber may read and write behind what is kept: ``WIDE`` lanes."""


def emit_c(kernel: Kernel, name: str, ways: Sequence[Variant[KernelSchedule]] = ()) -> str:
    """The kernel as a C function, which runs the first of its variants that fits the sizes it is
    called with: those of ``variants(kernel)``, unless ``ways`` says others."""
    rounded = _rounding_once(kernel)
    ways = ways or variants(kernel)
    if not any(isinstance(p, SizeParam) and p.in_memory for p in kernel.params):
        return _by_value(rounded, name, ways)
    params = tuple(
        replace(p, in_memory=False) if isinstance(p, SizeParam) else p for p in kernel.params
    )
    inner = f"{name}_by_value"
    given = ", ".join(
        f"*{p.name}" if isinstance(p, SizeParam) and p.in_memory else p.name for p in kernel.params
    )
    head = f"void {name}({declared(kernel)})"
    text = _by_value(replace(rounded, params=params), inner, ways, ALONE)
    return f"{text}{head} {{\n  {inner}({given});\n}}\n"


def _by_value(
    kernel: Kernel, name: str, ways: Sequence[Variant[KernelSchedule]], linkage: str = ""
) -> str:
    """The function that is handed the values of all sizes."""
    known = ways[0].schedule.known
    if known is None or known[0].kernel is not kernel:
        known = analysed(kernel)
    phases, along = known
    splits = {} if along is None or kernel.ordered else thresholds(phases, along)
    shared = phases, declared(kernel), dict[Expr, str]()

    def function(name: str, way: Variant[KernelSchedule], linkage: str) -> str:
        printer = _Emitter(kernel, name, *shared, lane=along, splits=splits, linkage=linkage)
        return printer.text(way.schedule.walk)

    *chosen, last = ways
    if not chosen:
        return function(name, last, linkage)
    names = [f"{name}_{number}" for number in range(len(ways))]
    texts = [function(each, way, ALONE) for each, way in zip(names, ways, strict=True)]
    given = ", ".join(p.name for p in kernel.params)
    calls = [
        f"  if ({to_c(way.predicate)}) {{ {each}({given}); return; }}"
        for way, each in zip(chosen, names, strict=False)
    ]
    calls.append(f"  {names[-1]}({given});")
    head = f"{linkage}void {name}({shared[1]}) {{"
    return "".join(texts) + "\n".join((head, *calls, "}", ""))


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
    rounded = tuple(stores)
    return kernel if rounded == kernel.stores else replace(kernel, stores=rounded)


@mutable(eq=False)
class _Emitter(ColumnPrinter):
    linkage: str = ""  # what the function's text begins with
    started: set[int] = field(default_factory=set)

    def text(self, walk: Walk) -> str:
        """The function that walks the kernel so."""
        self.elements = list(self.kernel.elements)
        WALKS[walk](self)
        body = "\n".join(self.lines)
        again = moment_functions(self)
        if self.shared is None:
            return f"{again}{self.linkage}void {self.name}({self.parameters}) {{\n{body}\n}}\n"
        return again + self._with_threads(body)

    def _with_threads(self, body: str) -> str:
        """The body as a function of its own, called by one thread or by all: to start threads that
        are not needed costs more than a small kernel."""
        params, work = self.parameters, f"{self.name}_work"
        call = f"{work}({', '.join(p.name for p in self.kernel.params)});"
        return (
            f"{ALONE}void {work}({params}) {{\n{body}\n}}\n"
            f"{self.linkage}void {self.name}({params}) {{\n"
            f"  if (!({self.shared})) {{ {call} return; }}\n"
            f"  #pragma omp parallel\n  {call}\n}}\n"
        )

    # --- shapes of kernels ---

    def walk_in_order(self) -> None:
        """One cell after the other, where cells may write to one element."""
        axes = self.kernel.axes
        work = Work(stores=list(self.kernel.stores))
        if not axes or not self._writes_disjoint(axes[-1]):
            self._open_loops(axes)
            self._cells(work)
            self._close(len(axes))
            return
        self._open_loops(axes[:-1])
        known = self._outer_elements()
        self._emit_elements(known)
        work.known.update(known)
        self._lane_loop(axes[-1], "0", self._dim(axes[-1].extent), work)
        self._close(len(axes) - 1)

    def walk_cells(self) -> None:
        """Every cell on its own, with a vector over the last axis."""
        work = Work(stores=list(self.kernel.stores))
        *outer, inner = self.kernel.axes
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

    def _writes_disjoint(self, axis: Axis) -> bool:
        """Does each turn of this loop write to an element of its own, next to the last?"""
        return all(step_of(self.phases, s, axis.name) == 1 for s in self.kernel.stores)

    def walk_tiles(self) -> None:
        """Some loads run along another axis than the stores: square tiles, turned in registers."""
        *outer, inner = self.kernel.axes
        found = turned(self.phases, inner.name)
        assert found is not None
        across, loads = found
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
        at = f"({other.name} - {other.name}b) * {TILE} + {inner.name} - {inner.name}b"
        self.tiles[number] = f"w{number}[{at}]"

    def _chunked(self, axis: Axis) -> bool:
        return not isinstance(axis.extent, int) or axis.extent > 2 * CHUNK

    def _outer_elements(self) -> list[int]:
        """The elements that do not vary along the lane."""
        needed = self.phases.closure((n for s in self.kernel.stores for n in operands(s)), set())
        return [n for n in needed if self.lane not in self.phases.axes_of[n]]

    def walk_fibers(self) -> None:
        """The fiber is the vector: one position of the parallel axes at a time, phase by phase."""
        axes = self.kernel.axes
        self._find_kept()
        if self.kept:
            self._open("")
            self._scratch()
        self._parallel(len(axes))
        self._open_loops(axes)
        done: set[int] = set()
        for level in range(self.phases.count):
            self._fiber_elements(level, done)
            self._fiber_pass(level, done)
            for store in self.phases.stores(level, "fiber"):
                self._store(store)
        self._close(len(axes))
        self._free_scratch()

    def walk_one_fiber(self) -> None:
        """One fiber in all: each phase is shared among threads by blocks, whose results are
        combined in order, so that the result does not depend on the number of threads."""
        self._find_kept()
        if self.kept:
            self._open("")
            self._scratch()
        done: set[int] = set()
        for level in range(self.phases.count):
            self._fiber_elements(level, done)
            self._shared_pass(level, done)
            for store in self.phases.stores(level, "fiber"):
                self._store(store)
        self._free_scratch()

    def _fiber_elements(self, level: int, done: set[int]) -> None:
        """Elements that do not vary along the fiber and are known before phase ``level``."""
        phases = self.phases
        roots = [
            n
            for n in range(len(self.elements))
            if not phases.in_fiber(n) and phases.level[n] == level
        ]
        new = [n for n in phases.closure(roots, done) if not phases.in_fiber(n)]
        plain = [n for n in new if not isinstance(self.elements[n], Reduce)]
        self._emit_elements(plain)
        done.update(plain)

    def _fiber_pass(self, level: int, done: set[int]) -> None:
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
            self._fiber_pass_again(work, done)
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

    def _fiber_pass_again(self, work: Work, done: set[int]) -> None:
        """A scan over the only fiber runs in order."""
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

    # --- what is kept between phases ---

    def _find_kept(self) -> None:
        """Costly elements of a fiber that several phases need are kept instead of computed
        again."""
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
                and phases.in_fiber(n)
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


def _at_most(dim: Dim, limit: int) -> bool:
    return isinstance(dim, int) and dim <= limit


WALKS: Mapping[Walk, Callable[[_Emitter], None]] = {
    "cells": _Emitter.walk_cells,
    "tiles": _Emitter.walk_tiles,
    "in order": _Emitter.walk_in_order,
    "fibers": _Emitter.walk_fibers,
    "one fiber": _Emitter.walk_one_fiber,
    "columns": _Emitter.walk_columns,
    "shared columns": _Emitter.walk_shared_columns,
    "folded columns": _Emitter.walk_folded_columns,
}


def argument_types(kernel: Kernel) -> tuple[ArgType, ...]:
    """How a kernel's parameters are passed, in order."""
    kinds: dict[type, Callable[[Any], ArgType]] = {
        PointerParam: lambda _: "pointer",
        SizeParam: lambda param: "pointer" if param.in_memory else "int64",
        ScalarParam: lambda param: "double" if param.dtype.is_floating else "int64",
    }
    return tuple(kinds[type(param)](param) for param in kernel.params)
