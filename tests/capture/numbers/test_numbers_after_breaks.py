"""What was symbolic where a segment ended is symbolic where the next one begins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import anyshape


def counted(x: Tensor) -> Tensor:
    """Sizes that live on over a call that capture does not know."""
    batch, length = x.shape
    kept, shape = length - 1, x.shape
    native(x)
    return (x.reshape(length, batch) * 2).reshape(shape) + kept


@torch.compiler.disable
def native(x: Tensor) -> None:
    """Nothing that could be compiled."""


def test_sizes_that_live_on_over_a_break_make_no_specializations() -> None:
    fast = anyshape.compile(counted)
    for batch, length in ((2, 7), (2, 16), (1, 33), (3, 64), (2, 1), (1, 1), (0, 3), (4, 17)):
        x = torch.rand(batch, length)
        assert torch.equal(fast(x), counted(x))
    assert fast.stats().specializations == 2


def test_numbers_of_data_that_live_on_over_a_break_make_no_specializations() -> None:
    def program(x: Tensor) -> Any:
        count, mean = int((x > 0.5).sum()), float(x.sum()) / 2
        native(x)
        return x * count + mean, x.new_zeros(count)

    fast = anyshape.compile(program)
    for length in (7, 16, 1, 0, 33):
        x = torch.rand(2, length, generator=torch.Generator().manual_seed(length))
        for made, wanted in zip(fast(x), program(x), strict=True):
            torch.testing.assert_close(made, wanted)
    assert fast.stats().specializations == 2


def test_a_constant_that_lives_on_over_a_break_is_a_constant() -> None:
    def program(x: Tensor) -> Tensor:
        turns = x.ndim + 1
        native(x)
        for _ in range(turns):
            x = x + 1
        return x

    fast = anyshape.compile(program)
    for length in (7, 16, 1, 0):
        assert torch.equal(fast(torch.zeros(2, length)), torch.full((2, length), 3.0))
    assert fast.stats().specializations == 2
    assert "turns == 3" in fast.guards()


class Experts(nn.Module):
    """A module that data chooses, in a loop that data ends."""

    def __init__(self, count: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        made = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(count)]
        self.experts = nn.ModuleDict({f"expert_{i}": expert for i, expert in enumerate(made)})

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for index in chosen.unique():
            rows = torch.where(chosen == index)[0]
            total.index_add_(0, rows, self.experts[f"expert_{index}"](x[rows]))
        return total


def test_modules_that_data_chooses_share_their_specializations() -> None:
    made = []
    for count in (8, 16):
        model = Experts(count).eval()
        fast = anyshape.compile(model)
        with torch.no_grad():
            for tokens in (7, 16, 33, 2, 1, 64):
                generator = torch.Generator().manual_seed(tokens)
                x = torch.randn(tokens, 4, generator=generator)
                chosen = torch.randint(0, count, (tokens,), generator=generator)
                torch.testing.assert_close(fast(x, chosen), model(x, chosen))
        made.append(fast.stats().specializations)
    assert max(made) <= 12
