"""Comparisons and logical operators that write what has gradients: eager's gradients go on behind
them, as zeros or unchanged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor], Tensor]


def compared(x: Tensor, w: Tensor) -> Tensor:
    m = x * 2
    m.eq_(1.0)
    return m * w


def compared_with_a_tensor(x: Tensor, w: Tensor) -> Tensor:
    m = x * 1.0
    m.gt_(w)
    return m + w


def turned_around(x: Tensor, w: Tensor) -> Tensor:
    """What eager does not know to be a write: its gradient is that of the product."""
    m = x * 2
    m.logical_not_()
    return m * w


def a_part(x: Tensor, w: Tensor) -> Tensor:
    m = x * 2
    m[:2].ge_(0.0)
    return m * w


def without_gradients(x: Tensor, w: Tensor) -> Tensor:
    m = x.detach().clone()
    m.eq_(w.detach())
    return m * w


PROGRAMS = [compared, compared_with_a_tensor, turned_around, a_part, without_gradients]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_behind_a_comparison_in_place_are_those_of_eager_torch(
    program: Program, inside: bool
) -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        made = program(x, w)
        made.sum().backward()
        return made.detach()

    fast = anyshape.compile(step if inside else program)
    for rows in (3, 1, 0, 4):
        found = []
        for run in (fast, step if inside else program):
            torch.manual_seed(rows)
            x, w = (torch.randn(rows, 2, requires_grad=True) for _ in range(2))
            made = run(x, w)
            if not inside:
                made.sum().backward()
            found.append((made.detach(), x.grad, w.grad))
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.equal(a, b)
    is_eager = program not in (without_gradients,)
    assert bool(fast.stats().eager_graphs) == is_eager  # type: ignore[attr-defined]
