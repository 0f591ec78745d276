"""Variables of `contextvars` from outside, read and set inside."""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import torch

import anyshape

SCALE: ContextVar[Any] = ContextVar("SCALE")
NAMES: ContextVar[list[Any]] = ContextVar("NAMES")


def scaled(x: torch.Tensor) -> Any:
    try:
        scale = SCALE.get()
    except LookupError as error:
        scale = 3 if error.args[0] is SCALE else 4
        SCALE.set(scale)
    return x * scale, SCALE.get(7), SCALE.get()


def noted(x: torch.Tensor) -> Any:
    names = NAMES.get(None)
    if names is None:
        names = ["first"]
        NAMES.set(names)
    names.append(x.shape[0])
    NAMES.get().append("again")
    return x + len(names), NAMES.get() is names


def with_a_break(x: torch.Tensor) -> Any:
    SCALE.set(5)
    inside = copy_context().run(SCALE.get)  # which C asks
    token = SCALE.set(6)
    SCALE.reset(token)
    return x * SCALE.get(), inside


def in_a_context(fn: Any, *values: Any) -> Any:
    """What calls give one after the other, with the value as it is set in front of each."""

    def calls() -> Any:
        found = []
        for length, value in enumerate(values):
            if value is not None:
                SCALE.set(value)
                NAMES.set([value])
            given = fn(torch.ones(length + 1))
            found.append((given[0].tolist(), given[1:], SCALE.get(None), NAMES.get(None)))
        return found

    return copy_context().run(calls)


@pytest.mark.parametrize("program", [scaled, noted, with_a_break])
@pytest.mark.parametrize("values", [(None, None, 4, 4, 2.5), (2, 3, 4, 5), (1, None, None, 1)])
def test_each_call_reads_and_writes_the_context_of_its_thread(program: Any, values: Any) -> None:
    wanted = in_a_context(program, *values)
    assert in_a_context(anyshape.compile(program), *values) == wanted
    stressed = anyshape.compile(program, options={"break_every": 2})
    assert in_a_context(stressed, *values) == wanted


@pytest.mark.parametrize("program", [scaled, noted])
def test_what_is_set_is_read_in_one_graph(program: Any) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    assert in_a_context(fast, None, None, 4) == in_a_context(program, None, None, 4)
