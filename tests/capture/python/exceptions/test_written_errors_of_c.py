"""What the program writes to an error that C code has raised inside is in one graph, as it is for one
that the program has made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

OUTSIDE = ValueError("outside")
TOLD: list[BaseException] = []


def shown(error: BaseException | None) -> Any:
    if error is None:
        return None
    links = shown(error.__context__), shown(error.__cause__), error.__suppress_context__
    return type(error), error.args, vars(error), error.__traceback__ is None, links


def stack_of_exits(x: Tensor) -> BaseException | None:
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: 1 / 0)
            stack.callback(lambda: {}["key"])
            raise OSError("left")
    except Exception as error:
        return error


def links(x: Tensor) -> BaseException | None:
    try:
        try:
            [].pop()
        except IndexError as error:
            error.__cause__, error.__suppress_context__ = OUTSIDE, False
            raise
    except IndexError as error:
        return error


def attributes(x: Tensor) -> BaseException | None:
    try:
        1 / 0
    except ZeroDivisionError as error:
        error.add_note("noted")
        error.rows = x.shape[0]  # type: ignore[attr-defined]
        return error


def kept_outside(x: Tensor) -> BaseException | None:
    try:
        int("x")
    except ValueError as error:
        error.__traceback__ = None
        error.args = ("another",)
        TOLD.append(error)
    return TOLD[-1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"fullgraph": True}, {"break_every": 1}, {"break_every": 3}])
@pytest.mark.parametrize("program", [stack_of_exits, links, attributes, kept_outside])
def test_errors_of_c_are_written_as_natively(
    program: Callable[[Tensor], Any], options: dict[str, Any]
) -> None:
    fast = Compiled(program, Options(**options), ByReference)
    given = []
    for n in (2, 3, 3):
        x = torch.ones(n)
        error = fast(x)
        assert shown(error) == shown(program(x))
        given.append(error)
    assert len(set(map(id, given))) == 3
    assert not fast.mistakes
