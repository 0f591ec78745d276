"""Programs that iterate in C: over what lies outside, over sizes, over what native code has made."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

SIZES = (3, 1, 12, 7, 0, 5, 2, 6, 3)  # more than the values that make a specialization each


def above(values: Any, least: int) -> Iterator[Any]:
    for value in values:
        if value <= least:
            return
        yield value


def until(values: Any, last: int) -> Iterator[Any]:
    for value in values:
        yield value
        if value == last:
            return


def either(values: Any) -> Iterator[Any]:
    for value in values:
        if value > 2:
            yield 2 * value
        else:
            yield -value


def advanced(values: Any) -> list[Any]:
    """All values, by way of a bound method of the iterator."""
    following = iter(values).__next__
    found = []
    try:
        while True:
            found.append(following())
    except StopIteration:
        return found


def raised_in_place(n: int) -> list[Any]:
    heap, found = [[n, 0], [4, 1]], []
    heapq.heapify(heap)
    while heap[0][0] < 6:
        least = heap[0]
        found.append(least[0])
        least[0] = least[0] + 1
        heapq.heapreplace(heap, least)
    return found


def some(n: int) -> list[int]:
    return [n, n + 1, 2, 2 * n, 1]


OF_A_SIZE: dict[str, Callable[[int], Any]] = {
    "list": lambda n: list(range(n)),
    "reversed": lambda n: [*reversed(range(n))],
    "reversed list": lambda n: [*reversed(list(range(n)))],
    "dict": lambda n: dict.fromkeys(range(n), n),
    "tuple and set": lambda n: (tuple(range(n)), set(range(n))),
    "a generator that returns early": lambda n: [*above(some(n), 2)],
    "a generator that returns late": lambda n: [*until(some(n), 2)],
    "a generator that yields either": lambda n: sum(either(some(n))),
    "takewhile": lambda n: [*itertools.takewhile(lambda v: v > 2, some(n))],
    "starmap": lambda n: [*itertools.starmap(operator.add, zip(some(n), some(n), strict=True))],
    "accumulate": lambda n: [*itertools.accumulate(some(n), operator.mul)],
    "a heap": raised_in_place,
    "merge": lambda n: [*heapq.merge([n, 2 * n + 1], [4, 9])],
}


@pytest.mark.parametrize("name", OF_A_SIZE)
def test_iterating_by_sizes_gives_pythons_values_at_every_size(name: str) -> None:
    compute = OF_A_SIZE[name]
    fast = anyshape.compile(lambda x: (x + 1, compute(x.shape[0])))
    for size in SIZES:
        assert fast(torch.ones(size, 2))[1] == compute(size)


OF_A_LIST: dict[str, Callable[[list[int]], Any]] = {
    "bytearray": bytearray,
    "distance": lambda kept: math.dist(kept, [0, 0, 0]),
    "elements": lambda kept: list(Counter(kept).elements()),
    "permutations": lambda kept: [*itertools.permutations(kept, 2)],
    "zip_longest": lambda kept: [*itertools.zip_longest(kept, "ab")],
    "compress": lambda kept: [*itertools.compress(kept, [1, 0, 1])],
    "tee": lambda kept: [list(each) for each in itertools.tee(kept)],
    "cycle": lambda kept: [*itertools.islice(itertools.cycle(kept), 5)],
    "accumulate": lambda kept: [*itertools.accumulate(kept)],
    "reduce": lambda kept: functools.reduce(operator.sub, kept),
    "merge": lambda kept: [*heapq.merge(kept, [4])],
    "next": advanced,
    "keys": dict.fromkeys,
    "size": torch.Size,
}


@pytest.mark.parametrize("name", OF_A_LIST)
def test_a_kept_list_is_read_anew_by_c_code_in_each_call(name: str) -> None:
    compute, kept = OF_A_LIST[name], [3, 1, 2]

    def program(x: Tensor) -> tuple[Tensor, Any]:
        return x + 1, compute(kept)

    fast = anyshape.compile(program)
    for values in ([3, 1, 2], [2, 3, 1], [3, 1, 2], [4, 1, 3], [5, 5, 0], [1, 2, 3]):
        kept[:] = values
        assert fast(torch.ones(3))[1] == compute(values)
