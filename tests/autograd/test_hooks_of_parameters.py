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


def hooks_that_see_when(net: nn.Linear, buffer: Tensor) -> dict[str, dict[str, Hook]]:
    """By the parameter, hooks to which it matters what autograd has done before, or hands them."""

    def reads(p: nn.Parameter) -> Hook:
        return lambda g: g + (0.0 if p.grad is None else p.grad.sum())

    def reads_in_a_branch(g: Tensor) -> Tensor:
        return g if g.norm() > 1e6 else reads(net.bias)(g)

    def raises(g: Tensor) -> Tensor:
        raise ValueError("no")

    def writes(number: float) -> Hook:
        return lambda g: buffer.mul_(0.5).add_(number).sum() * g

    return {
        "reads": {"weight": reads(net.bias), "bias": reads(net.weight)},
        "reads in a branch": {"weight": reads_in_a_branch},
        "writes": {"weight": writes(1.0), "bias": writes(2.0)},
        "raises": {"weight": raises},
        "a base": {"weight": lambda g: g * (1.0 if g._base is None else 2.0)},
        "a view": {"weight": lambda g: g * (2.0 if g._is_view() else 1.0)},
    }


@pytest.mark.parametrize("name", hooks_that_see_when(nn.Linear(1, 1), torch.ones(1)))
def test_hooks_that_may_see_the_order_are_called_in_that_of_eager(name: str) -> None:
    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net, buffer = nn.Linear(4, 3), torch.ones(3)
        for at, hook in hooks_that_see_when(net, buffer)[name].items():
            getattr(net, at).register_hook(hook)

        def step(x: Tensor, net: nn.Linear = net) -> None:
            net(x).square().mean().backward()

        run = anyshape.compile(step) if compiled else step
        for rows in (3, 2):
            try:
                run(torch.ones(rows, 4))
            except ValueError:
                assert name == "raises"
        found.append([None if p.grad is None else p.grad for p in net.parameters()])
    assert_same(found[0], found[1])


def test_a_hook_that_reads_a_gradient_that_is_added_to_is_called_by_autograd() -> None:
    found = []
    for compiled in (True, False):
        leaves = [torch.ones(2, 3, requires_grad=True) for _ in range(2)]
        kept = [torch.ones(2, 3), torch.ones(2, 3)]
        for leaf, other, own in zip(leaves, reversed(kept), kept):
            leaf.register_hook(lambda g, other=other: g + other.view(-1)[0])
            leaf.grad = own

        def step(x: Tensor, leaves: list[Tensor] = leaves) -> None:
            ((leaves[0] * x).sin() * leaves[1]).sum().backward()

        run = anyshape.compile(step) if compiled else step
        for _ in range(2):
            run(torch.ones(2, 3))
        found.append([leaf.grad for leaf in leaves])
    assert_same(found[0], found[1])


def test_a_program_reads_the_hooks_of_a_tensor() -> None:
    p = torch.ones(3, requires_grad=True)
    p.grad = torch.ones(3)
    p.register_hook(lambda g: g)

    def program(x: Tensor) -> Tensor:
        y = x * 2.0
        ours = 4.0 if y._backward_hooks is None else 8.0
        return (
            y
            + (1.0 if p._backward_hooks is None else 2.0)
            + (0.5 if p._grad is None else 0.0)
            + ours
        )

    x = torch.ones(3)
    assert_same(anyshape.compile(program)(x), program(x))


class Mixed(nn.Module):
    """``wide``: one operator reads many parameters."""

    def __init__(self, wide: bool) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(7, 8), nn.LayerNorm(8)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.pair = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(2)])
        self.many = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(5 * wide)])

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.first(self.table(tokens))).relu()
        scores = x + self.second(x) * (self.pair[0] * self.pair[1]) + self.first.bias.sum()
        if len(self.many):
            scores = scores + torch.stack([*self.many]).sum(0)
        return scores, (scores.square() * self.pair[1]).sum()


def seen_by_hooks(compiled: str, wide: bool) -> list[Any]:
    """Which gradients there are, and their sum, when the hooks of each parameter are called."""
    torch.manual_seed(0)
    net, seen = Mixed(wide), []
    named = dict(net.named_parameters())

    def note(what: str) -> None:
        grads = {n: p.grad.abs().sum().item() for n, p in named.items() if p.grad is not None}
        seen.extend([what, [*grads], [*grads.values()]])

    for name, parameter in named.items():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: note(name))
    net.first.weight.register_hook(lambda _: note("first"))
    model = anyshape.compile(net) if compiled == "model" else net

    def step(tokens: Tensor) -> None:
        scores, loss = model(tokens)
        (loss + scores.sum()).backward()

    run = anyshape.compile(step) if compiled == "step" else step
    for count in (3, 1):
        run(torch.arange(count).view(1, count))
        net.zero_grad()
    if compiled == "model":
        assert model.stats().eager_graphs == ()  # type: ignore[attr-defined]
    return seen


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("compiled", ["model", "step"])
def test_autograd_calls_hooks_behind_a_compiled_forward_in_the_order_of_eager(
    compiled: str, wide: bool
) -> None:
    assert_same(seen_by_hooks(compiled, wide), seen_by_hooks("", wide))
