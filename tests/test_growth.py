"""Capture, passes, scheduling and code generation take work linear in the program.

Calls of functions are counted, not seconds: they are the same on every machine.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from benchmarks import growth

Program = tuple[Callable[..., Any], tuple[Tensor, ...]]
MANY_SIZES = ("sliced", "sliced_again", "grouped", "masked", "found", "running_offsets", "packed")
SLACK = 1.25  # of work for each part of the larger program


def pointwise(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        for i in range(count):
            x = x * 1.01 + i
        return x

    return program, (torch.ones(5, 3),)


def layers(count: int) -> Program:
    made = (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(count))
    return nn.Sequential(*made).eval(), (torch.ones(5, 8),)


def arguments(count: int) -> Program:
    def program(*xs: Tensor) -> Tensor:
        whole = xs[0].sum()
        for x in xs[1:]:
            whole = whole + x.sum() * x.shape[0]
        return whole

    return program, tuple(torch.ones(3 + i % 7) for i in range(count))


def slices(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.cat([x[i:] * i for i in range(count)])

    return program, (torch.ones(count + 3),)


def guards(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        for i in range(count):
            if x.shape[0] * i > 3 * i + 1:
                x = x + i
        return x

    return program, (torch.ones(9),)


def writes(count: int) -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        for i in range(count):
            y[i % 3] += 1
        return y

    return program, (torch.ones(5, 3),)


def sizes_from_data(count: int) -> Program:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        for row in lengths.unbind():
            parts = torch.split(x, row.tolist())
            x = torch.cat([part.flip(0) for part in parts]) * 2 + 1
        return x

    lengths = torch.ones(2, count, dtype=torch.int64)
    return program, (torch.randn(count), lengths)


PROGRAMS: Mapping[Callable[[int], Program], tuple[int, int]] = {
    pointwise: (50, 200),
    layers: (4, 16),
    arguments: (20, 80),
    slices: (32, 128),
    guards: (10, 40),
    writes: (10, 40),
    sizes_from_data: (64, 256),
}


def work(make: Callable[[int], Program], count: int) -> int:
    """How many functions a first call calls."""
    function, inputs = make(count)
    fast = anyshape.compile(function, fullgraph=True)
    profile = cProfile.Profile()
    with torch.no_grad():
        profile.enable()
        fast(*inputs)
        profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_work_is_linear_in_the_program(make: Callable[[int], Program]) -> None:
    few, many = PROGRAMS[make]
    work(make, 2)  # what is loaded once
    assert work(make, many) < SLACK * many / few * work(make, few)


def counted(name: str, count: int) -> tuple[int, int]:
    """The questions about sizes of a first call, and the steps that they took."""
    function, inputs = growth.PROGRAMS[name](count)
    fast = anyshape.compile(function)
    torch.testing.assert_close(fast(*inputs), function(*inputs))
    return fast.stats().questions, fast.stats().solver_steps


@pytest.mark.parametrize("name", MANY_SIZES)
def test_questions_and_their_steps_are_linear_in_the_number_of_sizes(name: str) -> None:
    few, many = counted(name, 24), counted(name, 96)
    assert many[0] < SLACK * 4 * few[0]
    assert many[1] <= SLACK * 4 * max(few[1], 1000)
