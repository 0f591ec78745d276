"""What the last bit of a value decides is decided once: a value that is computed again, in another
kernel, may differ there, and gradients take the place where it is its greatest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import anyshape

SIZES = ((3, 4), (2, 7), (4, 9), (3, 13), (4, 37))


def of_the_greatest(x: Tensor, w: Tensor) -> Tensor:
    made = torch.cos(x * w) + 1.0
    return (made * made.amax(1, keepdim=True)).sum()


def of_the_greatest_in_a_checkpoint(x: Tensor, w: Tensor) -> Tensor:
    def inner(x: Tensor, w: Tensor) -> Tensor:
        return torch.cos(x * w).amax(1)

    return checkpoint(inner, x, w, use_reentrant=False).sum()


def of_whole_numbers(x: Tensor, w: Tensor) -> Tensor:
    made = torch.hypot(x, w)
    return ((made / made.amax(1, keepdim=True)).floor() * made).sum()


PROGRAMS = (of_the_greatest, of_the_greatest_in_a_checkpoint, of_whole_numbers)


def inside(program: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def step(x: Tensor, w: Tensor) -> Tensor:
        loss = program(x, w)
        loss.backward()
        return loss.detach()

    return step


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_position_of_the_greatest_is_found_once(program: Callable[..., Tensor]) -> None:
    outside, within = anyshape.compile(program), anyshape.compile(inside(program))
    for number, (rows, columns) in enumerate(SIZES * 3):
        stream = torch.Generator().manual_seed(number)
        x = torch.randn(rows, columns, generator=stream, dtype=torch.float64).requires_grad_()
        w = torch.randn(columns, generator=stream, dtype=torch.float64).requires_grad_()
        expected = torch.autograd.grad(program(x, w), (x, w))
        torch.testing.assert_close(torch.autograd.grad(outside(x, w), (x, w)), expected)
        within(x, w)
        torch.testing.assert_close((x.grad, w.grad), expected)
    assert outside.stats().gradients == 1 and not within.stats().eager_graphs
