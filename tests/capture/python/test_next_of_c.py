"""The `__next__` of an iterator of C, called as a method or kept and called later, as `heapq.merge`
does: the iterator goes on where it was, also behind a break."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

X = torch.arange(3.0)


def kept(x: torch.Tensor) -> Any:
    source = iter([1, x, 3])
    take = source.__next__
    found = [take(), take()]
    print(end="")
    found.append(take())
    try:
        take()
    except StopIteration as error:
        found.append(repr(error))
    return found, list(source)


def of_each_kind(x: torch.Tensor) -> Any:
    made = [
        *(enumerate("ab"), zip([1], [2]), itertools.count(3), map(str, [1]), reversed([1, 2])),
        *(itertools.chain([1], [2]), filter(None, [0, 2]), iter("ab"), iter(range(3))),
        *(itertools.islice([1, 2], 1), itertools.cycle([1]), itertools.product([1], [2])),
        *(iter({1: 2}), iter((5,)), iter(b"a"), (n for n in [4]), iter({3})),
    ]
    return x + 1, [source.__next__() for source in made]


def merged(x: torch.Tensor) -> Any:
    rows = [1, x.shape[0]], [], iter((0, 5))
    return x * 2, list(heapq.merge(*rows)), list(heapq.merge([x, 1], [2], key=lambda value: 0))


def merged_backwards(x: torch.Tensor) -> Any:
    """Whose heap is C's alone: each step is a break, with what the iterators have left."""
    by_key = heapq.merge([1, 4], iter(()), (2, 3), key=lambda value: -value, reverse=True)
    return x * 2, list(heapq.merge([4, 1], [], [3, 2], reverse=True)), list(by_key)


def shared(x: torch.Tensor) -> Any:
    source = iter([1, 2, 3, 4])
    first, second = source.__next__, source.__next__
    return x + 1, first(), second(), next(source), first(), next(source, "none")


PROGRAMS = (kept, of_each_kind, merged, merged_backwards, shared)


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"options": {"break_every": 1, "max_variants": 64}},
        {"options": {"break_every": 3, "max_variants": 64}},
    ],
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_taken_is_what_comes_next(program: Callable[..., Any], way: Any) -> None:
    fast = anyshape.compile(program, **way)
    for _ in range(2):
        assert repr(fast(X)) == repr(program(X))


@pytest.mark.parametrize("program", (of_each_kind, merged, shared), ids=lambda p: p.__name__)
def test_it_is_in_one_graph(program: Callable[..., Any]) -> None:
    assert repr(anyshape.compile(program, fullgraph=True)(X)) == repr(program(X))


def test_a_method_from_outside_advances_its_iterator_once() -> None:
    def program(x: torch.Tensor, rows: Any) -> Any:
        row = rows[0]
        row[0] = row[1]()
        print(end="")
        return x + 1, row[0], row[1]()

    for way in ({}, {"options": {"break_every": 1}}):
        fast = anyshape.compile(program, **way)
        for _ in range(2):
            found, wanted = [[[0, iter([1, 2, 3]).__next__]] for _ in range(2)]
            assert fast(X, found)[1:] == program(X, wanted)[1:]
            assert found[0][1]() == wanted[0][1]() == 3


class Counted(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([7])


def test_the_programs_own_next_is_called() -> None:
    class Own:
        def __next__(self) -> int:
            return 9

    def program(x: torch.Tensor) -> Any:
        return x + 1, Own().__next__(), Counted([1]).__iter__().__next__()

    assert anyshape.compile(program, fullgraph=True)(X)[1:] == (9, 7)
