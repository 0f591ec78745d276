"""`heapq` with elements that the program compares: in the order of C, with its list after an error."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape


class Compared:
    """Says what it is compared with; refuses where the plan says so."""

    def __init__(self, key: int, log: list[Any], plan: dict[str, Any]) -> None:
        self.key, self.log, self.plan = key, log, plan

    def __lt__(self, other: Compared) -> Any:
        self.log.append((self.key, other.key))
        if len(self.log) == self.plan.get("refuses"):
            raise ValueError("refused")
        if len(self.log) == self.plan.get("shrinks"):
            self.plan["heap"].pop()
        return [1] if self.key < other.key else 0


def pushed(heap: list[Any], items: list[Any]) -> Any:
    for item in items:
        heapq.heappush(heap, item)


def popped(heap: list[Any], items: list[Any]) -> Any:
    heap += items
    heapq.heapify(heap)
    found = []
    while heap:
        found.append(heapq.heappop(heap).key)
    try:
        heapq.heappop(heap)
    except IndexError as error:
        return found, str(error)


def replaced(heap: list[Any], items: list[Any]) -> Any:
    try:
        heapq.heapreplace(heap, items[0])
    except IndexError as error:
        empty = str(error)
    for item in items[:3]:
        heapq.heappush(heap, item)
    first = [heapq.heapreplace(heap, item).key for item in items[3:]]
    return empty, first, [heapq.heappushpop(heap, item).key for item in items]


def pushed_and_popped(heap: list[Any], items: list[Any]) -> Any:
    found = [heapq.heappushpop(heap, items[0]).key]
    for item in items:
        heapq.heappush(heap, item)
        if len(heap) > 3:
            found.append(heapq.heappop(heap).key)
    return found


USES: tuple[Callable[[list[Any], list[Any]], Any], ...] = (
    *(pushed, popped, replaced, pushed_and_popped),
)
PLANS: tuple[dict[str, Any], ...] = ({}, *({"refuses": n} for n in (1, 2, 5, 9)), {"shrinks": 4})


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_elements_are_compared_as_c_does(use: Callable[..., Any]) -> None:
    for seed in range(3):
        keys = [random.Random(seed).randrange(9) for _ in range(9)]
        for plan in PLANS:

            def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
                log: list[Any] = []
                heap: list[Any] = []
                shared = {**plan, "heap": heap}
                try:
                    found = use(heap, [Compared(key, log, shared) for key in keys])
                except (ValueError, RuntimeError) as error:
                    found = repr(error)
                return x + 1, (found, log, [item.key for item in heap])

            fast = anyshape.compile(program, fullgraph=True)
            assert fast(torch.ones(2))[1] == program(torch.ones(2))[1], (keys, plan)


def test_sizes_are_compared_in_one_graph() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        heap: list[Any] = []
        for turn in range(3):
            heapq.heappush(heap, (x.shape[0] * (3 - turn), turn))
        return x + 1, [heapq.heappop(heap) for _ in range(3)]

    fast = anyshape.compile(program, fullgraph=True)
    for n in (2, 3, 7):
        assert fast(torch.ones(n))[1] == program(torch.ones(n))[1]


def test_a_heap_from_outside_is_written() -> None:
    heap: list[Any] = []

    def program(x: torch.Tensor, key: int) -> tuple[torch.Tensor, Any]:
        heapq.heappush(heap, Compared(key, [], {}))
        return x + 1, [item.key for item in heap]

    fast = anyshape.compile(program)
    for turn, key in enumerate((3, 1, 2)):
        assert fast(torch.ones(2), key)[1] == [[3], [1, 3], [1, 3, 2]][turn]
