"""Functions of TorchScript: captured as the Python functions that they were made of, where these do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*")
SIZES = [(3, 4), (1, 7), (5, 1), (64, 33)]


@torch.jit.script
def scaled(x: torch.Tensor, count: int):  # type: ignore[no-untyped-def]
    if count > 2:
        x = x + count
    return x * torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float))


@torch.jit.script
def filled(x: torch.Tensor, value: float):  # type: ignore[no-untyped-def]
    return x, torch.full([2], value)


@torch.jit.script
def asks(x: torch.Tensor):  # type: ignore[no-untyped-def]
    if torch.jit.is_scripting():
        return x + 1
    return x - 1


@torch.jit.script
def squared(x: torch.Tensor, count: int):  # type: ignore[no-untyped-def]
    return x**2, torch.full([2], count**2), torch.full([2], x.size(0) ** 2)


@torch.jit.script
def rounded(x: torch.Tensor, number: float):  # type: ignore[no-untyped-def]
    return x, torch.full([2], round(number))


@torch.jit.script
def curved(x: torch.Tensor):  # type: ignore[no-untyped-def]
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))


@torch.jit.script
def longer(x: torch.Tensor, counts: list[int]):  # type: ignore[no-untyped-def]
    counts.append(3)
    return x * len(counts)


def broken_by(program: Callable[..., Any]) -> int:
    """How many breaks; each result is as eager's."""
    fast = anyshape.compile(program)
    for size in SIZES:
        x = torch.randn(size)
        made, wanted = fast(x), program(x)
        torch.testing.assert_close(made, wanted)
        assert [t.dtype for t in made] == [t.dtype for t in wanted]
    assert fast.stats().internal_errors == 0
    return fast.stats().graph_breaks


@pytest.mark.parametrize("count", [1, 3])
def test_a_scripted_function_is_no_break(count: int) -> None:
    def program(x: Tensor) -> tuple[Tensor]:
        return (scaled(x.sin(), count).cos(),)

    assert broken_by(program) == 0


def test_sizes_are_integers_of_a_scripted_function() -> None:
    assert broken_by(lambda x: (scaled(x, x.shape[0]).cos(),)) == 0


def test_a_number_that_is_made_another_is_a_break() -> None:
    """TorchScript makes a float of it: `torch.full` would make a tensor of integers."""
    assert broken_by(lambda x: filled(x.sin(), 3)) == 1
    assert broken_by(lambda x: filled(x.sin(), 3.0)) == 0


def test_what_asks_whether_it_is_scripted_is_a_break() -> None:
    assert broken_by(lambda x: (asks(x.sin()).cos(),)) == 1


def test_powers_of_integers_and_what_is_rounded_are_floats() -> None:
    assert broken_by(lambda x: squared(x.sin(), 3)) == 1
    assert broken_by(lambda x: rounded(x.sin(), 2.5)) == 1
    assert broken_by(lambda x: (curved(x.sin()),)) == 0


def test_lists_are_copied() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        counts = [1]
        made = longer(x.sin(), counts)
        return made.cos(), x * len(counts)

    assert broken_by(program) == 1
