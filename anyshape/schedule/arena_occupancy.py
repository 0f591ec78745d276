"""Which slots of an arena are taken while a buffer lives.

In: slots, by number, and the steps from and to which each is taken. Out: those that are taken at
some step of a life. A segment tree over the steps, whose nodes hold sets of slots as the bits of
an integer: both take the logarithm of the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator


class Occupancy:
    """Sets of slots over steps; a set is an integer with a bit for each slot."""

    __slots__ = ("partly", "size", "wholly")

    def __init__(self, steps: int) -> None:
        self.size = 1 << max(steps, 1).bit_length()
        self.wholly = [0] * (2 * self.size)  # taken at every step of the node
        self.partly = [0] * (2 * self.size)  # taken at some step of a node below

    def take(self, first: int, last: int, slot: int) -> None:
        """The slot is taken from the first step to the last one."""
        bit = 1 << slot
        for node in self._nodes(first, last):
            self.wholly[node] |= bit
            while (node := node >> 1) and not self.partly[node] & bit:
                self.partly[node] |= bit

    def taken(self, first: int, last: int) -> int:
        """The slots that are taken at one of these steps."""
        found = 0
        for node in self._nodes(first, last):
            found |= self.wholly[node] | self.partly[node]
            while node := node >> 1:
                found |= self.wholly[node]
        return found

    def _nodes(self, first: int, last: int) -> Iterator[int]:
        """The fewest nodes that are these steps together."""
        low, high = first + self.size, last + self.size + 1
        while low < high:
            if low & 1:
                yield low
                low += 1
            if high & 1:
                high -= 1
                yield high
            low >>= 1
            high >>= 1


def numbers(slots: int) -> Iterator[int]:
    """The slots in a set, the lowest first."""
    while slots:
        lowest = slots & -slots
        yield lowest.bit_length() - 1
        slots ^= lowest
