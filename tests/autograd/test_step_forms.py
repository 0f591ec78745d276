"""Steps that do more than one `backward()` and one update: each is one segment, and eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from tests.autograd.beside_eager import assert_same_parameters, batch, model

Step = Callable[..., Any]


def over_micro_batches(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """Of different shapes; the gradients add up."""

    def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        first = F.cross_entropy(net(x), y) / 2
        first.backward()
        second = F.cross_entropy(net(more), labels) / 2
        second.backward()
        optimizer.step()
        return (first + second).detach()

    return step


def with_an_average_of_weights(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    average = copy.deepcopy(net)

    def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for own, other in zip(average.parameters(), net.parameters()):
                own.lerp_(other, 0.1)
            return average(more)

    return step


def of_two_networks(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """Each has an optimizer, and reads the other, as in a game of two."""
    other = copy.deepcopy(net)
    others = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        F.mse_loss(net(x), other(x).detach()).backward()
        optimizer.step()
        others.zero_grad()
        F.cross_entropy(other(more) + net(more).detach(), labels).backward()
        others.step()
        return other(x).detach()

    return step


@pytest.mark.parametrize(
    "make",
    [over_micro_batches, with_an_average_of_weights, of_two_networks],
    ids=lambda m: m.__name__,
)
def test_a_step_is_one_segment_for_every_shape(make: Callable[..., Step]) -> None:
    ours, theirs = model(), model()
    steps = [make(net, torch.optim.AdamW(net.parameters(), lr=1e-2)) for net in (ours, theirs)]
    fast = anyshape.compile(steps[0])
    for seed, count in enumerate((8, 5, 1, 3)):
        given = (*batch(seed, count), *batch(seed + 10, count + 2))
        torch.testing.assert_close(fast(*given), steps[1](*given), rtol=1e-3, atol=1e-4)
    assert_same_parameters(ours, theirs, 1e-3)
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
    assert stats.specializations == 2
