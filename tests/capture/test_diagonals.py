"""`fill_diagonal_`: a write to a view of a diagonal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


@pytest.mark.parametrize("value", [0, 2.5, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_the_diagonal_of_a_matrix(value: Any, dtype: torch.dtype) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, bool]:
        same = (x[:, None] == x).to(dtype)
        filled = same.fill_diagonal_(value)
        return same, filled.T, filled is same

    fast = anyshape.compile(program, fullgraph=True)
    for count in (3, 1, 0, 17):
        x = torch.arange(count) % 3
        for got, wanted in zip(fast(x), program(x)):
            assert got is wanted if isinstance(got, bool) else torch.equal(got, wanted)
    assert fast.stats().specializations == 1


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4, 4), (1, 1, 1), (0, 3)])
def test_in_an_argument_of_any_rank(shape: tuple[int, ...]) -> None:
    def program(x: Tensor) -> Tensor:
        x.fill_diagonal_(fill_value=7, wrap=False)
        return x * 2

    fast = anyshape.compile(program, fullgraph=True)
    ours, eagers = torch.rand(shape), torch.rand(shape)
    eagers.copy_(ours)
    assert torch.equal(fast(ours), program(eagers))
    assert torch.equal(ours, eagers)
    assert ours._version == 1


@pytest.mark.filterwarnings("ignore")
def test_what_eager_refuses_and_what_wraps() -> None:
    def program(x: Tensor, wrap: bool) -> Tensor:
        return (x + 1).fill_diagonal_(0, wrap)

    fast = anyshape.compile(program)
    for shape in ((2, 3, 2), (4,)):
        with pytest.raises(RuntimeError) as eagers:
            program(torch.rand(shape), False)
        with pytest.raises(RuntimeError, match=str(eagers.value)):
            fast(torch.rand(shape), False)
    x = torch.rand(7, 2)
    assert torch.equal(fast(x, True), program(x, True))


def test_its_gradients() -> None:
    def program(x: Tensor) -> Tensor:
        return ((x * 2).fill_diagonal_(1.0) * x).sum()

    fast = anyshape.compile(program, fullgraph=True)
    for count in (3, 1, 0):
        ours = torch.rand(count, count, requires_grad=True)
        eagers = ours.detach().clone().requires_grad_()
        fast(ours).backward()
        program(eagers).backward()
        torch.testing.assert_close(ours.grad, eagers.grad)
