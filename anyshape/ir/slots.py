"""Slots of a native region's arena: memory that buffers share, with what says that they fit.

In: sizes that nobody knows yet. Out: how large a slot is, where its parts begin, and for the
verifier a range of bytes for each buffer. Who plans an arena finds out by many small questions that
buffers fit; a slot says which those were, as one large question about the end of a buffer may be
too hard. Nothing of it is taken for granted: each is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anyshape.ir.byte_ranges import ByteRange, Sizes
from anyshape.nouns import frozen
from anyshape.symbolic import Dim, total

ALIGNMENT = 64


@frozen
class Part:
    """Memory inside a slot that its ``tenants`` have, one at a time."""

    size_bytes: Dim
    tenants: tuple[str, ...]


@frozen
class Slot:
    """Memory as large as the largest of ``needed``, in bytes, for one buffer at a time or, at other
    times, for ``parts`` side by side from its beginning. ``within``: pairs of sizes, no first one
    larger than the second, from sizes that lie here to those needed.
    """

    needed: tuple[Dim, ...]
    parts: tuple[Part, ...] = ()
    within: tuple[tuple[Dim, Dim], ...] = ()

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """What it takes, one unit more for each part: each size is rounded up by itself."""
        return tuple(rounded(room) + ALIGNMENT * len(self.parts) for room in self.needed)


def rounded(size: Dim) -> Dim:
    """The room that so many bytes take, a multiple of ``ALIGNMENT``."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def starts(parts: Iterable[Dim]) -> Iterator[Dim]:
    """Where parts of these sizes begin, side by side."""
    start: Dim = 0
    for size in parts:
        yield start
        start = start + rounded(size)


def ranges_in(
    slot: Slot, storage: str, starts_and_sizes: Mapping[str, tuple[Dim, Dim]], sizes: Sizes
) -> Iterator[tuple[str, ByteRange | None]]:
    """Where buffers lie, from their starts in the slot and sizes; None for what is not known to fit
    there."""
    parts: dict[str, tuple[int, Dim, Part]] = {}
    if slot.parts and _fits(slot, total(part.size_bytes for part in slot.parts), sizes):
        begins = starts(part.size_bytes for part in slot.parts)
        for number, (start, part) in enumerate(zip(begins, slot.parts, strict=True)):
            parts |= dict.fromkeys(part.tenants, (number, start, part))
    for name, (start, size) in starts_and_sizes.items():
        fits, inside = False, None
        if name in parts:
            inside, begin, part = parts[name]
            fits = start == begin and sizes.at_most(size, part.size_bytes)
        if not fits:
            inside, fits = None, _fits(slot, start + size, sizes)
        yield name, ByteRange(storage, start, size, inside) if fits else None


def _fits(slot: Slot, size: Dim, sizes: Sizes) -> bool:
    """Is it at most what is needed, if need be by way of sizes between?"""
    reached = {size}
    for smaller, larger in slot.within:
        if smaller in reached and sizes.at_most(smaller, larger):
            reached.add(larger)
    if not reached.isdisjoint(slot.needed):
        return True
    return any(sizes.at_most(size, room) for room in slot.needed)
