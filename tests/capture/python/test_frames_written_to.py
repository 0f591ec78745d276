"""What is written into `f_locals` of a function's frame is, since Python 3.13, written to its locals
(PEP 667): never lost without a word."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import AnyshapeError


def of_its_own(x: Tensor) -> Any:
    y = x + 1
    value = 1
    shown = sys._getframe().f_locals
    shown["value"] = 5
    return y * 2, value, shown["value"]


def write() -> None:
    sys._getframe(1).f_locals["value"] = 9


def of_a_caller(x: Tensor) -> Any:
    y = x + 1
    value = 1
    write()
    return y * 2, value


def counting() -> Iterator[int]:
    value = 1
    yield value
    yield value


def of_a_generator(x: Tensor) -> Any:
    y = x + 1
    values: Any = counting()
    next(values)
    values.gi_frame.f_locals["value"] = 4
    return y * 2, next(values)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [of_its_own, of_a_caller, of_a_generator])
def test_what_is_written_is_not_lost(program: Callable[[Tensor], Any]) -> None:
    wanted = program(torch.ones(2))[1:]
    fast = anyshape.compile(program)
    for length in (3, 0, 1):
        assert fast(torch.ones(length))[1:] == wanted
    try:
        assert anyshape.compile(program, fullgraph=True)(torch.ones(2))[1:] == wanted
    except AnyshapeError:
        assert sys.version_info >= (3, 13)


def test_it_is_read_by_name() -> None:
    def program(x: Tensor) -> Any:
        y = x + 1
        return y * 2, sorted(sys._getframe().f_locals), sys._getframe().f_locals["x"] is x

    assert (
        anyshape.compile(program, fullgraph=True)(torch.ones(2))[1:] == (program(torch.ones(2))[1:])
    )
