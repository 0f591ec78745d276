"""`heapq` with elements that the program compares: in the order of C, with its list after an error."""

from __future__ import annotations

import heapq
import random
from collections import Counter
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


HALF_DONE: dict[str, tuple[Callable[..., Any], list[Any], tuple[Any, ...]]] = {
    "heappush": (heapq.heappush, [3], ("s",)),
    "heapify": (heapq.heapify, [5, 4, "s", 1, 2], ()),
    "heappop": (heapq.heappop, [1, 2, "s", 4], ()),
    "heapreplace": (heapq.heapreplace, [1, 2, 3], ("s",)),
    "heappushpop": (heapq.heappushpop, [1, "s", 3], (2,)),
    "heappop of none": (heapq.heappop, [], ()),
}


@pytest.mark.parametrize("outside", (True, False))
@pytest.mark.parametrize("name", HALF_DONE)
def test_a_heap_is_left_as_c_leaves_it_after_an_error(name: str, outside: bool) -> None:
    fn, items, given = HALF_DONE[name]

    def program(x: torch.Tensor, heap: Any) -> tuple[torch.Tensor, Any]:
        heap = heap if outside else [*heap]
        try:
            return x + 1, fn(heap, *given)
        except (TypeError, IndexError) as error:
            return x + len(heap), (str(error), heap)

    fast = anyshape.compile(program, fullgraph=not (outside and items))
    for _ in range(2):
        wanted, left = [*items], [*items]
        assert fast(torch.ones(2), left)[1] == program(torch.ones(2), wanted)[1]
        assert left == wanted


def test_what_was_counted_before_an_error_is_counted() -> None:
    def program(x: torch.Tensor, outside: Any) -> tuple[torch.Tensor, Any]:
        made: Any = Counter("b")
        for counter in (made, outside):
            try:
                counter.update(["a", []])
            except TypeError as error:
                x = x + len(str(error))
        return x, made

    fast, outside = anyshape.compile(program), Counter[Any]()
    for turn in range(1, 3):
        assert fast(torch.ones(2), outside)[1] == {"a": 1, "b": 1}
        assert outside == {"a": turn}
