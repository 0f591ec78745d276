"""Results whose gradients the program has taken itself are handed out as eager hands them out:
views or not, and a caller may write to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x


def one(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.sum().backward()
    return (y,)


def of_a_function(x: Tensor) -> tuple[Tensor, ...]:
    y = Doubled.apply(x)
    y.sum().backward()
    return (y,)


def with_its_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.sum().backward()
    return y, y.view(-1), y[0]


def a_view_alone(x: Tensor) -> tuple[Tensor, ...]:
    z = (x * 2).t()
    z.sum().backward()
    return (z,)


def written_inside(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.sum().backward()
    y.add_(1)
    return (y,)


def twice(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x * 2, x * 3
    (y.sum() + z.sum()).backward()
    return y, z, y


PROGRAMS = [one, of_a_function, with_its_views, a_view_alone, written_inside, twice]


def described(results: tuple[Tensor, ...]) -> list[Any]:
    first = results[0]
    return [
        (y._is_view(), y._base is first, y is first, y.requires_grad, y.is_leaf, y._version)
        for y in results
    ]


def written_by_the_caller(program: Callable[..., Any]) -> list[Any]:
    found = []
    for shape in ((2, 3), (4, 5), (1, 6)):
        x = torch.ones(shape, requires_grad=True)
        results = program(x)
        found += [described(results), x.grad.tolist()]
        with pytest.raises(RuntimeError, match="a second time"):
            results[-1].sum().backward()
        for y in results:
            y.add_(1)
        found += [described(results), [y.tolist() for y in results]]
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_caller_may_write_to_what_is_spent(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    assert written_by_the_caller(fast) == written_by_the_caller(program)
