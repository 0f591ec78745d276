"""The innermost loop of a kernel in C: vectorised, split, with vectors of accumulators.

In: an axis, the range it runs over, and the ``Work`` of each cell. Out: lines. A loop is cut where
conditions on its variable change, so that no cell decides them; cheap reductions keep several
vectors of partial results.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anyshape.codegen.c_cells import CellPrinter
from anyshape.codegen.c_texts import C_TYPES, c_combine, c_identity
from anyshape.codegen.passes import specialize
from anyshape.codegen.scalar import COSTS
from anyshape.ir.loops import Axis, Const, Element, Op, Reduce, Scan, Store, operands
from anyshape.symbolic import Dim

WIDE = 64
"""Accumulators of a cheap reduction."""
NARROW = 16
"""Accumulators of any other, and of short rows and what is left of long ones."""
HALF = 32
"""The same where bytes are read, as masks are."""
FEW = 4
"""So many accumulators are combined one by one: halving them once more is no faster."""


@dataclass(slots=True)
class Work:
    """What one loop does for each cell: ``known`` elements are variables already."""

    stores: list[Store] = field(default_factory=list)
    reduces: list[int] = field(default_factory=list)
    keep: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.stores or self.reduces or self.keep)


@dataclass(slots=True, eq=False)
class LanePrinter(CellPrinter):
    """Prints innermost loops. ``splits`` are the places where conditions on the lane change."""

    lane: str | None = field(init=False)
    splits: dict[Dim, dict[int, bool]] = field(default_factory=dict)

    def _segments(self, axis: Axis, start: str, end: str, work: Work) -> None:
        """The lane loop, cut where conditions on the lane change, so that no cell decides them."""
        body = set(self.passes.closure(self._roots(work), work.known))
        places = [p for p, truths in self.splits.items() if not body.isdisjoint(truths)]
        whole = self.elements
        plain = self._with_kept(work)
        self.elements = plain
        before = start
        self._open("")
        for number, place in enumerate([*places, None]):
            after = end
            if place is not None:
                after = self._clamped(axis, number, place, before, end)
            if places:
                self.elements = specialize(plain, self._truths(places, number))
            self._open("")
            self._lane_loop(axis, before, after, work)
            self._close(1)
            before = after
        self._close(1)
        self.elements = whole

    def _with_kept(self, work: Work) -> list[Element]:
        """The elements, those that an earlier pass has kept without what they are made of."""
        return [
            Const(0, e.dtype) if n in self.kept and n not in work.keep else e
            for n, e in enumerate(self.elements)
        ]

    def _clamped(self, axis: Axis, number: int, place: Dim, low: str, high: str) -> str:
        name = f"{axis.name}c{number}"
        self._line(f"i64 {name} = {self._dim(place)};")
        self._line(f"{name} = {name} < {low} ? {low} : {name} > {high} ? {high} : {name};")
        return name

    def _truths(self, places: list[Dim], segment: int) -> dict[int, bool]:
        """The conditions known in a segment: it lies below the places from ``segment`` on."""
        truths: dict[int, bool] = {}
        for number, place in enumerate(places):
            for condition, below in self.splits[place].items():
                truths[condition] = below if segment <= number else not below
        return truths

    def _lane_loop(self, axis: Axis, start: str, end: str, work: Work) -> None:
        body = self.passes.closure(self._roots(work), work.known, self.elements)
        if self._scans(work):
            self._open(f"for (i64 {axis.name} = {start}; {axis.name} < {end}; {axis.name}++)")
            self._cell(work, body, "a{0}")
            self._close(1)
            return
        if work.reduces:
            self._reducing_loops(axis, start, end, work, body)
            return
        self._line("#pragma omp simd")
        self._open(f"for (i64 {axis.name} = {start}; {axis.name} < {end}; {axis.name}++)")
        self._cell(work, body, "a{0}")
        self._close(1)

    def _reducing_loops(
        self, axis: Axis, start: str, end: str, work: Work, body: list[int]
    ) -> None:
        """A loop with several vectors of accumulators, so that one addition need not wait for the
        last, one with fewer for what is left, and one cell at a time for what is left then."""
        name, first = axis.name, f"{axis.name}w"
        self._line(f"i64 {first} = {start};")
        for lanes, least in self._vectors(work):
            if not isinstance(axis.extent, int) or axis.extent >= least:
                self._vector_loop(name, end, lanes, least, work, body)
        self._open(f"for (i64 {name} = {first}; {name} < {end}; {name}++)")
        self._cell(work, body, "a{0}")
        self._close(1)

    def _vectors(self, work: Work) -> list[tuple[int, int]]:
        """(accumulators of a loop, cells that it is worth it for): several vectors where the
        addition is what takes time. Beside bytes, fewer than HALF are no vector for GCC.
        """
        body = self.passes.closure(self._roots(work), work.known)
        least = min((self.elements[n].dtype.size_bytes for n in body), default=4)
        if least == 1:
            return [(lanes, lanes) for lanes in (WIDE, HALF, NARROW)]
        costs = [COSTS.get(e.op, 1) for n in body if isinstance(e := self.elements[n], Op)]
        cheap = sum(costs) <= 12 and max(costs, default=0) < 8
        width = WIDE if cheap and not self.splits else max(NARROW, WIDE // least)
        return [*([(width, 2 * width)] if width > NARROW else []), (NARROW, NARROW)]

    def _vector_loop(
        self, name: str, end: str, width: int, least: int, work: Work, body: list[int]
    ) -> None:
        """As many cells at a time as there are accumulators, where there are at least so many."""
        first = f"{name}w"
        self._open(f"if ({end} - {first} >= {least})")
        for n in work.reduces:
            self._line(f"{self._type(n)} b{n}[{width}];")
            self._line(
                f"for (int l = 0; l < {width}; l++) b{n}[l] = {c_identity(self.elements[n])};"
            )
        self._open(f"for (; {first} + {width} <= {end}; {first} += {width})")
        self._line("#pragma omp simd")
        self._open(f"for (int l = 0; l < {width}; l++)")
        self._line(f"const i64 {name} = {first} + l;")
        self._cell(work, body, "b{0}[l]")
        self._close(2)
        for n in work.reduces:
            half = c_combine(self.elements[n], f"b{n}[l]", f"b{n}[l + h]")
            self._line(
                f"for (int h = {width // 2}; h >= {FEW}; h /= 2) "
                f"for (int l = 0; l < h; l++) b{n}[l] = {half};"
            )
        for lane in range(FEW):
            self._combine_into(work.reduces, "a{0}", f"b{{0}}[{lane}]")
        self._close(1)

    def _cells(self, work: Work) -> None:
        self._cell(work, self.passes.closure(self._roots(work), work.known), "a{0}")

    def _cell(self, work: Work, body: list[int], accumulator: str) -> None:
        """One cell: its elements, its part in each reduction, its stores."""
        self._emit_elements(body, work.keep)
        for n in work.reduces:
            element = self.elements[n]
            assert isinstance(element, Reduce)
            total = accumulator.format(n)
            self._line(f"{total} = {c_combine(element, total, f'v{element.arg}')};")
        for store in work.stores:
            self._store(store)

    def _combine_into(self, reduces: list[int], target: str, part: str) -> None:
        for n in reduces:
            a, b = target.format(n), part.format(n)
            self._line(f"{a} = {c_combine(self.elements[n], a, b)};")

    def _scans(self, work: Work) -> list[int]:
        body = self.passes.closure(self._roots(work), work.known)
        return [n for n in body if isinstance(self.elements[n], Scan)]

    def _roots(self, work: Work) -> list[int]:
        roots = self.passes.reduced_by(work.reduces)
        return roots + [n for s in work.stores for n in operands(s)] + work.keep

    def _type(self, number: int) -> str:
        return C_TYPES[self.kernel.elements[number].dtype.name]
