"""Objects of the program's classes of numbers and texts, made inside and handed out: with their class,
their value and their attributes, in one graph and behind a break."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

X = torch.arange(3.0)
CALLED: list[str] = []


class Int(int):
    def __new__(cls, value: Any) -> Any:
        CALLED.append("new")
        return super().__new__(cls, value)

    def __index__(self) -> int:
        CALLED.append("index")
        return 7

    __int__ = __index__

    def __repr__(self) -> str:
        CALLED.append("repr")
        return "shown"


class Float(float):
    def __float__(self) -> float:
        CALLED.append("float")
        return 1.0


class Text(str):
    __slots__ = ("slot",)

    def __str__(self) -> str:
        CALLED.append("str")
        return "other"


class Bytes(bytes):
    def __bytes__(self) -> bytes:
        CALLED.append("bytes")
        return b"other"


class Complex(complex):
    pass


class Flag(enum.IntFlag):
    A = 1
    B = 2
    C = 4


def number(x: torch.Tensor) -> Any:
    made: Any = Int(3)
    made.note = made.itself = made
    return made, [made], {made: x + 1}


def numbers(x: torch.Tensor) -> Any:
    return Float("nan"), Float(-0.0), Float(2.5), Complex(1, -0.0), Int(1 << 70)


def texts(x: torch.Tensor) -> Any:
    made: Any = Text("ab")
    made.slot = x * 2
    return made, Bytes(b"\0\xff"), Text("")


def of_a_size(x: torch.Tensor) -> Any:
    return Int(x.shape[0]), x + 1


def flags(x: torch.Tensor) -> Any:
    return Flag.A | Flag.C, re.I | re.M | re.X, Flag(0)


PROGRAMS = (number, numbers, texts, of_a_size, flags)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if type(a) in (tuple, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if type(a) is dict:
        return _same([*a.values()], [*b.values()]) and _same([*a], [*b])
    base: Any = next(c for c in (int, float, complex, str, bytes) if issubclass(type(a), c))
    if base.__repr__(a) != base.__repr__(b):
        return False
    return (
        _same(getattr(a, "slot", None) or 0, getattr(b, "slot", None) or 0) if base is str else True
    )


@pytest.mark.parametrize("way", [{"fullgraph": True}, {"options": {"break_every": 2}}, {}])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_handed_out_is_what_was_made(program: Callable[..., Any], way: Any) -> None:
    fast = anyshape.compile(program, **way)
    for x in (X, X, torch.ones(5)):
        CALLED.clear()
        expected, called = program(x), [*CALLED]
        CALLED.clear()
        found, now = fast(x), [*CALLED]
        if program is texts:
            assert torch.equal(found[0].slot, expected[0].slot)
            del found[0].slot, expected[0].slot
        assert _same(found, expected)
        assert set(now) <= set(called)
        if program is number:
            made, (again,), table = found
            assert made is again is made.note is made.itself is next(iter(table))
            assert vars(made).keys() == {"note", "itself"}


def test_flags_that_are_new_are_kept_by_their_class() -> None:
    class Fresh(enum.Flag):
        A = 1
        B = 2

    def program(x: torch.Tensor) -> Any:
        return x + 1, Fresh.A | Fresh.B

    fast = anyshape.compile(program, fullgraph=True)
    first, second = fast(X)[1], fast(X)[1]
    assert first is second is Fresh(3) and first == Fresh.A | Fresh.B
