"""Parts of memory whose sizes nobody knows yet: do two meet, does a buffer fit?

In: buffers and the facts about their sizes. Out: answers that hold whatever the sizes turn out to
be; where nothing is known, two parts of one memory meet, and nothing fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field

from anyshape.ir.buffers import Buffer
from anyshape.nouns import frozen, mutable
from anyshape.symbolic import Dim, Expr, Facts, FloorDiv, le


@frozen
class ByteRange:
    """Bytes of a storage, from ``start`` on; ``part``: inside which of parts side by side."""

    storage: str
    start: Dim
    size_bytes: Dim
    part: int | None = None


@mutable(eq=False)
class Sizes:
    """What is known about sizes in bytes; each question is asked once of the facts that hold.
    ``shapes``: of dense buffers of so many bytes."""

    facts: Facts
    answers: dict[tuple[Dim, Dim], bool | Facts] = field(default_factory=dict)  # or: who was asked
    spans: dict[tuple[tuple[Dim, ...], tuple[Dim, ...], int], Dim] = field(default_factory=dict)
    shapes: dict[Dim, tuple[Dim, ...]] = field(default_factory=dict)  # by their bytes

    def at_most(self, size: Dim, room: Dim) -> bool:
        """Is the one known not to be larger than the other?"""
        if size is room:
            return True
        if isinstance(size, int) and isinstance(room, int):
            return size <= room
        key = (size, room)
        found = self.answers.get(key)
        if found is not True and found is not self.facts:
            found = self.answers[key] = self._is_known(size, room) or self.facts
        return found is True

    def meet(self, a: ByteRange, b: ByteRange) -> bool:
        """May the two have a byte in common?"""
        if a.storage != b.storage:
            return False
        if a.part is not None and b.part is not None and a.part != b.part:
            return False
        if a.start is b.start or a.start == b.start:
            return not (self.at_most(a.size_bytes, 0) or self.at_most(b.size_bytes, 0))
        first, then = (a, b) if _at_ones(a.start) <= _at_ones(b.start) else (b, a)
        return not (  # the likely order first: what cannot be proved is looked for longest
            self.at_most(first.start + first.size_bytes, then.start)
            or self.at_most(then.start + then.size_bytes, first.start)
        )

    def span(self, buffer: Buffer) -> Dim:
        """The bytes from the first to the last element."""
        key = (*buffer.allocated(), buffer.dtype.size_bytes)
        found = self.spans.get(key)
        if found is None:
            count, dense = elements_spanned(*key[:2])
            found = self.spans[key] = count * key[2]
            if dense:
                self.shapes.setdefault(found, key[0])
        return found

    def _is_known(self, size: Dim, room: Dim) -> bool:
        """Of a product that may be 0 its factors tell at once: that nothing is known of it is found
        out by a long search."""
        if room == 0 and size in self.shapes:
            none = self.facts.quick(le(size, 0)) is True
            return none or any(self.facts.known(le(n, 0)) is True for n in self.shapes[size])
        relations = [le(*weaker) for weaker in _weaker(size, room)]
        if any(
            relation is True for relation in relations
        ):  # of what is rounded, mostly: no question
            return True
        return any(self.facts.known(relation) is True for relation in relations)


def _weaker(size: Dim, room: Dim) -> Iterator[tuple[Dim, Dim]]:
    """The two, then no smaller a size and no larger a room, which are often easier to compare:
    without rounding, in quotients of the size, and without the bytes that are there whatever the
    sizes."""
    yield from _without_constants(size, room)
    yield from _without_constants(_unrounded(size, up=True), _unrounded(room, up=False))
    for divisor in _divisors(size):
        yield from _without_constants(size, _unrounded(room, up=False, quotient_by=divisor))


def _without_constants(a: Dim, b: Dim) -> Iterator[tuple[Dim, Dim]]:
    yield a, b
    needed, spare = _constant(a), _constant(b)
    if needed <= spare:
        yield a - needed, b - spare


def _divisors(dim: Dim) -> set[int]:
    """The numbers that it divides by."""
    if not isinstance(dim, Expr):
        return set()
    below = {atom.operands[1] for term in dim.terms for atom in term if isinstance(atom, FloorDiv)}
    return {divisor for divisor in below if isinstance(divisor, int)}


def _constant(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.constant


def _at_ones(dim: Dim) -> int:
    """Its value where all sizes are 1, but for quotients."""
    return dim if isinstance(dim, int) else dim.constant + sum(dim.terms.values())


def _unrounded(dim: Dim, *, up: bool, quotient_by: int = 1) -> Dim:
    """``c * d * (x // d)`` as ``c * x``, or as ``c * (x - d + 1)``; where it divides by ``d * e``,
    with a size ``e`` or the number ``quotient_by``, ``x // e`` stands for ``x``."""
    if not isinstance(dim, Expr):
        return dim
    made: Dim = dim
    for monomial, coefficient in dim.terms.items():
        if len(monomial) != 1 or not isinstance(monomial[0], FloorDiv) or coefficient < 0:
            continue
        above, below = monomial[0].operands
        step, rest = divmod(_common_factor(below), quotient_by)
        if step > 1 and rest == 0 and coefficient % step == 0:
            whole = above // (below // step)
            exact = whole if up else whole - step + 1
            made = made + coefficient // step * exact - coefficient * monomial[0].expr
    return made


def _common_factor(dim: Dim) -> int:
    """The largest number that divides it whatever the sizes; 0 where it may be negative."""
    if isinstance(dim, int):
        return max(dim, 0)
    if dim.constant < 0 or any(coefficient < 0 for coefficient in dim.terms.values()):
        return 0
    return math.gcd(dim.constant, *dim.terms.values())


def elements_spanned(shape: Sequence[Dim], strides: Sequence[Dim]) -> tuple[Dim, bool]:
    """As many as there are elements, where they are dense, and whether they are; no fewer than it
    takes, where sizes may be 0."""
    if 0 in shape:
        return 0, True
    count: Dim = 1
    waiting = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    while waiting:
        inner = next((pair for pair in reversed(waiting) if pair[1] == count), None)
        if inner is None:
            break
        waiting.remove(inner)
        count = count * inner[0]
    for size, stride in waiting:  # the others go on from the last of the dense ones
        count = count + (size - 1) * stride
    return count, not waiting
