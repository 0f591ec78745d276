"""Methods of C bound to objects that a call makes: each call has its own object, behind a break too,
also where C tells the method in which class it was found."""

from __future__ import annotations

import array
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape


def given_back(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    made = array.array("i", [1])
    return x + 1, made.extend


def used_behind_a_break(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    y, made = x + 1, array.array("i", [1])
    extend = made.extend
    os.getpid()
    extend([2])
    return y * 2, made.tolist()


def named_behind_a_break(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    y, made, table = x + 1, bytearray(b"a"), {1: 2}
    append, get = made.append, table.get
    names = append.__name__, append.__qualname__, get.__doc__ is None, append.__text_signature__
    os.getpid()
    append(98)
    table[3] = 4
    return y * 2, (names, made, append.__self__ is made, get(3))


def of_a_pattern(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    matches = re.compile("a(.)").match
    found = matches("ab")
    return x + 1, "" if found is None else found.group(1)


@pytest.mark.parametrize("program", [used_behind_a_break, named_behind_a_break, of_a_pattern])
def test_each_call_has_its_own_object(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program)
    for size in (2, 2, 3):
        assert fast(torch.ones(size))[1] == program(torch.ones(size))[1]


def test_what_is_given_back_is_bound_to_another_object_each_time() -> None:
    fast = anyshape.compile(given_back)
    first, second = (fast(torch.ones(2))[1] for _ in range(2))
    first([5])
    assert list(first.__self__) == [1, 5]
    assert list(second.__self__) == [1]
