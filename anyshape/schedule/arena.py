"""Where buffers lie in a native region's arena: slots shared by those that live at different
times.

In: buffers with their lives and sizes. Out: a slot for each, and the size of each slot. The
largest come first. A slot takes a buffer whose life is disjoint from those of its tenants: at no
cost where the buffer is known to fit, if need be beside others that are small, else the slot
becomes as large as the larger of the two. n buffers take n log n time and ask a bounded number of
questions each.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice

from anyshape.ir.buffers import Buffer
from anyshape.ir.byte_ranges import elements_spanned
from anyshape.ir.program import Step
from anyshape.ir.slots import Part, Slot, starts
from anyshape.nouns import frozen, mutable
from anyshape.schedule.arena_occupancy import Occupancy, numbers
from anyshape.symbolic import Atom, Ceilings, Dim, Facts, age, evaluator, le, total, unknowns

QUESTIONS = 8  # asked to find a larger slot for one buffer
UNRELATED = 3  # where the two sizes have no symbol in common
LOOKED_AT = 8  # slots, and parts and sizes of one, that are tried one by one


@frozen
class Life:
    """A buffer from the step that first touches it, its maker, to its last mention."""

    name: str
    start: int
    maker: Step | None
    end: int


@frozen
class Arena:
    """``inner`` says in which slot each buffer lies and how many bytes from its beginning;
    ``lent``, which buffers are given the memory of which outer one.
    """

    inner: Mapping[str, tuple[int, Dim]]
    slots: tuple[Slot, ...]
    lent: Mapping[str, str]


Becomes = Callable[[Life, Life], bool]


@mutable(eq=False)
class _Shelf:
    """Memory that one buffer has at a time."""

    size: Dim  # in bytes, before rounding
    tenants: list[Life] = field(default_factory=list)

    def takes(self, life: Life, becomes: Becomes) -> bool:
        """Is the life disjoint from all tenants'? One may begin as it becomes another."""
        at = bisect(self.tenants, life.start, key=lambda tenant: tenant.start)
        before = self.tenants[at - 1] if at else None
        after = self.tenants[at] if at < len(self.tenants) else None
        return disjoint(before, life, becomes) and disjoint(life, after, becomes)

    def add(self, life: Life) -> None:
        self.tenants.insert(bisect(self.tenants, life.start, key=lambda t: t.start), life)


@mutable(eq=False)
class _Slot:
    """Memory for one large buffer or, at other times, for small ones side by side."""

    needed: list[Dim]  # it is as large as the largest
    fixed: bool  # memory from outside: it cannot grow
    whole: _Shelf
    beside: list[_Shelf] = field(default_factory=list)
    within: list[tuple[Dim, Dim]] = field(default_factory=list)  # what was found to be at most what

    def is_free(self, life: Life, becomes: Becomes) -> bool:
        """May the buffer have all of it?"""
        alone = all(shelf.takes(life, _never) for shelf in self.beside)
        return alone and self.whole.takes(life, becomes)

    def offsets(self) -> Iterator[tuple[str, Dim]]:
        """Where each buffer begins."""
        yield from ((tenant.name, 0) for tenant in self.whole.tenants)
        begins = starts(shelf.size for shelf in self.beside)
        for start, shelf in zip(begins, self.beside, strict=True):
            yield from ((tenant.name, start) for tenant in shelf.tenants)

    def laid_out(self) -> Slot:
        parts = (Part(s.size, tuple(life.name for life in s.tenants)) for s in self.beside)
        return Slot(tuple(self.needed), tuple(parts), tuple(self.within))


def disjoint(a: Life | None, b: Life | None, becomes: Becomes) -> bool:
    """Is the first life over before the second begins, or as it becomes it?"""
    if a is None or b is None or a.end < b.start:
        return True
    return a.start < b.start and a.end == b.start and becomes(a, b)


def _never(a: Life, b: Life) -> bool:
    return False


class _Planner:
    """Slots by number. Which are free in a life, and which have a size among theirs, are sets of
    numbers."""

    def __init__(self, facts: Facts, becomes: Becomes, donors: list[_Slot], steps: int) -> None:
        self.facts = facts
        self.ceilings = Ceilings(facts)
        self.becomes = becomes
        self.slots: list[_Slot] = []
        self.known: dict[tuple[Dim, Dim], bool] = {}
        self.whole = Occupancy(steps)  # by buffers that have a slot to themselves
        self.beside = Occupancy(steps)  # by those that lie in a part of one
        self.ends: dict[int, list[int]] = {}  # the slots where a buffer ends at a step
        self.starts: dict[int, list[int]] = {}
        self.sized: dict[Dim, int] = {}  # the slots with this size among theirs
        self.mentioned: dict[Atom, list[Dim]] = {}  # the same sizes, by what is added in them
        self.shelved = 0
        self.fixed = (1 << len(donors)) - 1
        for slot in donors:
            self._note(slot.whole.tenants[0], len(self.slots))
            self.slots.append(slot)
            self._has_room(len(self.slots) - 1, slot.needed[0])

    def assign(self, size: Dim, life: Life) -> None:
        """Puts the buffer beside others where there is room for larger ones at other times, else
        where nothing is wasted, else where it fits, else into a slot to grow, else a new one."""
        whole, beside = (o.taken(life.start + 1, life.end + 1) for o in (self.whole, self.beside))
        own = ~self.fixed & ((1 << len(self.slots)) - 1)
        if self._put_beside(size, life, own & ~whole):
            return
        free = ((1 << len(self.slots)) - 1) & ~whole & ~beside | self._handed_on(life)
        number, room = next(self._fitting(size, free), (None, size))
        if number is None:
            number = next(numbers(free & ~self.fixed), None)
            if number is not None:
                self._grow(number, size)
        if number is None:
            number = len(self.slots)
            self.slots.append(_Slot([size], False, _Shelf(size)))
            self._has_room(number, size)
        slot = self.slots[number]
        if room is not size:
            slot.within.append((size, room))
        self._note(life, number)
        slot.whole.add(life)

    def _note(self, life: Life, number: int) -> None:
        """The buffer has all of the slot."""
        self.whole.take(life.start + 1, life.end + 1, number)
        self.ends.setdefault(life.end, []).append(number)
        self.starts.setdefault(life.start, []).append(number)

    def _has_room(self, number: int, size: Dim) -> None:
        if size not in self.sized:
            for unknown in _added(size):
                self.mentioned.setdefault(unknown, []).append(size)
        self.sized[size] = self.sized.get(size, 0) | 1 << number

    def _handed_on(self, life: Life) -> int:
        """The slots that a buffer leaves, or gets, at the very step at which the other gets it."""
        found = 0
        for number in (*self.ends.get(life.start, ()), *self.starts.get(life.end, ())):
            if self.slots[number].is_free(life, self.becomes):
                found |= 1 << number
        return found

    def _fitting(self, size: Dim, free: int) -> Iterator[tuple[int, Dim]]:
        """Free slots as large as the buffer, then larger ones, each with the size that says so:
        memory from outside last."""
        same = self.sized.get(size, 0) & free
        yield from ((n, size) for n in numbers(same & ~self.fixed))
        yield from ((n, size) for n in numbers(same & self.fixed))
        asked = 0
        for room, most in self._candidates(size):  # the nearest sizes come last
            slots = self.sized[room]
            if room is not size and slots & free:
                asked += (size, room) not in self.known
                if asked > most:
                    return
                if self._at_most(size, room):
                    yield from ((n, room) for n in numbers(slots & free & ~self.fixed))
                    yield from ((n, room) for n in numbers(slots & free & self.fixed))

    def _candidates(self, size: Dim) -> Iterator[tuple[Dim, int]]:
        """The sizes of slots, the newest first, those that may be as large for an unknown in
        common before the others, of which no long sum: it would have to be bounded as a whole.
        With each, how many questions may have been asked by then."""
        if isinstance(size, int):
            yield from ((room, QUESTIONS) for room in reversed(self.sized))
            return
        common = (self.mentioned.get(s, ()) for s in sorted(unknowns(size), key=age)[-LOOKED_AT:])
        near = dict.fromkeys(room for rooms in common for room in reversed(rooms))
        yield from ((room, QUESTIONS) for room in near)
        short = (r for r in reversed(self.sized) if isinstance(r, int) or r.least <= LOOKED_AT)
        yield from ((room, UNRELATED) for room in short if room not in near)

    def _put_beside(self, size: Dim, life: Life, slots: int) -> bool:
        """Gives the buffer a part of a slot: one that is there, else a new one."""
        shelves = [
            (number, shelf)
            for number in islice(numbers(slots & self.shelved), LOOKED_AT)
            for shelf in self.slots[number].beside[:LOOKED_AT]
            if shelf.takes(life, self.becomes)
        ]
        fitting = ((n, s) for n, s in shelves if self._at_most(size, s.size))
        found = next(((n, s) for n, s in shelves if s.size is size), None) or next(fitting, None)
        if found is None:
            found = self._new_shelf(size, slots)
        if found is None:
            return False
        number, shelf = found
        self.beside.take(life.start + 1, life.end + 1, number)
        shelf.add(life)
        return True

    def _new_shelf(self, size: Dim, slots: int) -> tuple[int, _Shelf] | None:
        others = slots & ~self.sized.get(size, 0)
        for number in islice(numbers(others), LOOKED_AT):
            slot = self.slots[number]
            taken = total((size, *(shelf.size for shelf in slot.beside)))
            rooms = (room for room in slot.needed[:LOOKED_AT] if self._at_most(taken, room))
            for room in rooms:
                slot.within.append((taken, room))
                slot.beside.append(_Shelf(size))
                self.shelved |= 1 << number
                return number, slot.beside[-1]
        return None

    def _grow(self, number: int, size: Dim) -> None:
        """The slot becomes as large as the larger of the two."""
        slot = self.slots[number]
        old = [room for room in slot.needed[:LOOKED_AT] if self._at_most(room, size)]
        for room in old:
            slot.needed.remove(room)
            slot.within.append((room, size))
            self.sized[room] &= ~(1 << number)
        slot.needed.append(size)
        self._has_room(number, size)

    def _at_most(self, size: Dim, room: Dim) -> bool:
        if size is room:
            return True
        if (size, room) not in self.known:
            may = self.ceilings.may_reach(size, room)
            self.known[size, room] = may and self.facts.known(le(size, room)) is True
        return self.known[size, room]


def plan_arena(
    inner: Sequence[Life],
    donors: Sequence[Life],
    buffers: Mapping[str, Buffer],
    facts: Facts,
    becomes: Becomes,
) -> Arena:
    """Slots for the inner buffers; the donors' memory is used before more is asked for. ``facts``
    are known where the memory is used.
    ``becomes(a, b)``: may b be written where a lies, at the very step that reads a for the last
    time?
    """
    sizes = {life.name: size_bytes(buffers[life.name]) for life in (*inner, *donors)}
    lending = [_Slot([sizes[d.name]], True, _Shelf(sizes[d.name], [d])) for d in donors]
    steps = max((life.end for life in (*inner, *donors)), default=0) + 2
    planner = _Planner(facts, becomes, lending, steps)
    magnitudes = {size: _magnitude(size) for size in set(sizes.values())}
    for life in sorted(inner, key=lambda a: (-magnitudes[sizes[a.name]], a.start, -a.end)):
        planner.assign(sizes[life.name], life)
    lent = {
        tenant.name: donor.name
        for donor, slot in zip(donors, lending, strict=True)
        for tenant in slot.whole.tenants
        if tenant is not donor
    }
    own = planner.slots[len(lending) :]
    inner_slots = {
        name: (number, start) for number, slot in enumerate(own) for name, start in slot.offsets()
    }
    return Arena(inner_slots, tuple(slot.laid_out() for slot in own), lent)


def _added(size: Dim) -> set[Atom]:
    """The unknowns in it that are not only taken away."""
    if isinstance(size, int):
        return set()
    added = (atom for m, c in size.terms.items() if c > 0 for atom in m)
    return {unknown for atom in added for unknown in unknowns(atom.expr)}


def _magnitude(size: Dim) -> int:
    """The size where every symbol, and every operation that is not looked into, is 1000, if it has
    one; only the order of the slots depends on it.
    """
    if isinstance(size, int):
        return size
    try:
        sizes = dict.fromkeys(unknowns(size), 1000)
        return evaluator(size)(sizes, {atom: 1000 for atom in sizes if atom.word})
    except (ValueError, ZeroDivisionError):  # no such sizes can be
        return 0


def size_bytes(buffer: Buffer) -> Dim:
    """What a buffer takes, from its first element to its last, or has room for."""
    count, _ = elements_spanned(*buffer.allocated())
    return count * buffer.dtype.size_bytes
