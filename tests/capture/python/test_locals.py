"""`locals()` and the frame objects of the program: before Python 3.13 a function has one dict, which
each call brings up to date; since then each call gives a dict of its own, and `f_locals` is a view
of the frame. In one graph, with a break after each instruction, and over breaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from anyshape.dispatch import Compiled
from anyshape.errors import AnyshapeError, GraphBreakError
from anyshape.options import Options
from tests.capture.by_reference import ByReference


def brought_up_to_date() -> Any:
    a = 1
    shown = locals()
    b = 2
    before = sorted(shown)
    again = locals()
    return a, b, before, sorted(shown), shown is again, "shown" in again


def written() -> Any:
    a = 1
    shown = locals()
    shown["other"], shown["a"] = 5, 6
    before = shown["a"]
    again = vars()
    return a, before, again.get("other"), again["a"], shown["a"]


def deleted() -> Any:
    a = b = 1
    shown = locals()
    del a
    locals()
    return b, sorted(shown), dir()


def of_a_frame() -> Any:
    a = 1
    frame = sys._getframe()
    shown = frame.f_locals
    a += 1
    before = shown["a"]
    again = frame.f_locals
    return a, before, again["a"], frame.f_locals["a"], sys._getframe() is frame


def of_a_closure() -> Any:
    a = 1

    def add() -> None:
        nonlocal a
        a += 1

    shown = locals()
    add()
    before = shown["a"]
    return before, locals()["a"], shown["a"]


def of_a_generator() -> Any:
    def counting() -> Iterator[Any]:
        a = 1
        shown = locals()
        yield shown
        a += 1
        yield locals() is shown
        yield shown["a"], a

    values = counting()
    first = next(values)
    return first["a"], [*values], first["a"]


def of_source() -> Any:
    a = 1
    exec("made = a + 1")
    return locals().get("made"), eval("locals()") is locals(), a


def over_a_break() -> Any:
    a = 1
    shown = locals()
    os.getpid()
    b = 2
    again = locals()
    return a, b, shown is again, sorted(shown)


PROGRAMS = (
    brought_up_to_date, written, deleted, of_a_frame, of_a_closure, of_a_generator, of_source,
    over_a_break,
)  # fmt: skip
WAYS: tuple[dict[str, Any], ...] = (
    {"fullgraph": True},
    {"fullgraph": False},
    {"fullgraph": False, "break_every": 1},
    {"fullgraph": False, "break_every": 3},
)


def _compiled(program: Callable[[], Any], way: dict[str, Any]) -> Callable[[torch.Tensor], Any]:
    def between(x: torch.Tensor) -> Any:
        y = x + 1
        return program(), y * 2

    return Compiled(between, Options(**way), ByReference)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_locals_are_those_of_cpython(program: Callable[[], Any], way: dict[str, Any]) -> None:
    wanted, fast = program(), _compiled(program, way)
    for length in (2, 3):
        try:
            assert fast(torch.ones(length))[0] == wanted
        except GraphBreakError:
            assert program is over_a_break or sys.version_info >= (3, 13)


def test_a_local_that_a_break_has_dropped_is_missed_aloud() -> None:
    def caller() -> Any:
        a = [1]
        b = len(a)
        shown = sys.modules[__name__]._locals_of_the_caller()
        return b, sorted(shown)

    with pytest.raises(AnyshapeError, match="'a' of .* is asked for by its frame"):
        _compiled(caller, {"fullgraph": False, "break_every": 1})(torch.ones(2))


def _locals_of_the_caller() -> Any:
    return sys._getframe(1).f_locals


def test_the_dict_of_a_cell_from_outside_is_relied_on() -> None:
    value = 1

    def program(x: torch.Tensor) -> Any:
        return x + 1, locals()["value"], value

    fast = Compiled(program, Options(fullgraph=True), ByReference)
    assert fast(torch.ones(2))[1:] == (1, 1)
    value = 2
    assert fast(torch.ones(2))[1:] == (2, 2)
