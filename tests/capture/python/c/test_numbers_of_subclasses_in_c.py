"""C functions of integers of the program's own classes, of which they ask nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

import anyshape

CALLS: list[str] = []


def _told(name: str, result: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        CALLS.append(name)
        return result

    return method


class Number(int):
    __repr__ = __str__ = _told("text", "shown")
    __format__ = _told("format", "formatted")
    __int__ = __index__ = _told("number", 77)
    __eq__ = _told("eq", NotImplemented)
    __hash__ = _told("hash", 3)
    __add__ = __radd__ = _told("add", 3)


class Holder:
    value: Any = Number(5)
    other: Any = None


class Lonely:
    """Equal to itself alone, as far as C knows."""


def shown(x: torch.Tensor, number: Any) -> list[Any]:
    return ["%X|%s|%d|%5i" % (number, number, Number(9), 3), "%d" % number, "%o" % number]


def asked(x: torch.Tensor, number: Any) -> list[Any]:
    found = [hex(number), oct(number), bin(number), chr(number), int.__repr__(number)]
    return [*found, int.__add__(number, Number(2)), int.__eq__(number, 5), int.bit_length(number)]


def refused(x: torch.Tensor, number: Any) -> list[Any]:
    said = []
    for text, given in (("%d %d", (number,)), ("%x", (2.0,)), ("%(a)d", number)):
        try:
            said.append(text % given)
        except TypeError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("form", [shown, asked])
def test_integers_of_a_class_of_the_program_are_not_asked(form: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, form(x, Number(5))

    fast = anyshape.compile(program, fullgraph=True)
    for length in (2, 3, 4):
        CALLS.clear()
        expected, calls = program(torch.ones(length))[1], [*CALLS]
        CALLS.clear()
        assert fast(torch.ones(length))[1] == expected
        assert [call for call in CALLS if call in calls] == calls


@pytest.mark.parametrize("form", [shown, asked, refused])
def test_those_of_the_outside_may_be_others_in_the_next_call(form: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, form(x, Holder.value)

    fast = anyshape.compile(program)
    for value in (5, 5, 6, 7):
        with mock.patch.object(Holder, "value", Number(value)):
            assert fast(torch.ones(2))[1] == program(torch.ones(2))[1]


def test_a_method_of_c_declines_what_lies_outside() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, int.__eq__(2, Holder.other), int.__lt__(2, Holder.other)

    fast = anyshape.compile(program, fullgraph=True)
    for other in (Lonely(), Lonely(), 2, True, 1.0):
        with mock.patch.object(Holder, "other", other):
            assert fast(torch.ones(2))[1:] == program(torch.ones(2))[1:]
