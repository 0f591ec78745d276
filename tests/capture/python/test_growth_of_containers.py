"""A write to a list or a heap takes the same work while capturing, however many lie in it."""

from __future__ import annotations

import cProfile
import heapq
import pstats
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

SLACK = 1.5


def stores(count: int) -> Any:
    values = [True] * count
    for i in range(count):
        values[i] = False
    while values:
        values.pop()
    return values


def turned(count: int) -> Any:
    values = deque(range(count))
    for _ in range(count):
        values.rotate(1)
        values.append(values.popleft())
    return list(values)


def heaps(count: int) -> Any:
    heap: list[Any] = []
    for i in range(count):
        heapq.heappush(heap, (-i * 7 % 11, i))
    return [heapq.heappop(heap) for _ in range(count)]


@pytest.mark.parametrize("program", [stores, turned, heaps])
def test_writes_take_work_linear_in_their_number(program: Callable[[int], Any]) -> None:
    few, many = (calls_of_capture(program, count) for count in (50, 200))
    assert many < 4 * SLACK * few


def calls_of_capture(program: Callable[[int], Any], count: int) -> int:
    """How many functions capture calls; that the result is right."""
    fast = anyshape.compile(lambda x: (x + 1, program(count)), fullgraph=True)
    profile = cProfile.Profile()
    result = profile.runcall(fast, torch.ones(2))
    assert result[1] == program(count)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
