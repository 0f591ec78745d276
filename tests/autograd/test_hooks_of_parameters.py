"""Hooks that parameters have before a compiled step: those that only compute are part of its segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same, assert_same_parameters

Hook = Callable[[Tensor], Any]


def clipped(g: Tensor) -> Tensor:
    return g.clamp(-0.05, 0.05)


def normed(g: Tensor) -> Tensor:
    return g / (g.norm() + 1.0)


def trained(
    hooks: list[Hook], compiled: bool, later: Hook | None = None
) -> tuple[list[Tensor], nn.Module, Any]:
    """Two micro-batches a step; ``later`` is registered behind the first two calls."""
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for hook in hooks:
        net.weight.register_hook(hook)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        for part in (x, x + 1.0):
            loss: Tensor = net(part).square().mean()
            loss.backward()
        optimizer.step()
        return loss.detach()

    run = anyshape.compile(step) if compiled else step
    made = [run(torch.ones(rows, 4)) for rows in (3, 1)]
    if later is not None:
        net.weight.register_hook(later)
    made += [run(torch.ones(rows, 4)) for rows in (5, 2)]
    return made, net, run


@pytest.mark.parametrize("later", [None, clipped])
def test_hooks_that_only_compute_are_part_of_the_segment(later: Hook | None) -> None:
    hooks = [clipped, normed, lambda g: None]
    ours, net, run = trained(hooks, True, later)
    theirs, other, _ = trained(hooks, False, later)
    assert_same(ours, theirs)
    assert_same_parameters(net, other)
    stats = run.stats()
    assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())


def test_other_hooks_are_called_by_autograd() -> None:
    def doubled(g: Tensor) -> Tensor:
        return g.mul_(2.0)

    def turned(g: Tensor) -> Tensor:
        return g.flatten().flip(0).view(g.shape)

    found = []
    for compiled in (True, False):
        seen: list[float] = []
        hooks: tuple[Hook, ...]
        hooks = (doubled, turned, lambda g, seen=seen: seen.append(g.sum().item()))  # type: ignore[misc]
        for hook in hooks:
            made, net, _ = trained([hook], compiled)
            found.append([made, [p.detach() for p in net.parameters()]])
        found.append([torch.tensor(seen)])
    assert_same(found[: len(found) // 2], found[len(found) // 2 :])
