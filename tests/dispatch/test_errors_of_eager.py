"""What eager raises, where it does what a segment could not: the error has the context that the
program gives it, and none of ours; and nothing is kept alive by an error that is over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape


def outside(x: Tensor) -> Tensor:
    return F.cross_entropy(x, torch.full((x.shape[0],), 99))


def behind_a_break(x: Tensor) -> Tensor:
    y = x * 2 if x.sum().item() > 1e9 else x * 3
    print(end="")
    torch._dynamo.graph_break()
    return outside(y + 1)


def in_a_handler(x: Tensor) -> Tensor:
    try:
        raise KeyError("first")
    except KeyError:
        return outside(x)


def of_data(x: Tensor) -> Tensor:
    return torch.arange(int(x.sum().abs()) * 2 + 1).reshape(2, -1)


def in_a_library(x: Tensor) -> Tensor:
    return torch.linalg.cholesky(-torch.eye(x.shape[0]))


def contexts(function: Callable[..., Any], *args: Any) -> list[str]:
    with pytest.raises(Exception) as caught:
        function(*args)
    found, error = [], caught.value
    while error is not None:
        found.append(f"{type(error).__name__}: {str(error)[:60]}, {error.__cause__!r}")
        error = error.__context__
    return found


PROGRAMS = (outside, behind_a_break, in_a_handler, of_data, in_a_library)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("stressed", [0, 3])
def test_an_error_of_eager_has_the_contexts_that_eager_gives_it(
    program: Callable[..., Any], stressed: int
) -> None:
    x = torch.randn(3, 4)
    fast = anyshape.compile(program, options={"break_every": stressed} if stressed else None)
    for _ in range(2):
        assert contexts(fast, x) == contexts(program, x)


def test_a_gradient_that_is_refused_has_no_context_of_ours() -> None:
    def step(x: Tensor) -> Tensor:
        y = x.exp()
        y.mul_(2)
        return y

    def refused(step: Callable[[Tensor], Tensor]) -> None:
        y = step(torch.randn(3, requires_grad=True))
        y.add_(1)
        y.sum().backward()

    assert contexts(refused, anyshape.compile(step)) == contexts(refused, step)


@pytest.mark.parametrize("program", [outside, behind_a_break], ids=lambda p: p.__name__)
def test_what_failed_keeps_no_argument_alive(program: Callable[..., Any]) -> None:
    caught = anyshape.compile(lambda x, f: _told(f, x))
    fast = anyshape.compile(program)
    calls = (lambda x: _told(fast, x), lambda x: caught(x, program))
    for call in calls:
        call(torch.randn(3, 4))
    gc.collect()
    gc.disable()
    try:
        for call in calls:
            for _ in range(2):
                x = torch.randn(3, 4)
                there = weakref.ref(x)
                assert call(x) == "IndexError"
                del x
                assert there() is None
    finally:
        gc.enable()


def _told(function: Callable[..., Any], x: Tensor) -> str:
    try:
        function(x)
    except IndexError as error:
        return type(error).__name__
    return ""
