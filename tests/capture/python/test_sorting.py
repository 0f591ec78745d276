"""Sorting with comparisons of the program: they are those that C makes, in its order, and what it
makes of answers that are no total order, or raise, is what it makes here."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from anyshape.capture.interpreter import sort_polyfills
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

LOG: list[Any] = []


def _ramp(count: int) -> list[int]:
    return list(range(count))


def _two_ramps(count: int) -> list[int]:
    return [*range(0, count, 2), *range(1, count, 2)]


def _saw(count: int) -> list[int]:
    return [i % 11 for i in range(count)]


SHAPES: dict[str, Callable[[int], list[int]]] = {
    "ramp": _ramp,
    "down": lambda count: _ramp(count)[::-1],
    "equal": lambda count: [0] * count,
    "two ramps": _two_ramps,
    "saw": _saw,
    "few": lambda count: random.Random(count).choices(range(4), k=count),
    "any": lambda count: random.Random(count).sample(range(count), count),
    "blocks": lambda count: [*range(count // 2, count), *range(count // 2)],
}
COUNTS = (2, 3, 5, 31, 63, 64, 65, 130, 257, 1000)


@pytest.mark.parametrize("lasts", [10**9, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_algorithm_compares_as_c_does(shape: str, lasts: int) -> None:
    """`lasts`: after so many comparisons one raises."""
    for count in COUNTS:
        values = SHAPES[shape](count)
        for answers in (lambda a, b: a < b, lambda a, b: (a * 7 + b * 3) % 5 < 2):
            assert _by_polyfill(values, answers, lasts) == _by_c(values, answers, lasts)


def _asking(answers: Callable[[int, int], bool], lasts: int) -> Callable[[Any, Any], bool]:
    def asked(a: Any, b: Any) -> bool:
        LOG.append((a, b))
        if len(LOG) > lasts:
            raise ZeroDivisionError
        return answers(a, b)

    return asked


def _by_polyfill(values: list[int], answers: Any, lasts: int) -> Any:
    LOG.clear()
    order = list(range(len(values)))
    lt = _asking(answers, lasts)
    with mock.patch.object(sort_polyfills, "comparison_of", lambda keys: lt):
        try:
            sort_polyfills.sort_order(order, values)
        except ZeroDivisionError:
            LOG.append("raised")
    return [values[i] for i in order], list(LOG)


def _by_c(values: list[int], answers: Any, lasts: int) -> Any:
    LOG.clear()
    lt = _asking(answers, lasts)

    class Key:
        def __init__(self, value: int) -> None:
            self.value = value

        def __lt__(self, other: Key) -> bool:
            return lt(self.value, other.value)

    keys = list(map(Key, values))
    try:
        keys.sort()
    except ZeroDivisionError:
        LOG.append("raised")
    return [key.value for key in keys], list(LOG)


class Weight:
    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: Any) -> Any:
        LOG.append((self.value, other.value))
        return NotImplemented if self.value == 13 else self.value < other.value

    def __gt__(self, other: Any) -> Any:
        LOG.append((">", self.value, other.value))
        return NotImplemented if other.value == 17 else self.value > other.value


def weights(values: list[int], reverse: bool) -> Any:
    made = [Weight(value) for value in values]
    try:
        made.sort(reverse=reverse)
    except TypeError as error:
        LOG.append(str(error))
    return [weight.value for weight in made]


def in_tuples(values: list[int], reverse: bool) -> Any:
    made = sorted([(Weight(value), value % 3) for value in values], reverse=reverse)
    return [(weight.value, rest) for weight, rest in made]


def sets(values: list[int], reverse: bool) -> Any:
    made = sorted([{value % 3, value % 5} for value in values], reverse=reverse)
    return [sorted(each) for each in made]


def keyed(values: list[int], reverse: bool) -> Any:
    return sorted(values, key=lambda value: Weight(value % 7), reverse=reverse)


def compared(values: list[int], reverse: bool) -> Any:
    def compare(a: int, b: int) -> int:
        LOG.append((a, b))
        return a % 7 - b % 7

    return sorted(values, key=functools.cmp_to_key(compare), reverse=reverse)


def raising(values: list[int], reverse: bool) -> Any:
    def compare(a: int, b: int) -> int:
        LOG.append((a, b))
        return 1 // (a - 5) - 1 // (b - 5)

    held = list(values)
    try:
        held.sort(key=functools.cmp_to_key(compare), reverse=reverse)
    except ZeroDivisionError:
        LOG.append("raised")
    return held


def written_meanwhile(values: list[int], reverse: bool) -> Any:
    """The list is as it was in the end, and the graph breaks in each comparison."""

    class Writing(Weight):
        def __lt__(self, other: Any) -> Any:
            time.perf_counter()
            held.append(3)
            held.pop()
            return self.value < other.value

    held: list[Any] = [Writing(value) for value in values]
    try:
        held.sort(reverse=reverse)
    except ValueError as error:
        LOG.append(str(error))
    return [weight.value for weight in held]


VALUES = [8, 3, 13, 2, 17, 21, 1, 5, 34, 17, 4, 0]


@pytest.mark.parametrize("every", [0, 7])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "work", [weights, in_tuples, sets, keyed, compared, raising, written_meanwhile]
)
def test_programs_see_the_comparisons_of_c(work: Any, reverse: bool, every: int) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        result = work(VALUES, reverse)
        return y * 2, result

    LOG.clear()
    wanted, log = program(torch.ones(2))[1], list(LOG)
    fast = Compiled(program, Options(break_every=every), ByReference)
    for _ in range(2):
        LOG.clear()
        assert (fast(torch.ones(2))[1], list(LOG)) == (wanted, log)
    assert not fast.mistakes
