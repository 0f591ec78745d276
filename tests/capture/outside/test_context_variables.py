"""Variables of `contextvars` from outside, read and set inside."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import weakref
from collections.abc import Iterator
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


# ---- tokens --------------------------------------------------------------------------------------
LATE: ContextVar[Any] = ContextVar("LATE", default=5)
KEPT: list[Any] = []


@contextlib.contextmanager
def within(variable: ContextVar[Any], value: Any) -> Iterator[Any]:
    token = variable.set(value)
    try:
        yield token
    finally:
        variable.reset(token)


def nested(x: torch.Tensor) -> Any:
    with within(LATE, x.shape[0]):
        with within(SCALE, 2):
            first = LATE.get(), SCALE.get()
        y = x * LATE.get()
        second = SCALE.get("none")
    return y, first, second, x * LATE.get()


def left_by_an_exception(x: torch.Tensor) -> Any:
    try:
        with within(LATE, 9):
            raise KeyError(LATE.get())
    except KeyError as error:
        return x + 1, error.args, LATE.get()


def raising(x: torch.Tensor) -> Any:
    with within(LATE, 9):
        raise KeyError(LATE.get())


def of_tensors(x: torch.Tensor) -> Any:
    token = LATE.set(x + 1)
    y = LATE.get() * 2
    inner = LATE.set(1)
    old = inner.old_value
    LATE.reset(inner)
    LATE.reset(token)
    return y, old * 3, LATE.get()


def told_by_tokens(x: torch.Tensor) -> Any:
    first, second = SCALE.set(1), SCALE.set(2)
    told = first.var is SCALE, second.old_value
    for token in (second, first):
        SCALE.reset(token)
    return x + 1, told, SCALE.get(None)


def over_later_writes(x: torch.Tensor) -> Any:
    token = LATE.set(1)
    LATE.set(2)
    LATE.set(3)
    LATE.reset(token)
    return x + 1, LATE.get()


def out_of_order(x: torch.Tensor) -> Any:
    first, second = LATE.set(1), LATE.set(2)
    LATE.reset(first)
    found = [LATE.get()]
    LATE.reset(second)
    found.append(LATE.get())
    third = LATE.set(3)
    LATE.reset(third)
    return x + 1, found, LATE.get()


def left_set(x: torch.Tensor) -> Any:
    token = LATE.set(x.shape[0])
    return x + LATE.get(), token.var.name


def told_of_before(x: torch.Tensor) -> Any:
    token = SCALE.set(7)
    old = token.old_value
    return x + 1, old is token.MISSING or old, SCALE.get()


def handed_out(x: torch.Tensor) -> Any:
    return x + 1, Handed([SCALE.set(11)])


def handed_out_used(x: torch.Tensor) -> Any:
    token = SCALE.set(11)
    SCALE.reset(token)
    return x + 1, Handed([token])


def kept_outside(x: torch.Tensor) -> Any:
    KEPT.append(SCALE.set(11))
    return x + 1, SCALE.get()


def refused_by_c(x: torch.Tensor) -> Any:
    found = []
    token = SCALE.set(1)
    for variable in (LATE, SCALE, SCALE):
        try:
            variable.reset(token)
        except (ValueError, RuntimeError) as error:
            found.append(type(error))
    return x + 1, found, SCALE.get(None)


class Handed:
    """What was handed out, by whether it can be used."""

    def __init__(self, tokens: list[Any]) -> None:
        self.tokens = tokens

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handed) and self.told() == other.told()

    def told(self) -> Any:
        return [(token.var, token.old_value, " used " in repr(token)) for token in self.tokens]


IN_ONE_GRAPH = [
    *[nested, left_by_an_exception, raising, of_tensors, told_by_tokens, over_later_writes],
    *[left_set, out_of_order, handed_out, handed_out_used],
]


def outcomes(fn: Any, value: Any) -> Any:
    """What three calls give and leave behind, and what the tokens that are left do."""

    def calls() -> Any:
        KEPT.clear()
        if value is not None:
            SCALE.set(value)
            LATE.set(value)
        found: list[Any] = []
        for length in (1, 1, 2):
            try:
                given = [v.tolist() if torch.is_tensor(v) else v for v in fn(torch.ones(length))]
                KEPT.extend(t for v in given if isinstance(v, Handed) for t in v.tokens)
            except KeyError as error:
                given = [repr(error)]
            found.append((given, SCALE.get("none"), LATE.get()))
        for token in reversed(KEPT):
            try:
                token.var.reset(token)
            except RuntimeError:
                found.append("used")
            found.append(SCALE.get("none"))
        return found

    return copy_context().run(calls)


@pytest.mark.parametrize("value", [None, 10])
@pytest.mark.parametrize("program", [*IN_ONE_GRAPH, told_of_before, kept_outside, refused_by_c])
def test_tokens_put_back_what_was_there(program: Any, value: Any) -> None:
    wanted = outcomes(program, value)
    for options in ({}, {"break_every": 1}, {"break_every": 3}):
        assert outcomes(anyshape.compile(program, options=options), value) == wanted
    if program in IN_ONE_GRAPH:
        assert outcomes(anyshape.compile(program, fullgraph=True), value) == wanted


def test_threads_have_tokens_of_their_own() -> None:
    fast, wrong = anyshape.compile(nested, fullgraph=True), []

    def work() -> None:
        for _ in range(100):
            if contextvars.Context().run(fast, torch.ones(2))[1:3] != ((2, 2), "none"):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_token_holds_is_not_kept() -> None:
    """The old value dies where it does natively."""

    def program(x: torch.Tensor) -> Any:
        token = SCALE.set(1)
        SCALE.reset(token)
        return x + 1

    fast = anyshape.compile(program, fullgraph=True)

    def calls() -> Any:
        for _ in range(3):
            held = Handed([])
            seen = weakref.ref(held)
            SCALE.set(held)
            del held
            fast(X)
            SCALE.set(None)
            yield seen()

    assert copy_context().run(lambda: list(calls())) == [None, None, None]


# ---- what each call replaces ---------------------------------------------------------------------
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
