"""`cross_entropy` with smoothed labels: which numbers smooth, and which are ignored."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

AMOUNTS = (-0.5, 0.0, -0.0, 0.1, 1.0, float("nan"))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shares", [False, True], ids=["labels", "shares"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_loss_and_its_gradient_are_eagers(amount: float, shares: bool, weighted: bool) -> None:
    def loss(x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return F.cross_entropy(x, target, weight, label_smoothing=amount)

    fast = anyshape.compile(loss, fullgraph=True)
    for rows in (4, 1, 7):
        x = torch.randn(rows, 3)
        target = torch.rand(rows, 3) if shares else torch.randint(3, (rows,))
        weight = torch.rand(3) if weighted else None
        made = []
        for function in (fast, loss):
            leaf = x.clone().requires_grad_()
            result = function(leaf, target, weight)
            result.backward()
            made.append((result.detach(), leaf.grad))
        for ours, eagers in zip(*made, strict=True):
            torch.testing.assert_close(ours, eagers, equal_nan=True)


def test_an_amount_that_changes_is_read_in_each_call() -> None:
    fast = anyshape.compile(lambda x, y, amount: F.cross_entropy(x, y, label_smoothing=amount))
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    for amount in (0.1, 0.2, 0.3, -0.5, 0.0, 0.4, -1.0):
        wanted = F.cross_entropy(x, y, label_smoothing=amount)
        torch.testing.assert_close(fast(x, y, amount), wanted)


@pytest.mark.parametrize("shares", [False, True], ids=["labels", "shares"])
def test_an_amount_that_is_made_of_a_size_may_be_none_or_some(shares: bool) -> None:
    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(x, target, label_smoothing=0.2 - x.shape[0] / 10)

    fast = anyshape.compile(loss, fullgraph=True)
    for rows in (1, 2, 3, 5):
        x = torch.randn(rows, 3)
        x[0, 0] = float("-inf")  # of no weight where nothing is smoothed
        target = torch.eye(3)[torch.arange(rows) % 2 + 1] if shares else torch.arange(rows) % 2 + 1
        torch.testing.assert_close(fast(x, target), loss(x, target), equal_nan=True)
    assert fast.stats().specializations == 1
