"""Arithmetic on numbers that the data decides, or that every call brings anew, stays in the graph;
where Python raises, the segment has not happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

COUNTS = (1, 2, 3, 17, 0)


def mean_of(x: Tensor) -> float:
    return x.sum().item() / (x.numel() + 1) + 0.5


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "quotient": lambda x: x * (1.0 / mean_of(x)),
    "remainder": lambda x: x + 7.5 % mean_of(x) + 7.5 // mean_of(x),
    "logarithms": lambda x: (
        x * math.log(mean_of(x)) + math.log2(mean_of(x)) - math.log(mean_of(x), 3)
    ),
    "power": lambda x: x * mean_of(x) ** 0.5 + mean_of(x) ** 2 + math.pow(mean_of(x), 1.5),
    "rounded": lambda x: x + round(x.sum().item()) + round(x.sum().item(), 2),
    "floor": lambda x: x + math.floor(x.sum().item() * 2) + math.ceil(mean_of(x)),
    "length": lambda x: torch.zeros(int(abs(x.sum().item()) * 2)) + 1,
    "least": lambda x: x * min(mean_of(x), 0.7, 1.5) + max(0.1, mean_of(x)),
    "angles": lambda x: x + math.atan2(mean_of(x), 2.0) + math.sin(mean_of(x)) * math.pi,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_from_data_is_no_break_and_no_specialization(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for count in COUNTS:
        x = torch.rand(count, 3, generator=torch.Generator().manual_seed(count)) + 0.1
        torch.testing.assert_close(fast(x), program(x), rtol=2e-5, atol=1e-6)
    assert fast.stats().specializations == 1


RAISING: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
    "division": (lambda x: 1.0 / x.sum().item(), torch.zeros(3)),
    "logarithm": (lambda x: math.log(x.sum().item()), -torch.ones(3)),
    "not a number": (lambda x: int(x.sum().item()), torch.full((3,), math.nan)),
    "infinity": (lambda x: round(x.sum().item()), torch.full((3,), math.inf)),
    "overflow": (lambda x: math.exp(x.sum().item()), torch.full((3,), 500.0)),
}


@pytest.mark.parametrize("name", RAISING)
def test_what_python_raises_is_raised_and_nothing_is_written_twice(name: str) -> None:
    compute, bad = RAISING[name]

    def program(x: Tensor, state: Tensor) -> Any:
        state.add_(1)
        try:
            return compute(x)
        finally:
            state.mul_(2)

    fast = anyshape.compile(program)
    for x in (torch.ones(2), bad, torch.ones(4)):
        found, expected = torch.zeros(2), torch.zeros(2)
        try:
            wanted = program(x, expected)
        except (ArithmeticError, ValueError) as error:
            with pytest.raises(type(error), match=str(error)):
                fast(x, found)
        else:
            assert math.isclose(fast(x, found), wanted, rel_tol=1e-5)
        assert torch.equal(found, expected)


def test_a_complex_power_and_a_long_int_run_natively() -> None:
    for program, x in (
        (lambda x: x.sum().item() ** 0.5, -torch.ones(4)),
        (lambda x: int(x.sum().item() * 1e30), torch.ones(4)),
    ):
        fast = anyshape.compile(program)
        for y in (torch.ones(2), x, torch.ones(3)):
            assert fast(y) == program(y) and type(fast(y)) is type(program(y))


BY_ARGUMENT: dict[str, Callable[[Tensor, float], Any]] = {
    "learning rate": lambda x, rate: x - rate * x.sin(),
    "temperature": lambda x, t: torch.softmax(x / t, -1),
    "bias correction": lambda x, step: x / (1 - 0.9**step),
    "logarithm": lambda x, step: x * math.log(step + 1),
    "rounded": lambda x, step: x * round(step * 0.7) + round(step * 0.77, 1),
    "warmup": lambda x, step: x * min(1.0, step / 5) * max(0.1, 1 - step / 10),
    "cosine": lambda x, step: x * (0.5 * (1 + math.cos(math.pi * step / 10))),
}


@pytest.mark.parametrize("name", BY_ARGUMENT)
def test_a_float_that_changes_in_each_call_is_symbolic_from_the_second_on(name: str) -> None:
    program = BY_ARGUMENT[name]
    fast = anyshape.compile(program, fullgraph=True)
    x = torch.rand(3, 4)
    for step in (1.0, 2.0, 3.5, 10.0, 1e-3, 7.25, 100.0, 8.5, 9.5, 11.0):
        torch.testing.assert_close(fast(x, step), program(x, step))
    assert fast.stats().specializations == 2


def test_a_float_out_of_a_functions_domain_is_a_specialization_that_raises() -> None:
    fast = anyshape.compile(lambda x, t: x * math.log(t))
    x = torch.rand(3)
    for t in (1.0, 2.0, 3.0, -1.0, 0.0, math.inf, 4.0, -2.0):
        if t > 0:
            torch.testing.assert_close(fast(x, t), x * math.log(t))
        else:
            with pytest.raises(ValueError, match="math domain error"):
                fast(x, t)
