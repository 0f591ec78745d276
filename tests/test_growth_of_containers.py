"""A loop that fills, searches or empties a container takes work linear in its turns: no turn goes
through what the others have left there. Calls of functions are counted, not seconds."""

from __future__ import annotations

import cProfile
import pstats
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

SLACK = 1.25


class Key:
    pass


def dict_of_numbers(n: int) -> None:
    table = {}
    for i in range(n):
        table[i] = i
    for i in range(n):
        table.pop(i)


def dict_of_texts(n: int) -> None:
    table: dict[str, tuple[int, str]] = {}
    for i in range(n):
        table.setdefault(f"k{i}", (i, "a"))


def dict_of_objects(n: int) -> None:
    table = {}
    for key in [Key() for _ in range(n)]:
        table[key] = 1


def remembered(n: int) -> None:
    memory: dict[tuple[int, str], int] = {}
    for i in range(n):
        if (i, "x") not in memory:
            memory[i, "x"] = i


def counted(n: int) -> None:
    found: Counter[int] = Counter()
    for i in range(n):
        found[i] += 1


def grouped(n: int) -> None:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for i in range(n):
        groups[i % 7].append(i)


def ordered(n: int) -> None:
    table: OrderedDict[int, int] = OrderedDict()
    for i in range(n):
        table[i] = 1
    for i in range(n):
        table.move_to_end(i)


def sets(n: int) -> None:
    seen: set[Any] = set()
    for i in range(n):
        seen.add(i)
    for i in range(n):
        seen.add((i, "x"))
    for i in range(n):
        seen.discard(i)


def lists(n: int) -> None:
    values: list[int] = []
    for i in range(n):
        values.append(i)
    for i in range(n):
        values[i] += values[-i]
    queue = deque(values)
    for _ in range(n):
        queue.popleft()


def attributes(n: int) -> None:
    key = Key()
    for i in range(n):
        setattr(key, f"a{i}", i)
    for i in range(n):
        getattr(key, f"a{i}")


FILLED = [
    *(dict_of_numbers, dict_of_texts, dict_of_objects, remembered, counted, grouped),
    *(ordered, sets, lists, attributes),
]


def calls(fill: Callable[[int], None], count: int) -> int:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        fill(count)
        return y * 2

    compiled = anyshape.compile(program, fullgraph=True)
    profile = cProfile.Profile()
    profile.enable()
    compiled(torch.ones(2))
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("fill", FILLED, ids=lambda fill: fill.__name__)
def test_work_is_linear_in_the_turns(fill: Callable[[int], None]) -> None:
    calls(fill, 10)
    few, more, most = (calls(fill, count) for count in (50, 100, 300))
    assert most - more <= SLACK * 4 * (more - few)
