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
    """Bytes of a storage, from ``start`` on."""

    storage: str
    start: Dim
    size_bytes: Dim


@mutable(eq=False)
class Sizes:
    """What is known about sizes in bytes; each question is asked once of the facts that hold."""

    facts: Facts
    answers: dict[tuple[Dim, Dim], bool | Facts] = field(default_factory=dict)  # or: who was asked
    spans: dict[tuple[tuple[Dim, ...], tuple[Dim, ...], int], Dim] = field(default_factory=dict)

    def at_most(self, size: Dim, room: Dim) -> bool:
        """Is the one known not to be larger than the other?"""
        if isinstance(size, int) and isinstance(room, int):
            return size <= room
        key = (size, room)
        found = self.answers.get(key)
        if found is not True and found is not self.facts:
            known = any(self.facts.known(le(*weaker)) is True for weaker in _weaker(size, room))
            found = self.answers[key] = known or self.facts
        return found is True

    def meet(self, a: ByteRange, b: ByteRange) -> bool:
        """May the two have a byte in common?"""
        if a.storage != b.storage:
            return False
        if a.start is b.start or a.start == b.start:
            return not (self.at_most(a.size_bytes, 0) or self.at_most(b.size_bytes, 0))
        return not (
            self.at_most(a.start + a.size_bytes, b.start)
            or self.at_most(b.start + b.size_bytes, a.start)
        )

    def span(self, buffer: Buffer) -> Dim:
        """The bytes from the first to the last element."""
        key = (*buffer.allocated(), buffer.dtype.size_bytes)
        if key not in self.spans:
            self.spans[key] = elements_spanned(*key[:2]) * key[2]
        return self.spans[key]


def _weaker(size: Dim, room: Dim) -> Iterator[tuple[Dim, Dim]]:
    """The two, then no smaller a size and no larger a room, which are often easier to compare:
    without rounding, and without the bytes that are there whatever the sizes."""
    for a, b in ((size, room), (_unrounded(size, up=True), _unrounded(room, up=False))):
        yield a, b
        needed, spare = _constant(a), _constant(b)
        if needed <= spare:
            yield a - needed, b - spare


def _constant(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.constant


def _unrounded(dim: Dim, *, up: bool) -> Dim:
    """``c * d * (x // d)`` as ``c * x``, or as ``c * (x - d + 1)``; where it divides by ``d * e``,
    with a size ``e``, ``x // e`` stands for ``x``."""
    if not isinstance(dim, Expr):
        return dim
    made: Dim = dim
    for monomial, coefficient in dim.terms.items():
        if len(monomial) != 1 or not isinstance(monomial[0], FloorDiv) or coefficient < 0:
            continue
        above, below = monomial[0].operands
        step = _common_factor(below)
        if step > 1 and coefficient % step == 0:
            whole = above if isinstance(below, int) else above // (below // step)
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


def elements_spanned(shape: Sequence[Dim], strides: Sequence[Dim]) -> Dim:
    """As many as there are elements, where they are dense; no fewer than it takes, where sizes may
    be 0."""
    if 0 in shape:
        return 0
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
    return count
