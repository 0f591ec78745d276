"""Memory for what native regions hold on a GPU, so that torch keeps little that lies idle.

In: the sizes of a region's slots. Out: their addresses. All of it is torch's own, allocated and
freed in each call: between calls torch's allocator may give it to anybody, and where memory runs
out it gives it back to the driver.

That allocator serves a request from a block that it has if one is large enough, else from new
memory of the driver's; blocks that are too small stay. So each new maximum of sizes that vary
leaves behind what served the last. Hence the high-water mark of each stream: a region that asks for
more than any before it lets torch give back what lies idle first. Large slots are rounded up, so
that a mark is passed a bounded number of times, and never by sizes that were seen before.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import field

import torch

from anyshape.nouns import mutable

SMALL_ARENA = 1 << 24
"""Bytes of an arena that are one allocation at any rate."""
STEPS = 16
"""How many sizes of large slots there are between a power of two and the next."""
IDLE_SHARE = 8
"""What lies idle is given back where it is more than one part in so many of what torch has."""
ARENA_SHARE = 16
"""And where the arena is as much as one part in so many: else it has not left much behind."""

LOOKS = 64
"""Asked so often, a region looks whether what it had was given back."""


def slots(
    device: str, empty: Callable[[int], torch.Tensor], *sizes: int
) -> tuple[list[int], torch.Tensor | list[torch.Tensor]]:
    """Addresses of memory of these sizes, and what keeps it alive: one tensor where all is small.
    Large ones are allocations of their own, whose memory serves others of many sizes later."""
    if sum(sizes) > SMALL_ARENA:
        rounded = [*map(rounded_up, sizes)]
        HIGH_WATER.rise(torch.device(device), sum(rounded))
        several = [empty(size) for size in rounded]
        return [tensor.data_ptr() for tensor in several], several
    whole = empty(sum(sizes))
    return [*itertools.accumulate(sizes[:-1], initial=whole.data_ptr())], whole


def rounded_up(size: int) -> int:
    """The next of ``STEPS`` sizes between powers of two: at most a sixteenth more."""
    step = max((1 << size.bit_length() - 1) // STEPS, 1) if size else 1
    return -(-size // step) * step


@mutable
class Mark:
    """The most bytes that one region has asked for on a stream, how often one has asked, and what
    torch had of the driver's memory when that was looked at last."""

    most: int = 0
    asked: int = 0
    reserved: int = 0


@mutable
class HighWater:
    """The marks, by device and stream."""

    marks: dict[tuple[int, int], Mark] = field(default_factory=dict)

    def rise(self, device: torch.device, size: int) -> None:
        """Where this is more than ever before, lets torch give back what lies idle, if that is
        much. Recorded graphs keep what they were given."""
        if device.type != "cuda" or not _is_torchs_own():
            return
        index = device.index or 0
        stream = index, torch.cuda.current_stream(index).cuda_stream
        mark = self.marks.setdefault(stream, Mark())
        mark.asked += 1
        if mark.asked % LOOKS == 0:
            self._look(mark, index)
        if size > mark.most:
            mark.most = size
            if not torch.cuda.is_current_stream_capturing():
                self._make_room(index, size)

    def _look(self, mark: Mark, index: int) -> None:
        """Where memory was given back since then, by anybody, the mark is a new one."""
        reserved = torch.cuda.memory_reserved(index)
        if reserved < mark.reserved:
            mark.most = 0
        mark.reserved = reserved

    def _make_room(self, index: int, size: int) -> None:
        reserved = torch.cuda.memory_reserved(index)
        idle = reserved - torch.cuda.memory_allocated(index)
        if idle * IDLE_SHARE > reserved and size * ARENA_SHARE > reserved:
            for mark in self.marks.values():
                mark.reserved = 0  # it was us
            torch.cuda.empty_cache()


@functools.cache
def _is_torchs_own() -> bool:
    """Another allocator may keep no such numbers."""
    return torch.cuda.memory.get_allocator_backend() == "native"


HIGH_WATER = HighWater()
"""Of this process."""
