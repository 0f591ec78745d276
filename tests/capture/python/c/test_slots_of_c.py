"""Families that the grid of special methods has found, as programs."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

LOG: list[str] = []


class Declines:
    """It notes each question, and declines."""

    def __eq__(self, other: object) -> Any:
        LOG.append("eq")
        return NotImplemented

    def __le__(self, other: object) -> Any:
        LOG.append("le")
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


class Repeated(list[int]):
    def __rmul__(self, count: Any) -> Any:
        LOG.append("rmul")
        return list.__rmul__(self, count)


class Added(list[int]):
    def __add__(self, other: Any) -> Any:
        LOG.append("add")
        return list.__add__(self, other)


class Keyed(dict[str, int]):
    def __eq__(self, other: object) -> bool:
        LOG.append("dict eq")
        return dict.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]


def _in_place(symbol: str, a: Any, b: Any) -> Any:
    if symbol == "*":
        a *= b
    else:
        a += b
    return type(a).__name__, list(a)


def _compared(a: Any, b: Any) -> Any:
    try:
        return a <= b
    except TypeError as error:
        return str(error)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "an answer that is none": lambda: (Declines() == 1, Declines() == Declines()),
    "an order that there is not": lambda: _compared(Declines(), 1),
    "dicts have no order": lambda: _compared(Keyed(a=1), Keyed(a=1)),
    "repeated in place": lambda: _in_place("*", Repeated([1]), 2),
    "added in place": lambda: _in_place("+", Added([1]), [2]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_asked_once(name: str, every: int) -> None:
    act = PROGRAMS[name]

    def program(x: Tensor) -> Any:
        return x + 1, act()

    fast = Compiled(program, Options(break_every=every), ByReference)
    for _ in range(4):
        LOG.clear()
        wanted = repr(program(torch.ones(2))), list(LOG)
        LOG.clear()
        assert (repr(fast(torch.ones(2))), LOG) == wanted
    assert not fast.mistakes


class Mortal(list[int]):
    def __del__(self) -> None:
        LOG.append("dies")


def _generated(values: Any) -> Any:
    return [v + 1 for v in (w for w in values)]


def _raises(values: Any) -> Any:
    return {**values}


DROPPED: dict[str, Callable[[Any], Any]] = {
    "read": len,
    "copied": lambda values: [*values],
    "by a generator": _generated,
    "where it raises": _raises,
    "sorted": sorted,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DROPPED)
def test_what_is_handed_in_dies_when_the_caller_drops_it(name: str) -> None:
    act = DROPPED[name]

    def program(x: Tensor, values: Any) -> Any:
        y = x + 1
        return y, act(values)

    fast = Compiled(program, Options(), ByReference)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            LOG.clear()
            values = Mortal([2, 1])
            try:
                fast(torch.ones(2), values)
            except TypeError:
                pass
            assert LOG == []
            del values
            assert LOG == ["dies"]
    finally:
        gc.enable()


def _past_its_order(x: Tensor) -> Any:
    values = OrderedDict(a=1, b=2)
    dict.pop(values, "a")
    y = x + 1
    torch.get_num_threads()
    return y, dict.__len__(values), list(dict.keys(values)), list(reversed(Backwards()))


class Backwards(set[int]):
    """A sequence by its items, the last of which is not there."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return (7, 8)[index]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1])
def test_what_c_refuses_to_iterate_over_is_no_mistake_of_ours(every: int) -> None:
    fast = Compiled(_past_its_order, Options(break_every=every), ByReference)
    for _ in range(2):
        assert fast(torch.ones(2))[1:] == _past_its_order(torch.ones(2))[1:]
    assert not fast.mistakes
