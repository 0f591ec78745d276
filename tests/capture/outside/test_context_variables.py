"""`ContextVar.get` of a variable from outside: what it holds in this call and in this context."""

from __future__ import annotations

import contextvars
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import anyshape

X = torch.arange(3.0)


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


def test_what_is_set_inside_is_seen() -> None:
    variable: Any = contextvars.ContextVar("variable", default=1)

    def program(x: torch.Tensor) -> Any:
        before, y = variable.get(), x + 1
        token = variable.set(y)
        inside = variable.get() * 2
        variable.reset(token)
        return before, inside, variable.get()

    for way in ({}, {"options": {"break_every": 1}}):
        fast = anyshape.compile(program, **way)
        for _ in range(2):
            before, inside, after = fast(X)
            assert (before, after) == (1, 1) and torch.equal(inside, (X + 1) * 2)


def test_another_variable_may_be_handed_in() -> None:
    variables: list[Any] = [contextvars.ContextVar(f"v{n}", default=n) for n in range(3)]
    variables[1].set(5)

    def program(x: torch.Tensor, variable: Any) -> Any:
        return x + 1, variable.get(), variable.get(None)

    fast = anyshape.compile(program, fullgraph=True)
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

    for way in (True, False):
        for variables in ((bare, with_default), (with_default, bare)):
            fast = anyshape.compile(caught, fullgraph=way)
            raising = anyshape.compile(raised, fullgraph=way)
            for variable in variables * 2:
                assert fast(X, variable)[0] == ("none" if variable is bare else 5)
                if variable is with_default:
                    assert raising(X, variable)[0] == 5
                else:
                    with pytest.raises(LookupError):
                        raising(X, variable)
