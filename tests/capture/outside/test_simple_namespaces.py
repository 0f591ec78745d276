"""`types.SimpleNamespace`: one from outside that is written, and those that a program makes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.capture.by_reference import compiled, same

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Config(SimpleNamespace):
    kind = "config"

    @property
    def twice(self) -> Any:
        return self.scale * 2


def written(state: Any, x: Tensor) -> tuple[Any, ...]:
    state.shift = x.amax()
    state.inner.rows = x.shape[0]
    state.calls += 1
    del state.gone
    return x * state.scale + state.shift, state.inner.rows, hasattr(state, "gone")


def made(state: Any, x: Tensor) -> tuple[Any, ...]:
    found = SimpleNamespace(x=x, rows=x.shape[0], **{"kind": "a"})
    found.y = found.x + found.rows
    found.names = [found.kind]
    state.last = found
    return found.y, vars(found)["rows"], getattr(found, "z", 3), sorted(found.__dict__)


def of_a_subclass(state: Any, x: Tensor) -> tuple[Any, ...]:
    config = Config(scale=x.shape[1])
    config.scale += 1
    return x * config.twice, config.kind, config.scale


def by_name(state: Any, x: Tensor) -> tuple[Any, ...]:
    setattr(state, "width", x.shape[1])
    object.__setattr__(state, "height", x.shape[0])
    delattr(state, "gone")
    return x * state.width, state.height, getattr(state, "gone", None)


def nothing_there(state: Any, x: Tensor) -> tuple[Any, ...]:
    try:
        state.nothing
    except AttributeError as error:
        text = str(error)
    return x + 1, text


PROGRAMS = [written, made, of_a_subclass, by_name, nothing_there]


def fresh() -> Any:
    return SimpleNamespace(scale=2.0, inner=SimpleNamespace(rows=0), calls=0, gone=1)


def contents(state: Any) -> Any:
    if type(state) is SimpleNamespace:
        return [(name, contents(value)) for name, value in vars(state).items()]
    return state


def outcomes(program: Callable[..., Any], fast: Callable[..., Any]) -> list[Any]:
    state, found = fresh(), []
    for x in (X, X[:2], X[:, :3], X):
        state.gone = 1
        found += [fast(state, x), contents(state)]
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_in_one_graph(program: Callable[..., Any]) -> None:
    fast = compiled(program)
    same(outcomes(program, fast), outcomes(program, program))


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_over_any_break(program: Callable[..., Any], every: int) -> None:
    fast = anyshape.compile(program, options={"break_every": every})
    same(outcomes(program, fast), outcomes(program, program))


def test_what_c_reads_of_one_that_is_written_is_what_the_program_sees() -> None:
    state = SimpleNamespace(a=1)

    def program(x: Tensor) -> tuple[Any, ...]:
        state.a = x.shape[0]
        return x + 1, repr(state), state == SimpleNamespace(a=x.shape[0]), [state] == [state]

    fast = compiled(program, fullgraph=False)
    for x in (X, X[:2]):
        same(fast(x), program(x))


class Odd(SimpleNamespace):
    def __eq__(self, other: object) -> bool:
        return not super().__eq__(other)


COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: (a == b, b == a),
    "!=": lambda a, b: a != b,
    "operator": lambda a, b: operator.eq(a, b),
    "by the class": lambda a, b: (SimpleNamespace.__eq__(a, b), SimpleNamespace.__ne__(a, b)),
    "in a list": lambda a, b: [a] == [b],
    "in a dict": lambda a, b: {"k": a} == {"k": b},
    "in another": lambda a, b: SimpleNamespace(h=a) == SimpleNamespace(h=b),
}


@pytest.mark.parametrize("kind", [SimpleNamespace, Config, Odd], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("how", COMPARED)
def test_what_they_hold_is_compared(how: str, kind: Any) -> None:
    compare = COMPARED[how]

    def program(x: Tensor, state: Any) -> tuple[Any, ...]:
        before = compare(state, kind(a=1))
        state.a += x.shape[0]
        return x + 1, before, compare(state, kind(a=5)), compare(state, kind(a=5, w=1))

    fast = anyshape.compile(program, fullgraph=True)
    state = kind(a=1)
    for a, others, rows in ((1, {}, 4), (2, {}, 3), (1, {"w": 1}, 4), (1, {}, 2), (5, {}, 0)):
        vars(state).clear()
        vars(state).update(a=a, **others)
        wanted = kind(a=a, **others)
        x = torch.ones(rows, 2)
        same(fast(x, state), program(x, wanted))
        assert vars(state) == vars(wanted)


def test_in_order_they_are_refused_as_c_refuses_what_they_hold() -> None:
    def program(x: Tensor, state: Any) -> tuple[Any, ...]:
        try:
            return x + 1, state < SimpleNamespace(a=2)
        except TypeError as error:
            return x + 1, str(error)

    state = SimpleNamespace(a=1)
    same(compiled(program)(X, state), program(X, state))


class Shown(SimpleNamespace):
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        ASKED.append("__dict__")
        return {"shown": 1}


class PlainShown:
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        ASKED.append("__dict__")
        return {"shown": 1}


ASKED: list[str] = []


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("kind", [Shown, PlainShown])
def test_what_is_made_with_a_dict_of_the_programs_keeps_its_attributes(
    kind: type, fullgraph: bool
) -> None:
    def made_with(x: Tensor) -> Any:
        found = kind()
        found.x, found.rows, found.itself = x + 1, x.shape[0], found
        return found, [found]

    fast = anyshape.compile(made_with, fullgraph=fullgraph)
    for rows in (3, 5):
        ASKED.clear()
        found, (again,) = fast(torch.ones(rows, 2))
        assert ASKED == []
        assert found is again and found.itself is found and type(found) is kind
        assert torch.equal(found.x, torch.full((rows, 2), 2.0)) and found.rows == rows


@pytest.mark.parametrize("kind", [Shown, PlainShown])
def test_such_an_object_is_whole_behind_a_break(kind: type) -> None:
    def broken(x: Tensor) -> Any:
        found = kind()
        found.x = x + 1
        print(end="")
        found.y = found.x * 2
        return found

    found = anyshape.compile(broken, options={"break_every": 1})(X)
    assert torch.equal(found.x, X + 1) and torch.equal(found.y, (X + 1) * 2)
