"""An argument is given other sizes between what is computed of it and the gradient: the gradient is
of the sizes it had, as eager's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


def zeroed_and_squeezed(x: Tensor, y: Tensor) -> Tensor:
    out = x * x
    y.zero_()
    y.squeeze_(0)
    return out


def turned_behind_a_reshape(x: Tensor, y: Tensor) -> Tensor:
    out = x.reshape(y.shape[0], -1)
    y.t_()
    return out


def sized_by_another(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * x * y.shape[0], y * y


def reshaped_as_another(x: Tensor, y: Tensor) -> Tensor:
    return x.reshape(y.shape[0], -1)


def _nothing(y: Tensor) -> None:
    pass


def _turn(y: Tensor) -> None:
    with torch.no_grad():
        y.t_()


def _replace(y: Tensor) -> None:
    y.data = torch.zeros(5, 7)


@pytest.mark.parametrize(
    ("program", "later"),
    [
        (zeroed_and_squeezed, _nothing),
        (turned_behind_a_reshape, _nothing),
        (sized_by_another, _turn),
        (reshaped_as_another, _replace),
        (reshaped_as_another, Tensor.t_),
    ],
)
def test_a_gradient_is_of_the_sizes_that_were_given(
    program: Callable[..., Any], later: Callable[[Tensor], None]
) -> None:
    fast = anyshape.compile(program)
    for rows in (1, 2, 1, 4):
        eager, ours = (_gradient(function, rows, later) for function in (program, fast))
        assert torch.equal(eager, ours)
        assert eager.stride() == ours.stride()


def _gradient(function: Callable[..., Any], rows: int, later: Callable[[Tensor], None]) -> Tensor:
    x = torch.arange(12.0).reshape(1, 12).requires_grad_()
    y = torch.ones(rows, 3)
    if later is _turn:
        y = y.requires_grad_() * 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what writes in place cuts the program
        made = function(x, y)
    out = made[0] if isinstance(made, tuple) else made
    later(y)
    return torch.autograd.grad(out, [x], torch.arange(12.0).reshape(out.shape))[0]
