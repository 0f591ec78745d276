"""Strides of what is made of a broadcast tensor, where data decides the sizes: `nonzero(x)[:1]` has
one element or none, so it is repeated wherever there are many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.reference import strides_that_matter

SHAPES = (3, 5), (4, 4), (1, 3), (3, 1), (1, 1), (2, 0)
BROADCAST: dict[str, Callable[[Tensor], Tensor]] = {
    "to its own size": lambda t: t[:1].expand(t.shape),
    "turned": lambda t: t[:1].expand(t.shape).t(),
    "between other dimensions": lambda t: t[:1, None].expand(t.shape[0], 3, 2),
    "behind others": lambda t: t[:1, None].expand(t.shape[0], 3, 2).transpose(1, 2),
    "of as many as were to be taken": lambda t: t[-1:].expand(t.shape),
}
MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "the view": lambda t: t,
    "clone": torch.clone,
    "to": lambda t: t.to(t.dtype, copy=True),
    "another dtype": lambda t: t.to(torch.float64),
    "empty_like": lambda t: torch.empty_like(t) * 0,
    "an elementwise result": lambda t: t + 1,
    "of two operands": lambda t: torch.where(t > 1, t, -t),
    "sort": lambda t: t.sort(0)[0],
    "flip": lambda t: t.flip(0),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("broadcast", BROADCAST)
def test_a_result_lies_as_in_eager(broadcast: str, made: str) -> None:
    def function(x: Tensor) -> Tensor:
        return MADE[made](BROADCAST[broadcast](torch.nonzero(x)))

    _is_as_eager(function)


def test_an_operand_that_is_repeated_orders_no_dimensions() -> None:
    def function(x: Tensor) -> Tensor:
        t = torch.nonzero(x)
        return t[:1] + t.contiguous()

    _is_as_eager(function)


def _is_as_eager(function: Callable[[Tensor], Tensor]) -> None:
    fast = anyshape.compile(function)
    for shape in SHAPES:
        x = torch.ones(shape)
        ours, theirs = fast(x), function(x)
        assert strides_that_matter(ours) == strides_that_matter(theirs), shape
        assert torch.equal(ours, theirs)
