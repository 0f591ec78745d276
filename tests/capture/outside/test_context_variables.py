"""Variables of `contextvars` from outside, read and set inside."""

from __future__ import annotations

import contextvars
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import anyshape

X = torch.arange(3.0)
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


def test_what_a_variable_holds_is_read_in_each_call() -> None:
    with_default: Any = contextvars.ContextVar("with_default", default=3)
    bare: Any = contextvars.ContextVar("bare")

    def program(x: torch.Tensor) -> Any:
        try:
            found = bare.get()
        except LookupError as error:
            found = error.args[0] is bare
        return with_default.get(), found, bare.get(None), with_default.get(7), x + 1

    def check() -> None:
        assert fast(X)[:-1] == program(X)[:-1]

    def in_a_context() -> None:
        fast = anyshape.compile(program, fullgraph=True)
        assert fast(X)[:-1] == program(X)[:-1]

    fast = anyshape.compile(program, fullgraph=True)
    check()
    check()
    token = with_default.set(5)
    check()
    holder = SimpleNamespace(v=1)
    bare.set(holder)
    check()
    assert fast(X)[1] is holder
    with_default.reset(token)
    check()
    context = contextvars.copy_context()
    with_default.set(11)
    context.run(check)
    context.run(in_a_context)
    contextvars.Context().run(check)
    check()


def test_what_lies_in_it_is_guarded() -> None:
    holder: Any = contextvars.ContextVar("holder")

    def program(x: torch.Tensor) -> torch.Tensor:
        holder.get().calls += 1
        return x * holder.get().scale

    fast = anyshape.compile(program, fullgraph=True)
    for scale in (2, 3, 2.5, X, X + 1):
        for _ in range(2):
            holder.set(SimpleNamespace(scale=scale, calls=0))
            assert torch.equal(fast(X), X * scale)
            assert holder.get().calls == 1


def test_another_variable_may_be_handed_in() -> None:
    variables: list[Any] = [contextvars.ContextVar(f"v{n}", default=n) for n in range(3)]
    variables[1].set(5)

    def program(x: torch.Tensor, variable: Any) -> Any:
        return x + 1, variable.get(), variable.get(None)

    fast = anyshape.compile(program)
    for variable in (*variables, *variables):
        assert fast(X, variable)[1:] == program(X, variable)[1:]


def test_one_without_a_default_may_be_followed_by_one_with_it() -> None:
    bare: Any = contextvars.ContextVar("bare")
    with_default: Any = contextvars.ContextVar("with_default", default=5)

    def caught(x: torch.Tensor, variable: Any) -> Any:
        try:
            return variable.get(), x
        except LookupError:
            return "none", x + 1

    def raised(x: torch.Tensor, variable: Any) -> Any:
        return variable.get(), x + 1

    for variables in ((bare, with_default), (with_default, bare)):
        fast, raising = anyshape.compile(caught), anyshape.compile(raised)
        for variable in variables * 2:
            assert fast(X, variable)[0] == ("none" if variable is bare else 5)
            if variable is with_default:
                assert raising(X, variable)[0] == 5
            else:
                with pytest.raises(LookupError):
                    raising(X, variable)


COUNTED: ContextVar[int] = ContextVar("COUNTED", default=0)
STATE: ContextVar[torch.Tensor] = ContextVar("STATE")


def test_a_number_that_each_call_counts_up_is_a_symbol() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        COUNTED.set(COUNTED.get() + 1)
        return x * COUNTED.get()

    COUNTED.set(3)
    fast = anyshape.compile(program, fullgraph=True)
    for call in range(7):
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), 4.0 + call))
    assert COUNTED.get() == 10
    assert fast.stats().specializations == 1


def test_a_tensor_that_each_call_replaces_is_an_argument() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        STATE.set(STATE.get() * 0.5 + x)
        return STATE.get() + 1

    fast, state = anyshape.compile(program, fullgraph=True), torch.zeros(2)
    STATE.set(state)
    for _ in range(5):
        state = state * 0.5 + 1
        torch.testing.assert_close(fast(torch.ones(2)), state + 1)
        torch.testing.assert_close(STATE.get(), state)
    assert fast.stats().specializations == 1
