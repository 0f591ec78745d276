"""`types.SimpleNamespace`: one from outside that is written, and those that a program makes."""

from __future__ import annotations

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
