"""Objects of the program that are printed make their texts where the program prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.capture.by_reference import compiled


class Counted:
    """Counts how often it was shown."""

    def __init__(self) -> None:
        self.shown = 0

    def __str__(self) -> str:
        self.shown += 1
        return f"shown {self.shown}"

    def __repr__(self) -> str:
        return "counted"


class Named(Counted):
    def __repr__(self) -> str:
        self.shown += 1
        return f"named {self.shown}"


class Stack(list[str]):
    """Shows what it lets go of."""

    shown = property(len)
    __str__ = list.pop  # type: ignore[assignment]
    __repr__ = list.pop  # type: ignore[assignment]


MADE: dict[str, Callable[[], Any]] = {
    "Counted": Counted,
    "Named": Named,
    "Stack": lambda: Stack("abcdef"),
}
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda value: (print(value), value.shown),
    "among others": lambda value: (print("a", value, 3, value, sep="-", end="!\n"), value.shown),
    "in a list": lambda value: (print([value, (value,)], {1: value}), value.shown),
    "twice": lambda value: (print(value), value.shown, print(value), value.shown),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"break_every": 3}], ids=str)
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_is_made_where_it_is_printed(
    name: str, kind: str, options: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    fast = compiled(lambda x, value: (x + 1, PROGRAMS[name](value)), fullgraph=False, **options)
    for _ in range(2):
        wanted, printed = PROGRAMS[name](MADE[kind]()), capsys.readouterr().out
        assert fast(torch.ones(1), MADE[kind]())[1] == wanted
        assert capsys.readouterr().out == printed


def test_printing_an_object_is_no_break(capsys: pytest.CaptureFixture[str]) -> None:
    fast = compiled(lambda x, value: (print(value, x.shape[0]), x + value.shown)[1])
    for size in (2, 3):
        assert fast(torch.zeros(size), Counted()).tolist() == [1.0] * size
        assert capsys.readouterr().out == f"shown 1 {size}\n"
