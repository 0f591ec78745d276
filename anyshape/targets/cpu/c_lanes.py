"""The innermost loop of a kernel in C: vectorised, split, with vectors of accumulators.

In: an axis, the range it runs over, and the ``Work`` of each cell. Out: lines. A loop is cut where
conditions on its variable change, so that no cell decides them; cheap reductions keep several
vectors of partial results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from anyshape.ir.dtypes import bool_
from anyshape.ir.loops import (
    SCALAR_OPS,
    Axis,
    Const,
    Element,
    Load,
    Op,
    Reduce,
    Scan,
    Store,
    operands,
)
from anyshape.nouns import frozen, mutable
from anyshape.symbolic import Dim
from anyshape.targets.cpu.c_cells import CellPrinter
from anyshape.targets.cpu.c_texts import (
    C_TYPES,
    HALF,
    JOINED_TRUTHS,
    TRUTHS_OPERATORS,
    c_combine,
    c_identity,
    c_join,
)
from anyshape.targets.reduction_phases import specialize, step_of

WIDE = 64
"""Accumulators of a cheap reduction."""
NARROW = 16
"""Accumulators of any other, and of short fibers and what is left of long ones."""
BYTES = 32
"""The same where bytes are read, as masks are."""
FEW = 4
"""Fewer cells of a fiber are done one by one: to combine accumulators would take longer."""
CONVERTED = ("float16", "bfloat16")
"""What GCC makes poor vectors of when it converts: there are helpers for sixteen at a time."""
CONVERTED_WIDE = ("float16",)
"""The same where vectors are wider than NARROW."""


MANY = 1 << 63
"""More cells than any loop has."""


@frozen
class Count:
    """What is known of how many cells are to be done: ``most`` at most, a multiple of ``multiple``.
    A loop of 48 cells by 16 leaves none, and needs no text for what is left."""

    most: int = MANY
    multiple: int = 1

    def after(self, lanes: int, least: int) -> Count:
        """Those left by a loop of ``lanes`` at a time that runs where there are ``least``."""
        if self.most < least:
            return self
        if self.most == self.multiple:  # as many as that, or none
            return Count(self.most % lanes, self.most % lanes)
        return self.below(max(lanes, least), math.gcd(self.multiple, lanes))

    def below(self, limit: int, multiple: int) -> Count:
        """Those that are fewer than ``limit``, and a multiple of ``multiple``."""
        most = min(self.most, limit - 1)
        return Count(most - most % (multiple or 1), multiple)


@mutable
class Work:
    """What one loop does for each cell: ``known`` elements are variables already."""

    stores: list[Store] = field(default_factory=list)
    reduces: list[int] = field(default_factory=list)
    keep: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.stores or self.reduces or self.keep)


@mutable(eq=False)
class LanePrinter(CellPrinter):
    """Prints innermost loops. ``splits`` are the positions where conditions on the lane change."""

    lane: str | None = None
    splits: dict[Dim, dict[int, bool]] = field(default_factory=dict)

    def _segments(self, axis: Axis, start: str, end: str, work: Work) -> None:
        """The lane loop, cut where conditions on the lane change, so that no cell decides them."""
        body = set(self.phases.closure(self._roots(work), work.known))
        positions = [p for p, truths in self.splits.items() if not body.isdisjoint(truths)]
        whole = self.elements
        plain = self._with_kept(work)
        self.elements = plain
        before = start
        self._open("")
        for number, position in enumerate([*positions, None]):
            after = end
            if position is not None:
                after = self._clamped(axis, number, position, before, end)
            if positions:
                self.elements = specialize(plain, self._truths(positions, number))
            self._open("")
            self._lane_loop(axis, before, after, work)
            self._close(1)
            before = after
        self._close(1)
        self.elements = whole

    def _with_kept(self, work: Work) -> list[Element]:
        """The elements, those that an earlier phase has kept without what they are made of."""
        return [
            Const(0, e.dtype) if n in self.kept and n not in work.keep else e
            for n, e in enumerate(self.elements)
        ]

    def _clamped(self, axis: Axis, number: int, position: Dim, low: str, high: str) -> str:
        name = f"{axis.name}c{number}"
        self._line(f"i64 {name} = {self._dim(position)};")
        self._line(f"{name} = {name} < {low} ? {low} : {name} > {high} ? {high} : {name};")
        return name

    def _truths(self, positions: list[Dim], segment: int) -> dict[int, bool]:
        """The conditions known in a segment: it lies below the positions from ``segment`` on."""
        truths: dict[int, bool] = {}
        for number, position in enumerate(positions):
            for condition, below in self.splits[position].items():
                truths[condition] = below if segment <= number else not below
        return truths

    def _lane_loop(self, axis: Axis, start: str, end: str, work: Work) -> None:
        body = self.phases.closure(self._roots(work), work.known, self.elements)
        if self._scans(work):
            self._loop(axis.name, start, end)
            self._cell(work, body, "a{0}")
            self._close(1)
            return
        if work.reduces:
            self._reducing_loops(axis, start, end, work, body)
            return
        if axis in self.kernel.reduction_axes or self._converts(axis, work, body):
            self._line(f"i64 {axis.name}w = {start};")
            count, lanes = self._count(axis, start, end), NARROW
            for lanes, _ in self._vectors(work):
                count = self._full_vectors(axis.name, end, lanes, work, body, count)
            self._last_vector(axis.name, end, lanes, work, body, count)
            return
        self._line("#pragma omp simd")
        self._loop(axis.name, start, end)
        self._cell(work, body, "a{0}")
        self._close(1)

    def _count(self, axis: Axis, start: str, end: str) -> Count:
        """How many cells a loop from ``start`` to ``end`` has: all of an axis, one of its blocks,
        whose length is a multiple of WIDE, or of either the part between two splits."""
        extent = axis.extent
        if not isinstance(extent, int):
            return Count()
        if (start, end) == ("0", self._dim(extent)):
            return Count(extent, extent)
        blocked = (start, end) == (f"{axis.name}b", f"{axis.name}e")
        return Count(extent, math.gcd(extent, WIDE) if blocked else 1)

    def _converts(self, axis: Axis, work: Work, body: Sequence[int]) -> bool:
        """Are there vectors of conversions for which there are helpers?"""
        if self.kernel.ordered:
            return False
        if self._converted_loads(body, axis.name, CONVERTED_WIDE):
            return True
        stores = [s for s in work.stores if s.mask is None and s.mode == "set"]
        return any(
            self._near(s, axis.name, CONVERTED_WIDE) and _is_addressed_before(s, body)
            for s in stores
        )

    def _reducing_loops(
        self, axis: Axis, start: str, end: str, work: Work, body: Sequence[int]
    ) -> None:
        """A loop with several vectors of accumulators, so that one addition need not wait for the
        last, then one with fewer, whose last turn takes what is left under a mask."""
        if not self.kernel.axes and self._are_plain_truths(axis, work, body):
            self._loop_of_truths(axis, start, end, work, body)
            return
        first = f"{axis.name}w"
        self._line(f"i64 {first} = {start};")
        *wide, (narrow, _) = self._vectors(work)
        count = self._count(axis, start, end)
        for lanes, least in wide:
            if count.most >= least:
                self._open(f"if ({end} - {first} >= {least})")
                self._accumulators(work, lanes)
                self._full_vectors(axis.name, end, lanes, work, body, count)
                self._combine_lanes(work, lanes)
                self._close(1)
            count = count.after(lanes, least)
        few = FEW if self.kernel.axes or not self._are_truths(work) else 1
        if count.most >= few:
            self._open(f"if ({end} - {first} >= {few})")
            self._accumulators(work, narrow)
            left = self._full_vectors(axis.name, end, narrow, work, body, count)
            self._last_vector(axis.name, end, narrow, work, body, left)
            self._combine_lanes(work, narrow)
            self._line(f"{first} = {end};")
            self._close(1)
            count = count.below(few, count.multiple)
        if count.most:
            self._loop(axis.name, first, end)
            self._cell(work, body, "a{0}")
            self._close(1)

    def _are_plain_truths(self, axis: Axis, work: Work, body: Sequence[int]) -> bool:
        """Is every total a truth, of what needs no helper to be loaded?"""
        converted = self._converted_loads(body, axis.name, CONVERTED_WIDE)
        return not converted and self._are_truths(work)

    def _loop_of_truths(
        self, axis: Axis, start: str, end: str, work: Work, body: Sequence[int]
    ) -> None:
        """One loop whose totals GCC keeps in vectors, as their order changes nothing: it is
        compiled in half of the time of a loop of vectors and one of what is left, and as fast."""
        totals: dict[str, list[str]] = {}
        for n in work.reduces:
            element = self.elements[n]
            assert isinstance(element, Reduce)
            sign = TRUTHS_OPERATORS[JOINED_TRUTHS[element.combine]]
            totals.setdefault(sign, []).append(f"a{n}")
        clauses = (f" reduction({sign}:{', '.join(names)})" for sign, names in totals.items())
        self._line(f"#pragma omp simd{''.join(clauses)}")
        self._loop(axis.name, start, end)
        self._cell(work, body, "a{0}")
        self._close(1)

    def _vectors(self, work: Work) -> list[tuple[int, int]]:
        """(accumulators of a loop, cells that it is worth it for): several vectors where the
        addition is what takes time. Beside bytes, fewer than BYTES are no vector for GCC. Totals
        of integers are the same in any order: one loop, with what is left of it, does.
        """
        body = self.phases.closure(self._roots(work), work.known)
        if any(self._is_gathered(self.elements[n]) for n in body):
            return [(NARROW, NARROW)]
        least = min((self.elements[n].dtype.size_bytes for n in body), default=4)
        if work.reduces and not any(self.elements[n].dtype.is_floating for n in work.reduces):
            lanes = WIDE if self._are_truths(work) else BYTES if least == 1 else NARROW
            return [(lanes, lanes)]
        if least == 1:
            return [(lanes, lanes) for lanes in (WIDE, BYTES)]
        costs = [SCALAR_OPS[e.op].cost for n in body if isinstance(e := self.elements[n], Op)]
        cheap = sum(costs) <= 12 and max(costs, default=0) < 8
        width = WIDE if cheap and not self.splits else max(NARROW, WIDE // least)
        return [*([(width, 2 * width)] if width > NARROW else []), (NARROW, NARROW)]

    def _are_truths(self, work: Work) -> bool:
        """Is every total a truth? To combine WIDE of them is little, if not for each fiber."""
        return all(self.elements[n].dtype is bool_ for n in work.reduces)

    def _is_gathered(self, element: Element) -> bool:
        """Do neighbouring lanes load what lies apart? GCC writes a load for each lane."""
        if not isinstance(element, Load) or self.lane is None:
            return False
        return step_of(self.phases, element, self.lane) not in (0, 1)

    def _accumulators(self, work: Work, lanes: int) -> None:
        for n in work.reduces:
            self._line(f"{self._type(n)} b{n}[{lanes}];")
            self._line(
                f"for (int l = 0; l < {lanes}; l++) b{n}[l] = {c_identity(self.elements[n])};"
            )

    def _full_vectors(
        self, name: str, end: str, lanes: int, work: Work, body: Sequence[int], count: Count
    ) -> Count:
        """``lanes`` cells at a time, as long as there are so many; those that are left."""
        if count.most < lanes:
            return count
        first = f"{name}w"
        self._open(f"for (; {first} + {lanes} <= {end}; {first} += {lanes})", name)
        converted = CONVERTED if lanes == NARROW else CONVERTED_WIDE
        self._load_halves(name, lanes, "16", body, converted)
        self._declare_halves(name, lanes, work, converted)
        self._open_lanes(name, str(lanes))
        self._cell(work, body, "b{0}[l]")
        self._close(1)
        self._store_halves(name, lanes, "16")
        self._close(1)
        return count.after(lanes, lanes)

    def _last_vector(
        self, name: str, end: str, lanes: int, work: Work, body: Sequence[int], count: Count
    ) -> None:
        """The cells that are left, fewer than ``lanes``: one vector under a mask where the
        processor has masks, else a loop of as many turns."""
        if not count.most:
            return
        first = f"{name}w"
        self._open(f"if ({first} < {end})", name)
        left = count.most if count.most == count.multiple else f"{end} - {first}"
        self._line(f"const int left = {left};")
        self._load_halves(name, lanes, "left - h", body, CONVERTED)
        self._declare_halves(name, lanes, work, CONVERTED)
        self._line("#ifdef AS_MASKS")
        self._masked_cells(name, lanes, work, body)
        self._line("#else")
        self._open_lanes(name, "left")
        self._cell(work, body, "b{0}[l]")
        self._close(1)
        self._line("#endif")
        self._store_halves(name, lanes, "left - h")
        self._close(1)

    def _masked_cells(self, name: str, lanes: int, work: Work, body: Sequence[int]) -> None:
        """``lanes`` lanes, of which only the first ``left`` are cells.

        The others compute with zeros. Results are masked in a loop of their own: in one loop, GCC
        would load nothing for those lanes and compute with what a register happens to hold, and
        denormal numbers are slow.
        """
        needed = {n for s in work.stores for n in operands(s)}
        results = sorted(needed.union(self.phases.reduced_by(work.reduces)))
        for n in results:
            self._line(f"{self._type(n)} z{n}[{lanes}];")
        self.partial = name
        self._open_lanes(name, str(lanes))
        self._emit_elements(body, work.keep)
        for n in results:
            self._line(f"z{n}[l] = v{n};")
        self._close(1)
        self._open_lanes(name, str(lanes))
        for n in results:
            self._line(f"const {self._type(n)} v{n} = z{n}[l];")
        self._results(work, "b{0}[l]")
        self._close(1)
        self.partial = ""

    def _open_lanes(self, name: str, lanes: str) -> None:
        self._line("#pragma omp simd")
        self._open(f"for (int l = 0; l < {lanes}; l++)")
        self._line(f"const i64 {name} = {name}w + l;")

    # --- float16 and bfloat16 ---

    def _load_halves(
        self, name: str, lanes: int, count: str, body: Sequence[int], dtypes: tuple[str, ...]
    ) -> None:
        """Neighbouring halves of a vector, converted together into ``wide{number}``."""
        loads = self._converted_loads(body, name, dtypes)
        for n, _ in loads:
            self._line(f"f32 wide{n}[{lanes}];")
        self._halves(name, lanes, [self._load_call(n, e, count) for n, e in loads])
        self.loaded = {n: f"wide{n}[l]" for n, _ in loads}

    def _converted_loads(
        self, body: Sequence[int], name: str, dtypes: tuple[str, ...]
    ) -> list[tuple[int, Load]]:
        return [
            (n, e)
            for n in body
            if isinstance(e := self.elements[n], Load)
            and e.mask is None
            and self._near(e, name, dtypes)
            and _is_addressed_before(e, body)
        ]

    def _load_call(self, number: int, load: Load, count: str) -> str:
        return f"as_load16_{self._half(load)}(&{self._lvalue(load)}, {count}, wide{number} + h);"

    def _declare_halves(self, name: str, lanes: int, work: Work, dtypes: tuple[str, ...]) -> None:
        self.stored = {}
        body = self.phases.closure(self._roots(work), work.known)
        for store in work.stores:
            near = self._near(store, name, dtypes) and _is_addressed_before(store, body)
            if store.mask is None and store.mode == "set" and near:
                self.stored[store] = f"y{len(self.stored)}"
                self._line(f"f32 {self.stored[store]}[{lanes}];")

    def _store_halves(self, name: str, lanes: int, count: str) -> None:
        """What ``_declare_halves`` has named, rounded and stored together."""
        self._halves(
            name,
            lanes,
            [
                f"as_store16_{self._half(s)}({y} + h, {count}, &{self._lvalue(s)});"
                for s, y in self.stored.items()
            ],
        )
        self.loaded, self.stored = {}, {}

    def _halves(self, name: str, lanes: int, calls: list[str]) -> None:
        if not calls:
            return
        self._open(f"for (int h = 0; h < {lanes}; h += 16)")
        self._line(f"const i64 {name} = {name}w + h;")
        for call in calls:
            self._line(call)
        self._close(1)

    def _near(self, item: Load | Store, name: str, dtypes: tuple[str, ...]) -> bool:
        """Elements of one of these dtypes that lie side by side along this axis?"""
        dtype = self.kernel.pointer(item.pointer).dtype
        return dtype.name in dtypes and step_of(self.phases, item, name) == 1

    def _half(self, item: Load | Store) -> str:
        return HALF[self.kernel.pointer(item.pointer).dtype.name]

    def _combine_lanes(self, work: Work, lanes: int) -> None:
        """The accumulators' sum, by halves, into ``a``."""
        for n in work.reduces:
            element = self.elements[n]
            join = c_join(element, lanes)
            half, least = lanes // 2, (join.lanes or lanes) if join else 1
            while half >= least:
                pair = c_combine(element, f"b{n}[l]", f"b{n}[l + {half}]")
                self._line("#pragma omp simd")
                self._line(f"for (int l = 0; l < {half}; l++) b{n}[l] = {pair};")
                half //= 2
            total = join.call(f"b{n}", lanes) if join else f"b{n}[0]"
            self._line(f"a{n} = {c_combine(element, f'a{n}', total)};")

    def _cells(self, work: Work) -> None:
        self._cell(work, self.phases.closure(self._roots(work), work.known), "a{0}")

    def _cell(self, work: Work, body: Sequence[int], accumulator: str) -> None:
        """One cell: its elements, its part in each reduction, its stores."""
        self._emit_elements(body, work.keep)
        self._results(work, accumulator)

    def _results(self, work: Work, accumulator: str) -> None:
        for n in work.reduces:
            element = self.elements[n]
            assert isinstance(element, Reduce)
            total = accumulator.format(n)
            part = self._result(f"v{element.arg}", c_identity(element))
            self._line(f"{total} = {c_combine(element, total, part)};")
        for store in work.stores:
            self._store(store)

    def _combine_into(self, reduces: list[int], target: str, part: str) -> None:
        for n in reduces:
            a, b = target.format(n), part.format(n)
            self._line(f"{a} = {c_combine(self.elements[n], a, b)};")

    def _scans(self, work: Work) -> list[int]:
        body = self.phases.closure(self._roots(work), work.known)
        return [n for n in body if isinstance(self.elements[n], Scan)]

    def _roots(self, work: Work) -> list[int]:
        roots = self.phases.reduced_by(work.reduces)
        return roots + [n for s in work.stores for n in operands(s)] + work.keep

    def _type(self, number: int) -> str:
        return C_TYPES[self.kernel.elements[number].dtype.name]


def _is_addressed_before(item: Load | Store, body: Sequence[int]) -> bool:
    """Is no integer of its index computed cell by cell? Sixteen cells share one address."""
    if isinstance(item.index, int):
        return True
    return {f"v{n}" for n in body}.isdisjoint(symbol.name for symbol in item.index.symbols)
