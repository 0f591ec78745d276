"""A reshape that capture has found to be a view is written as one, though no later fact says so again."""

from __future__ import annotations

import torch
from torch import Tensor

import anyshape


def scaled_rows(rows: Tensor, x: Tensor) -> Tensor:
    y = x.reshape(rows.shape[0], -1)
    y[y[0] > 0] *= 3
    return x[:, None]


@torch.no_grad()
def test_rows_of_a_reshaped_argument_are_written_in_the_argument() -> None:
    fast = anyshape.compile(scaled_rows)
    for seed, size in enumerate((4, 3, 4)):
        base = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
        for turn in range(3):  # as it lies, every second column, turned
            ours, theirs = (
                (base.clone(), base.repeat_interleave(2, 1)[:, ::2], base.clone().t())[turn]
                for _ in range(2)
            )
            rows = torch.ones(size)
            assert torch.equal(fast(rows, ours), scaled_rows(rows, theirs))
            assert torch.equal(ours, theirs)
