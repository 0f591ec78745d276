"""`int`, `float` and `complex` ask a class of the program for its number alone: what else it defines
is no break, and is not called."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

LOG: list[str] = []


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3

    def __lt__(self, other: int) -> bool:
        LOG.append("<")
        return int(self) < int(other)


class Listening(int):
    def __eq__(self, other: object) -> bool:
        LOG.append("==")
        return True

    def __hash__(self) -> int:
        LOG.append("hash")
        return 3

    def __bool__(self) -> bool:
        LOG.append("bool")
        return False


class Index:
    def __index__(self) -> int:
        LOG.append("index")
        return 5

    def __call__(self) -> None:
        LOG.append("call")


class Text(str):
    def __repr__(self) -> str:
        LOG.append("repr")
        return "shown"


def of_members(x: Tensor) -> Any:
    return Level.LOW < 2, sorted([Level.HIGH, Level.LOW]), float(Level.HIGH)


def of_subclasses(x: Tensor) -> Any:
    made = [int(Listening(3)), float(Listening(4)), complex(Listening(5)), complex(1, Listening(2))]
    return made, [type(number) for number in made]


def of_objects(x: Tensor) -> Any:
    made: list[Any] = [int(Index()), float(Index())]
    for kind in (int, float, complex):
        for refused in (Index, [Index()]):
            try:
                kind(refused)  # type: ignore[call-overload]
            except TypeError as error:
                made.append(str(error))
    return made


def of_texts(x: Tensor) -> Any:
    try:
        return int(Text("12")), int(Text("q"))
    except ValueError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"fullgraph": True}, {"break_every": 1}, {}])
@pytest.mark.parametrize("program", [of_members, of_subclasses, of_objects, of_texts])
def test_what_is_asked_is_asked_as_natively(
    program: Callable[[Tensor], Any], options: dict[str, Any]
) -> None:
    if program is of_texts and "fullgraph" in options:
        pytest.skip("the error shows the text by a method of the program")
    fast = Compiled(program, Options(**options), ByReference)
    for n in (2, 3, 3):
        LOG.clear()
        wanted = program(torch.ones(n)), [*LOG]
        LOG.clear()
        assert (fast(torch.ones(n)), [*LOG]) == wanted
    assert not fast.mistakes
