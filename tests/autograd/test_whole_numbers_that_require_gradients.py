"""Integers and truths that are written in place with what requires gradients: some operators are
recorded by eager whatever they write, so that the result requires gradients, and what was divided
before may be used no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

COMPARED = "eq_", "ne_", "lt_", "gt_", "le_", "ge_"
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    **{name: lambda t, y, name=name: getattr(t, name)(y) for name in COMPARED},
    "fill_": lambda t, y: t.fill_(y[0]),
    "masked_fill_": lambda t, y: t.masked_fill_(t > 0, y[0]),
    "copy_": lambda t, y: t.copy_(y),
    "logical_and_": lambda t, y: t.logical_and_(y),
    "a slice": lambda t, y: t.__setitem__(slice(1, None), y[0]),
}


def told(function: Callable[..., Any], size: int) -> Any:
    x, y = torch.arange(float(size)) - 2, (torch.arange(float(size)) / 2).requires_grad_()
    try:
        made = function(x, y)
        return [(t.requires_grad, t.is_leaf, t._version, t.tolist()) for t in made]
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("dtype", (torch.bool, torch.int64, torch.float32))
@pytest.mark.parametrize("name", WRITES)
def test_they_require_gradients_as_in_eager(name: str, dtype: torch.dtype) -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        t = x.add(1).to(dtype)
        u = t * 1
        WRITES[name](t, y)
        return t, u

    fast = anyshape.compile(program)
    for size in (4, 3):
        assert told(fast, size) == told(program, size)


def test_parts_of_them_may_be_used_no_more() -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        t = x > 0
        parts = t.chunk(2)
        t.eq_(y)
        return parts

    fast = anyshape.compile(program)
    for size in (4, 3):
        assert "output views to be modified inplace" in told(program, size)
        assert told(fast, size) == told(program, size)


def test_nothing_is_recorded_without_gradients() -> None:
    @torch.no_grad()
    def program(x: Tensor, y: Tensor) -> Any:
        return ((x > 0).eq_(y),)

    assert told(anyshape.compile(program), 3) == told(program, 3)
