"""`q, k, v = x.chunk(3)`: the program says how many pieces it wants. Sizes that nobody may guard on
are checked to give as many; where they do not, Python's own `ValueError` is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


def three_chunks(x: Tensor) -> tuple[Tensor, ...]:
    q, k, v = x.chunk(3)
    return q + 1, k * 2, v


def two_splits(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x.split(2)
    return a + 1, b


def one_split(x: Tensor) -> tuple[Tensor, ...]:
    (a,) = x.split(3)
    return (a + 1,)


def unbound(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x.unbind(0)
    return (a + b,)


def rows(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x
    return (a * b,)


def numbers(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x.tolist()
    return (x * a + b,)


def at_positions(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x.tensor_split(torch.arange(1, x.shape[0]))
    return a + 1, b


def returned(x: Tensor) -> tuple[Tensor, ...]:
    def halves() -> Any:
        return x.chunk(2)

    a, b = halves()
    return a, b


def caught(x: Tensor) -> tuple[Tensor, ...]:
    try:
        a, b = x.chunk(2)
    except ValueError:
        return (x - 1,)
    return a, b


PROGRAMS = (
    three_chunks, two_splits, one_split, unbound, rows, numbers, at_positions, returned, caught,
)  # fmt: skip


def attempt(program: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor) -> Any:
    try:
        return program(x)
    except (ValueError, RuntimeError) as error:
        return str(error)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("first", [2, 0])
def test_unpacking_says_how_many_pieces_there_are(program: Any, first: int) -> None:
    fast = anyshape.compile(program)
    for n in (first, 3, 17, 2, 1, 0, 4, 5, 6, 7):
        x = torch.arange(float(n))
        anyshape.mark_unbacked(x, 0)
        ours, theirs = attempt(fast, x), attempt(program, torch.arange(float(n)))
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs)
    assert fast.stats().graph_breaks == 0


def test_backed_sizes_are_guarded_on_the_number_of_pieces() -> None:
    fast = anyshape.compile(three_chunks)
    for n in (9, 6, 12, 5, 7):
        x = torch.arange(float(n))
        torch.testing.assert_close(fast(x), three_chunks(x))
    assert fast.stats().graph_breaks == 0


class Sized:
    def __len__(self) -> int:
        return 3


class Refusing:
    __iter__ = None


def _spread(*args: Any) -> Any:
    return args


def _pair(value: Any) -> Any:
    a, b = value
    return a, b


def _some(value: Any) -> Any:
    a, *b = value
    return a, b


TAKEN: tuple[Callable[[Any], Any], ...] = (
    lambda v: [*v], lambda v: (1, *v), lambda v: _spread(*v), lambda v: _spread(1, *v), _pair, _some,
)  # fmt: skip


@pytest.mark.parametrize("value", [Sized(), Refusing(), 5, None], ids=lambda v: type(v).__name__)
def test_what_has_nothing_to_iterate_by_is_refused_in_the_words_of_cpython(value: Any) -> None:
    def said(take: Callable[[Any], Any], of: Any) -> str:
        try:
            return repr(take(of))
        except TypeError as error:
            return str(error)

    def program(x: Tensor) -> Any:
        count = x.shape[0]
        return [said(take, value) for take in TAKEN], [said(take, count) for take in TAKEN], x + 1

    for way in ({"fullgraph": True}, {"options": {"break_every": 1}}):
        fast = anyshape.compile(program, **way)
        for length in (2, 3):
            x = torch.ones(length)
            assert fast(x)[:2] == program(x)[:2]
