"""A budget trades memory against time: fewer bytes are saved, products are computed again, gradients
are eager's at every size."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape.errors import AnyshapeError
from tests.autograd.beside_eager import assert_same

BUDGETS = (1, 0.75, 0.5, 0.25, 0)
SIZES = (6, 1, 33)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(16), nn.Linear(16, 48, bias=False)
        self.up, self.down = (nn.Linear(n, 80 - n, bias=False) for n in (16, 64))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + (q @ k.mT).softmax(-1) @ v
        return x + F.dropout(self.down(F.gelu(self.up(x))), 0.3, self.training)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(2)))


def saved_bytes(fast: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """Of what the backward half keeps and that was not there before; each memory once."""
    made = fast(x)
    assert made.grad_fn is not None
    kept = {t.untyped_storage().data_ptr(): t for t in made.grad_fn.saved_tensors}
    for there in (x, made, *fast.parameters()):
        kept.pop(there.untyped_storage().data_ptr(), None)
    return sum(t.untyped_storage().nbytes() for t in kept.values())


def test_less_is_saved_the_smaller_the_budget() -> None:
    x = torch.randn(6, 40, 16)
    found = [
        saved_bytes(anyshape.compile(network(), options={"activation_memory_budget": share}), x)
        for share in BUDGETS
    ]
    assert found == sorted(found, reverse=True)
    for share, bytes_ in zip(BUDGETS[:-1], found):
        assert bytes_ <= 1.01 * share * found[0]  # the cut counts a byte for each tensor
    assert found[-1] < 0.25 * found[0]  # what was drawn


@pytest.mark.parametrize("share", [0.5, 0])
@pytest.mark.parametrize("whole", [False, True], ids=["the model", "the whole step"])
def test_gradients_are_eagers(share: float, whole: bool) -> None:
    ours = network()
    theirs = copy.deepcopy(ours)

    def step(net: Callable[[Tensor], Tensor], parameters: list[Tensor], x: Tensor) -> Tensor:
        for p in parameters:
            p.grad = None
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()

    options = {"activation_memory_budget": share}
    net = ours if whole else anyshape.compile(ours, options=options)
    run = anyshape.compile(step, options=options) if whole else step
    for size in SIZES:
        x = torch.randn(2, size, 16)
        torch.manual_seed(size)
        found = run(net, [*ours.parameters()], x)
        torch.manual_seed(size)
        expected = step(theirs, [*theirs.parameters()], x)
        assert_same([found], [expected])
        assert_same([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
    stats = (run if whole else net).stats()
    assert (stats.graph_breaks, stats.eager_graphs) == (0, ())


def test_a_whole_step_computes_products_again_for_a_budget() -> None:
    counts = []
    for share in (1.0, 0.5, 0.0):
        net = network()

        @anyshape.compile(options={"activation_memory_budget": share})
        def step(x: Tensor) -> None:
            net.zero_grad()
            net(x).square().mean().backward()

        step(torch.randn(2, 6, 16))
        products = re.findall(r"# (?:mm|bmm|addmm|linear|baddbmm) :", step.graphs()[-1])
        counts.append(len(products))
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("share", [-0.5, 1.5, True, "half"])
def test_a_budget_is_a_share(share: object) -> None:
    with pytest.raises(AnyshapeError, match="a number from 0 to 1"):
        anyshape.compile(network(), options={"activation_memory_budget": share})
