"""Where buffers lie in a native region's arena: places shared by those that live at different
times.

In: buffers with their lives and sizes. Out: a place for each, and the size of each place. The
largest come first. A place takes a buffer whose life is apart from those of its tenants: at no
cost where the buffer is known to fit, if need be beside others that are small, else the place
becomes as large as the larger of the two.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anyshape.ir.buffers import Buffer
from anyshape.ir.program import Step
from anyshape.symbolic import Dim, Relation, evaluate, le, total

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer from the step that first touches it, its maker, to its last mention."""

    name: str
    start: int
    maker: Step | None
    end: int


@dataclass(frozen=True, slots=True)
class Arena:
    """``inner`` says in which place each buffer lies and how many bytes from its beginning,
    ``rooms`` how large each place is: as the largest of these sizes in bytes; ``lent``, which
    buffers are given the memory of which outer one.
    """

    inner: Mapping[str, tuple[int, Dim]]
    rooms: tuple[tuple[Dim, ...], ...]
    lent: Mapping[str, str]


Becomes = Callable[[Life, Life], bool]
Known = Callable[[Relation], bool]
"""Does the relation hold, as far as is known where the memory is used?"""


@dataclass(slots=True, eq=False)
class _Shelf:
    """Memory that one buffer has at a time."""

    size: Dim  # in bytes, before rounding
    tenants: list[Life] = field(default_factory=list)

    def takes(self, life: Life, becomes: Becomes) -> bool:
        """Is the life apart from all tenants'? One may begin as another ends, if it becomes it."""
        at = bisect(self.tenants, life.start, key=lambda tenant: tenant.start)
        before = self.tenants[at - 1] if at else None
        after = self.tenants[at] if at < len(self.tenants) else None
        return apart(before, life, becomes) and apart(life, after, becomes)

    def add(self, life: Life) -> None:
        self.tenants.insert(bisect(self.tenants, life.start, key=lambda t: t.start), life)


@dataclass(slots=True, eq=False)
class _Place:
    """Memory for one large buffer or, at other times, for small ones side by side."""

    rooms: list[Dim]  # it is as large as the largest
    fixed: bool  # memory from outside: it cannot grow
    whole: _Shelf
    beside: list[_Shelf] = field(default_factory=list)

    def is_free(self, life: Life, becomes: Becomes) -> bool:
        """May the buffer have all of it?"""
        alone = all(shelf.takes(life, _never) for shelf in self.beside)
        return alone and self.whole.takes(life, becomes)

    def free_shelves(self, life: Life, becomes: Becomes) -> Iterator[_Shelf]:
        """The parts that the buffer may have."""
        if self.beside and self.whole.takes(life, _never):
            yield from (shelf for shelf in self.beside if shelf.takes(life, becomes))

    def offset(self, shelf: _Shelf) -> Dim:
        """Where the shelf begins."""
        offset: Dim = 0
        for before in self.beside[: self.beside.index(shelf)] if shelf is not self.whole else ():
            offset = offset + rounded(before.size)
        return offset

    def sizes(self) -> tuple[Dim, ...]:
        """What it takes, one unit more for each shelf: their sizes are rounded up apart."""
        return tuple(rounded(room) + ALIGNMENT * len(self.beside) for room in self.rooms)


def apart(a: Life | None, b: Life | None, becomes: Becomes) -> bool:
    """Is the first life over before the second begins, or as it becomes it?"""
    if a is None or b is None or a.end < b.start:
        return True
    return a.start < b.start and a.end == b.start and becomes(a, b)


def _never(a: Life, b: Life) -> bool:
    return False


@dataclass(slots=True, eq=False)
class _Planner:
    holds: Known
    becomes: Becomes
    places: list[_Place]
    known: dict[tuple[Dim, Dim], bool] = field(default_factory=dict)

    def place(self, size: Dim, life: Life) -> None:
        """Puts the buffer beside others where there is room for larger ones at other times, else
        where nothing is wasted, else where it fits, else into a place to grow, else a new one."""
        free = [place for place in self.places if place.is_free(life, self.becomes)]
        free.sort(key=lambda place: place.fixed)  # memory from outside where the arena has no room
        shelf = (
            self._shelf(size, life)
            or next((place.whole for place in free if size in place.rooms), None)
            or next((place.whole for place in free if self._fits(size, place.rooms)), None)
            or next((self._grown(place, size) for place in free if not place.fixed), None)
        )
        if shelf is None:
            shelf = _Shelf(size)
            self.places.append(_Place([size], False, shelf))
        shelf.add(life)

    def _shelf(self, size: Dim, life: Life) -> _Shelf | None:
        """A part of a place: one that is there, else a new one."""
        own = [place for place in self.places if not place.fixed]
        shelves = [shelf for place in own for shelf in place.free_shelves(life, self.becomes)]
        fitting = (shelf for shelf in shelves if self._at_most(size, shelf.size))
        shelf = next((s for s in shelves if s.size is size), None) or next(fitting, None)
        if shelf is not None:
            return shelf
        for place in own:
            if not place.whole.takes(life, _never):
                continue
            taken = total((size, *(shelf.size for shelf in place.beside)))
            if size not in place.rooms and self._fits(taken, place.rooms):
                place.beside.append(_Shelf(size))
                return place.beside[-1]
        return None

    def _grown(self, place: _Place, size: Dim) -> _Shelf:
        place.rooms = [r for r in place.rooms if not self._at_most(r, size)] + [size]
        return place.whole

    def _fits(self, size: Dim, rooms: Sequence[Dim]) -> bool:
        return any(self._at_most(size, room) for room in rooms)

    def _at_most(self, size: Dim, room: Dim) -> bool:
        if size is room:
            return True
        if (size, room) not in self.known:
            relation = le(size, room)
            known = relation if isinstance(relation, bool) else self.holds(relation)
            self.known[size, room] = known
        return self.known[size, room]


def plan_arena(
    inner: Sequence[Life],
    donors: Sequence[Life],
    buffers: Mapping[str, Buffer],
    holds: Known,
    becomes: Becomes,
) -> Arena:
    """Places for the inner buffers; the donors' memory is used before more is asked for.
    ``becomes(a, b)``: may b be written where a lies, at the very step that reads a for the last
    time?
    """
    sizes = {life.name: size_bytes(buffers[life.name]) for life in (*inner, *donors)}
    lending = [_Place([sizes[d.name]], True, _Shelf(sizes[d.name], [d])) for d in donors]
    planner = _Planner(holds, becomes, [*lending])
    magnitudes = {size: _magnitude(size) for size in set(sizes.values())}
    for life in sorted(inner, key=lambda a: (-magnitudes[sizes[a.name]], a.start, -a.end)):
        planner.place(sizes[life.name], life)
    lent = {
        tenant.name: donor.name
        for donor, place in zip(donors, lending, strict=True)
        for tenant in place.whole.tenants
        if tenant is not donor
    }
    own = planner.places[len(lending) :]
    inner_places = {
        tenant.name: (number, place.offset(shelf))
        for number, place in enumerate(own)
        for shelf in (place.whole, *place.beside)
        for tenant in shelf.tenants
    }
    return Arena(inner_places, tuple(place.sizes() for place in own), lent)


def _magnitude(size: Dim) -> int:
    """The size where every symbol is 1000, if it has one; only the order of the places depends on
    it.
    """
    if isinstance(size, int):
        return size
    try:
        return int(evaluate(size, dict.fromkeys(size.symbols, 1000)))
    except ValueError:  # these sizes do not broadcast
        return 0


def size_bytes(buffer: Buffer) -> Dim:
    """What a dense buffer holds."""
    count: Dim = buffer.dtype.size_bytes
    for size in buffer.shape:
        count = count * size
    return count


def rounded(size: Dim) -> Dim:
    """The room that so many bytes take, a multiple of ``ALIGNMENT``."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
