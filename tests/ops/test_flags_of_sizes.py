"""Flags of operators that follow from a size: each side is a specialization of its own, and a
program that has a dozen of them is one segment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape


def flags(x: Tensor) -> tuple[Tensor, ...]:
    """What differs with a flag: a shape, numbers, what is drawn or what is written."""
    flag = len(x) > 3
    written, dropped = x * 1, x * 1
    again = F.relu(written, flag)
    drawn = F.dropout(dropped, 0.5, True, inplace=flag)
    return (
        F.dropout(x, 0.5, training=flag),
        torch.dropout(x, 0.5, flag),
        x.sum(1, keepdim=flag),
        x.amax(1, flag),
        x.var(1, unbiased=flag),
        x.std(flag),
        F.batch_norm(x, torch.zeros(2), torch.ones(2), training=flag),
        x.sort(1, descending=flag)[0],
        torch.isin(x, x[:1], invert=flag),
        F.mse_loss(x, -x, reduce=flag),
        F.l1_loss(x, -x, size_average=flag),
        F.interpolate(x[None], size=4, mode="linear", align_corners=flag),
        again * (2 if again is written else 3),
        written,
        drawn * (2 if drawn is dropped else 3),
        dropped,
    )


def test_flags_that_follow_from_sizes_are_decided_and_not_taken_for_false() -> None:
    fast = anyshape.compile(flags, fullgraph=True)
    for rows in (2, 5, 3, 7):
        x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(rows))
        outcomes = []
        for run in (fast, flags):
            torch.manual_seed(0)
            outcomes.append([*run(x), torch.rand(1)])
        for found, expected in zip(*outcomes, strict=True):
            torch.testing.assert_close(found, expected)
    assert fast.stats().specializations == 2
