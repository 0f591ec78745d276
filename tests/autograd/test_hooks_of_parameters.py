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


def both(step: Callable[[list[Tensor]], Any], hook: Hook | None, before: Hook | None = None) -> Any:
    """What two calls leave behind, compiled and not: the gradients of two leaves, by their data."""
    found = []
    for compiled in (True, False):
        leaves = [torch.ones(2, 3, requires_grad=True) for _ in range(2)]
        if hook is not None:
            leaves[0].register_hook(hook)
        if before is not None:
            before(leaves[1])
        run = anyshape.compile(step) if compiled else step
        for _ in range(2):
            run(leaves)
        grads = [leaf.grad for leaf in leaves]
        found.append([None if g is None else g.detach().to_dense() for g in grads])
    return found


def test_a_hook_runs_once_where_eager_torch_runs_the_graph() -> None:
    def step(leaves: list[Tensor]) -> Tensor:
        loss = (leaves[0] * leaves[1]).sin().sum()
        loss.backward(retain_graph=True)
        return loss

    ours, theirs = both(step, lambda g: g * 0.5)
    assert_same(ours, theirs)


class Own(Tensor):
    pass


def as_sparse(leaf: Tensor) -> None:
    leaf.grad = torch.ones(2, 3).to_sparse()


def as_recorded(leaf: Tensor) -> None:
    leaf.grad = torch.ones(2, 3, requires_grad=True)


def as_own(leaf: Tensor) -> None:
    leaf.grad = torch.ones(2, 3).as_subclass(Own)


@pytest.mark.parametrize("hook", [None, clipped])
@pytest.mark.parametrize("before", [as_sparse, as_recorded, as_own])
def test_no_gradient_is_taken_where_another_leaf_cannot_keep_its_own(
    before: Hook, hook: Hook | None
) -> None:
    def step(leaves: list[Tensor]) -> None:
        (leaves[0] * leaves[1]).sin().sum().backward(retain_graph=True)

    ours, theirs = both(step, hook, before)
    assert_same(ours, theirs)


def test_a_hook_that_gives_what_requires_gradients_is_left_to_autograd() -> None:
    scale = torch.full((2, 3), 3.0, requires_grad=True)

    def step(leaves: list[Tensor]) -> None:
        (leaves[0] * leaves[1]).sum().backward()

    for hook in (lambda g: scale, lambda g: torch.enable_grad()(lambda: g * scale)()):
        ours, theirs = both(step, hook)
        assert_same(ours, theirs)
