"""Gradients that eager makes as sparse tensors are sparse: eager torch runs what gives them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

Read = Callable[[Tensor, Tensor], Tensor]
READS: dict[str, Read] = {
    "embedding": lambda w, ids: F.embedding(ids, w, sparse=True),
    "bag": lambda w, ids: F.embedding_bag(ids, w, mode="sum", sparse=True),
    "bag over offsets": lambda w, ids: F.embedding_bag(
        ids.flatten(), w, torch.arange(0, ids.numel(), 2), sparse=True
    ),
    "gather": lambda w, ids: torch.gather(w, 0, ids, sparse_grad=True),
}


@pytest.mark.parametrize("whole", [True, False], ids=["step", "model"])
@pytest.mark.parametrize("name", READS)
def test_gradients_are_sparse_where_eagers_are(name: str, whole: bool) -> None:
    def loss(weight: Tensor, ids: Tensor) -> Tensor:
        made = READS[name](weight, ids).square().sum()
        if whole:
            made.backward()
        return made

    fast = anyshape.compile(loss)
    for rows in (3, 4):
        found = []
        for run in (loss, fast):
            weight = torch.arange(36.0).reshape(9, 4).requires_grad_()
            made = run(weight, (torch.arange(4 * rows) % 7).reshape(rows, 4))
            if not whole:
                made.backward()
            found.append(weight.grad)
        eagers, ours = found
        assert ours.layout is eagers.layout is torch.sparse_coo
        torch.testing.assert_close(ours.to_dense(), eagers.to_dense())


def test_bags_scale_gradients_by_frequency() -> None:
    def loss(weight: Tensor, ids: Tensor) -> Tensor:
        return F.embedding_bag(ids, weight, mode="sum", scale_grad_by_freq=True).square().sum()

    fast = anyshape.compile(loss)
    for rows in (3, 4):
        weights = [torch.arange(36.0).reshape(9, 4).requires_grad_() for _ in range(2)]
        for run, weight in zip((loss, fast), weights, strict=True):
            run(weight, (torch.arange(4 * rows) % 7).reshape(rows, 4)).backward()
        torch.testing.assert_close(weights[1].grad, weights[0].grad)
