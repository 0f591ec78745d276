"""When torch is let give back what lies idle: at a new high-water mark alone, where that is much."""

from __future__ import annotations

import pytest
import torch

from anyshape.runtime import arenas
from anyshape.runtime.arenas import LOOKS, STEPS, HighWater, rounded_up

GPU = torch.device("cuda", 0)
MB = 1 << 20


class Allocator:
    """What torch says of a GPU, as a test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved, self.allocated, self.emptied, self.capturing, self.stream = 0, 0, 0, False, 7
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: self.reserved)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: self.allocated)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(
            torch.cuda, "current_stream", lambda index: type("S", (), {"cuda_stream": self.stream})
        )
        monkeypatch.setattr(torch.cuda, "empty_cache", self.empty)
        monkeypatch.setattr(arenas, "_is_torchs_own", lambda: True)

    def empty(self) -> None:
        self.emptied += 1
        self.reserved = self.allocated


@pytest.fixture
def torchs(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    return Allocator(monkeypatch)


def test_sizes_are_rounded_up_by_a_sixteenth_at_most() -> None:
    sizes = [*range(1, 5000), 10**9, 10**9 + 1, (1 << 40) - 1]
    assert all(n <= rounded_up(n) <= n + n // STEPS for n in sizes)
    assert len({rounded_up(n) for n in range(1 << 20, 1 << 21)}) <= STEPS + 1
    assert rounded_up(0) == 0


def test_idle_memory_is_given_back_at_a_new_mark_and_not_below_it(torchs: Allocator) -> None:
    water = HighWater()
    for size, emptied in ((20, 1), (20, 1), (19, 1), (40, 2), (30, 2), (40, 2)):
        torchs.reserved, torchs.allocated = 100 * MB, 10 * MB
        water.rise(GPU, size * MB)
        assert torchs.emptied == emptied


def test_little_idle_memory_and_small_arenas_are_left_alone(torchs: Allocator) -> None:
    torchs.reserved, torchs.allocated = 100 * MB, 90 * MB
    HighWater().rise(GPU, 40 * MB)
    torchs.reserved, torchs.allocated = 1000 * MB, 10 * MB
    HighWater().rise(GPU, 40 * MB)
    assert torchs.emptied == 0


def test_streams_have_marks_of_their_own_and_captures_give_nothing_back(torchs: Allocator) -> None:
    water = HighWater()
    for stream, capturing, emptied in ((7, False, 1), (8, True, 1), (9, False, 2), (7, False, 2)):
        torchs.stream, torchs.capturing = stream, capturing
        torchs.reserved, torchs.allocated = 100 * MB, 10 * MB
        water.rise(GPU, 40 * MB)
        assert torchs.emptied == emptied


def test_a_mark_is_a_new_one_once_others_gave_memory_back(torchs: Allocator) -> None:
    water = HighWater()
    torchs.reserved, torchs.allocated = 1000 * MB, 10 * MB
    water.rise(GPU, 500 * MB)
    for _ in range(3 * LOOKS):
        torchs.reserved = 600 * MB
        water.rise(GPU, 50 * MB)
    assert torchs.emptied == 1  # in steady state none
    torchs.reserved = 100 * MB
    for _ in range(LOOKS):
        water.rise(GPU, 50 * MB)
    assert torchs.emptied == 2


def test_what_lies_on_the_host_asks_nobody() -> None:
    HighWater().rise(torch.device("cpu"), 1 << 40)
