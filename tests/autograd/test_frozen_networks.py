"""Flags that change behind a reader: networks that are frozen for a part of a step and thawed again,
as GANs do it. Beside eager at several shapes, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import anyshape

pytestmark = pytest.mark.usefixtures("doubles")
ROWS = (4, 1, 5, 3)


class Adversaries:
    """Two networks with an optimizer each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.makes = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
        self.judges = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        self.normed = nn.Sequential(
            nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)
        )
        self.of_normed = torch.optim.Adam(self.normed.parameters(), 1e-2)
        self.label = torch.ones(())
        self.calls = 0
        self.of_makes = torch.optim.Adam(self.makes.parameters(), 1e-2)
        self.of_judges = torch.optim.Adam(self.judges.parameters(), 1e-2)

    def freeze(self, flag: bool) -> None:
        for p in self.judges.parameters():
            p.requires_grad = not flag

    def judge(self, x: Tensor, made: Tensor) -> Tensor:
        self.of_judges.zero_grad()
        loss = self.judges(made.detach()).exp().mean() - self.judges(x).mean()
        loss.backward()
        self.of_judges.step()
        return loss.detach()

    def fool(self, x: Tensor, made: Tensor) -> Tensor:
        self.of_makes.zero_grad()
        loss = -self.judges(made).mean() + (made - x).abs().mean()
        loss.backward()
        self.of_makes.step()
        return loss.detach()


def thawed_first(x, nets):
    made = nets.makes(x)
    nets.freeze(False)
    judged = nets.judge(x, made)
    nets.freeze(True)
    return judged, nets.fool(x, made)


def frozen_first(x, nets):
    made = nets.makes(x)
    nets.freeze(True)
    fooled = nets.fool(x, made)
    nets.freeze(False)
    return fooled, nets.judge(x, made)


def each_in_turn(x, nets):
    nets.makes.requires_grad_(False)
    nets.judges.requires_grad_(True)
    judged = nets.judge(x, nets.makes(x))
    nets.makes.requires_grad_(True)
    nets.judges.requires_grad_(False)
    fooled = nets.fool(x, nets.makes(x))
    return judged, fooled, [p.requires_grad for p in nets.judges.parameters()]


def with_a_penalty(x, nets):
    made = nets.makes(x)
    mixed = (0.5 * x + 0.5 * made).detach().requires_grad_()
    (slope,) = torch.autograd.grad(nets.judges(mixed).sum(), mixed, create_graph=True)
    nets.of_judges.zero_grad()
    (slope.square().sum() - nets.judges(x).mean()).backward()
    nets.of_judges.step()
    nets.freeze(True)
    fooled = nets.fool(x, made)
    nets.freeze(False)
    return fooled, slope


def with_a_penalty_while_frozen(x, nets):
    (slope,) = torch.autograd.grad(nets.judges(x).sum(), [nets.judges[0].bias], create_graph=True)
    loss = slope.square().sum()
    nets.freeze(True)
    made = nets.makes(x)
    (other,) = torch.autograd.grad(nets.judges(made).exp().sum(), made, create_graph=True)
    nets.of_makes.zero_grad()
    other.square().mean().backward()
    nets.of_makes.step()
    nets.freeze(False)
    nets.of_judges.zero_grad()
    loss.backward()
    nets.of_judges.step()
    return slope.detach(), other.detach()


def penalty_of_what_was_judged_before(x, nets):
    made = nets.makes(x)
    judged = nets.judges(made).exp().sum()
    nets.freeze(True)
    (slope,) = torch.autograd.grad(judged, made, create_graph=True)
    nets.freeze(False)
    nets.of_judges.zero_grad()
    slope.square().sum().backward()
    return slope.detach()


def cleared_while_frozen(x, nets):
    made = nets.makes(x)
    nets.judge(x, made)
    nets.freeze(True)
    fooled = nets.fool(x, made)
    nets.judges.zero_grad()
    nets.freeze(False)
    return fooled, [p.grad is None for p in nets.judges.parameters()]


def frozen_before_backward(x, nets):
    loss = nets.judges(x).square().mean()
    nets.judges[0].requires_grad_(False)
    nets.of_judges.zero_grad()
    loss.backward()
    made = [p.grad is None for p in nets.judges.parameters()]
    nets.judges[0].requires_grad_(True)
    return loss.detach(), made


def read_while_frozen(x, nets):
    loss = nets.judges(x).mean()
    nets.freeze(True)
    weight, judged = nets.judges[0].weight, nets.judges(x)
    with torch.no_grad():
        flags = judged.requires_grad, weight.is_leaf, weight.view(-1).requires_grad
    nets.freeze(False)
    (loss + judged.mean()).backward()
    return loss.detach(), judged, flags


def viewed_and_done_with(x, nets):
    nets.freeze(True)
    weight = nets.judges[0].weight
    loss = (nets.makes(x) @ weight.t()).mean()
    nets.of_makes.zero_grad()
    loss.backward()
    nets.freeze(False)
    weight.view(-1).square().sum().backward()
    return loss.detach()


def asked_of_a_view_after_the_thaw(x, nets):
    nets.freeze(True)
    view = nets.judges[0].weight.view(-1)
    before = view.requires_grad
    nets.freeze(False)
    return x + 1, before, view.requires_grad


def frozen_first_with_running_statistics(x, nets):
    """As CycleGAN does it, with labels that are expanded as the scores."""
    x = torch.cat([x, -x])
    made = nets.makes(x)
    nets.normed.requires_grad_(False)
    nets.of_makes.zero_grad()
    scores = nets.normed(made)
    fooled = (scores - nets.label.expand_as(scores)).square().mean() + (made - 2).square().mean()
    fooled.backward()
    nets.of_makes.step()
    nets.normed.requires_grad_(True)
    nets.of_normed.zero_grad()
    scores = nets.normed(made.detach())
    judged = (scores + nets.label.expand_as(scores)).square().mean()
    judged.backward()
    nets.of_normed.step()
    return fooled.detach(), judged.detach(), nets.normed[1].running_mean.clone()


# ---- in several segments -------------------------------------------------------------------------
def view_read_after_the_thaw(x, nets):
    nets.freeze(True)
    view = nets.judges[0].weight.view(-1)
    nets.freeze(False)
    nets.of_judges.zero_grad()
    loss = (view * 2).square().sum() * x.sum()
    loss.backward()
    return loss.detach()


def view_handed_out(x, nets):
    nets.freeze(True)
    weight = nets.judges[0].weight
    view = weight.view(-1)
    return view, view._base is weight, weight.contiguous() is weight, x + 1


def with_a_penalty_behind_a_step(x, nets):
    made = nets.makes(x)
    judged = nets.judge(x, made)
    nets.freeze(True)
    (slope,) = torch.autograd.grad(nets.judges(made).exp().sum(), made, create_graph=True)
    nets.of_makes.zero_grad()
    slope.square().mean().backward()
    nets.of_makes.step()
    nets.freeze(False)
    return judged, slope.detach()


def written_while_frozen(x, nets):
    nets.judges(x).sum().backward()
    nets.freeze(True)
    for p in nets.judges.parameters():
        p.clamp_(-0.2, 0.2)
    judged = nets.judges(x)
    nets.freeze(False)
    return judged


# ---- what autograd asks of a flag behind its change ----------------------------------------------
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, cotangent):
        a, b = ctx.saved_tensors
        return cotangent * b, cotangent * a


class Left(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.mark_non_differentiable(b)
        return a * 2, b

    @staticmethod
    def backward(ctx, cotangent, _):
        return cotangent * 2, None


def pair(nets):
    """Two leaves of one size, without gradients."""
    nets.makes.zero_grad()
    nets.judges.zero_grad()
    return nets.makes[0].bias, nets.judges[0].bias


def function_applied_while_frozen(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    loss = Product.apply(a, b).sum() * x.sum()
    b.requires_grad_(True)
    loss.backward()
    return loss.detach()


def function_that_gives_what_is_frozen(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    p, q = Left.apply(a, b)
    flags = p.requires_grad, q.requires_grad
    b.requires_grad_(True)
    (p.sum() + q.sum()).backward()
    return x + 1, flags


def function_asked_for_gradients_behind_a_thaw(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    loss = Product.apply(a, b).sum() * x.sum()
    b.requires_grad_(True)
    return torch.autograd.grad(loss, [a, b], allow_unused=True)


def function_differentiated_outside(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    loss = Product.apply(a, b).sum() * x.sum()
    return loss, b


def slope_of_what_was_read_before(x, nets):
    a, b = pair(nets)
    loss = (a * b).pow(2).sum() * x.sum()
    b.requires_grad_(False)
    (slope,) = torch.autograd.grad(loss, [a], create_graph=True)
    b.requires_grad_(True)
    slope.sum().backward()
    return slope.detach()


def slope_at_what_was_made(x, nets):
    a, b = pair(nets)
    made = a * 1
    loss = (made * b * 0.1).exp().sum() * x.sum()
    b.requires_grad_(False)
    (slope,) = torch.autograd.grad(loss, [made], create_graph=True)
    b.requires_grad_(True)
    slope.sum().backward()
    return slope.detach()


def slope_of_a_view_that_was_read_before(x, nets):
    a, b = pair(nets)
    loss = (a * b.view(-1)).pow(2).sum() * x.sum()
    b.requires_grad_(False)
    (slope,) = torch.autograd.grad(loss, [a], create_graph=True)
    b.requires_grad_(True)
    slope.sum().backward()
    return slope.detach()


def slope_behind_a_thaw(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    loss = (a * b).pow(2).sum() * x.sum()
    b.requires_grad_(True)
    (slope,) = torch.autograd.grad(loss, [a], create_graph=True)
    slope.sum().backward()
    return slope.detach()


def slope_of_a_view_behind_a_thaw(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    loss = (a * b.view(-1)).pow(2).sum() * x.sum()
    b.requires_grad_(True)
    (slope,) = torch.autograd.grad(loss, [a], create_graph=True)
    slope.sum().backward()
    return slope.detach()


def slope_made_while_frozen(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    loss = (a * b).pow(3).sum() * x.sum()
    (slope,) = torch.autograd.grad(loss, [a], create_graph=True)
    b.requires_grad_(True)
    slope.sum().backward()
    return slope.detach()


def written_before_its_backward(x, nets):
    a, b = pair(nets)
    loss = (a * b).sum() * x.sum()
    b.requires_grad_(False)
    with torch.no_grad():
        b.add_(1)
    try:
        loss.backward()
    except RuntimeError:
        flag = b.requires_grad
        b.requires_grad_(True)
        return x + 1, "raised", flag
    return x + 1


def written_through_a_view_before_its_backward(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    loss = (a * b).sum() * x.sum()
    view = b.view(-1)
    with torch.no_grad():
        view.add_(1)
    b.requires_grad_(True)
    try:
        loss.backward()
    except RuntimeError:
        return x + 1, "raised", b.requires_grad
    return x + 1


def written_with_gradients_through_a_view(x, nets):
    a, b = pair(nets)
    if not b.is_leaf:
        return x + 1, False
    b.requires_grad_(False)
    view = b[:1]
    view.add_(a[:1])
    return x + 1, b.requires_grad, b.is_leaf


def checkpointed_before_a_freeze(x, nets):
    a, b = pair(nets)
    made = checkpoint(lambda a: torch.tanh(a * b), a, use_reentrant=False).sum() * x.sum()
    b.requires_grad_(False)
    return differentiated_in_a_try(x, made, b)


def checkpointed_while_frozen(x, nets):
    a, b = pair(nets)
    b.requires_grad_(False)
    made = checkpoint(lambda a: torch.tanh(a * b) * a, a, use_reentrant=False).sum() * x.sum()
    b.requires_grad_(True)
    return differentiated_in_a_try(x, made, b)


def differentiated_in_a_try(x, made, leaf):
    try:
        made.backward()
        raised = "nothing"
    except RuntimeError as error:
        raised = type(error).__name__
    leaf.requires_grad_(True)
    return x + 1, raised


def watched_while_frozen(x, nets):
    a, b = pair(nets)
    called = []
    handle = b.register_post_accumulate_grad_hook(lambda p: called.append(1))
    loss = (a * b).sum() * x.sum()
    b.requires_grad_(False)
    loss.backward()
    b.requires_grad_(True)
    handle.remove()
    return loss.detach(), called


def flags_that_follow_from_numbers(x: Tensor, nets: Adversaries) -> Any:
    """Of the count of calls, which is a size from the second call on, and of a size."""
    nets.calls += 1
    nets.judges[0].requires_grad_(nets.calls > 2)
    nets.judges[2].bias.requires_grad = len(x) > 1
    weight = torch.ones(6, requires_grad=nets.calls > 3)
    nets.of_judges.zero_grad(set_to_none=nets.calls > 3)
    score = nets.judges(x * weight).square().mean()
    score.backward(retain_graph=nets.calls > 2)
    nets.of_judges.step()
    return score.detach(), weight.requires_grad


ONE_SEGMENT: list[Callable[..., Any]] = [
    *[thawed_first, frozen_first, each_in_turn, with_a_penalty, cleared_while_frozen],
    with_a_penalty_while_frozen,
    *[frozen_before_backward, read_while_frozen, viewed_and_done_with],
    asked_of_a_view_after_the_thaw,
    frozen_first_with_running_statistics,
]
ONE_SEGMENT += [flags_that_follow_from_numbers]
CUT: list[Callable[..., Any]] = [view_read_after_the_thaw, view_handed_out, written_while_frozen]
CUT += [with_a_penalty_behind_a_step, penalty_of_what_was_judged_before]
CUT += [function_applied_while_frozen, function_that_gives_what_is_frozen]
CUT += [function_asked_for_gradients_behind_a_thaw, function_differentiated_outside]
CUT += [slope_of_what_was_read_before, slope_at_what_was_made, slope_behind_a_thaw]
CUT += [slope_of_a_view_that_was_read_before, slope_of_a_view_behind_a_thaw]
CUT += [slope_made_while_frozen, written_before_its_backward]
CUT += [written_through_a_view_before_its_backward, written_with_gradients_through_a_view]
CUT += [checkpointed_before_a_freeze, checkpointed_while_frozen, watched_while_frozen]


def seen(value: Any) -> tuple[Any, Any]:
    """What is told of a tensor, and its numbers."""
    if not isinstance(value, Tensor):
        return value, None
    told = value.requires_grad, value.is_leaf, value._version, value.grad is None
    grads = [] if not value.is_leaf or value.grad is None else [value.grad.clone()]
    return told, [value.detach().clone(), *grads]


@pytest.mark.parametrize("program", [*ONE_SEGMENT, *CUT], ids=lambda p: p.__name__)
@pytest.mark.filterwarnings("ignore")
def test_networks_are_frozen_and_thawed_as_in_eager(program: Callable[..., Any]) -> None:
    runs: list[list[Any]] = []
    for compiled in (False, True):
        nets = Adversaries()

        def step(x: Tensor, nets: Adversaries = nets) -> Any:
            return program(x, nets)

        run = anyshape.compile(step) if compiled else step
        runs.append([])
        torch.manual_seed(1)
        for rows in ROWS:
            made = run(torch.randn(rows, 6))
            made = made if isinstance(made, tuple) else (made,)
            networks = nets.makes, nets.judges, nets.normed
            leaves = [p for network in networks for p in network.parameters()]
            runs[-1].append([seen(each) for each in (*made, *leaves)])
    for expected, found in zip(*runs, strict=True):
        assert [told for told, _ in found] == [told for told, _ in expected]
        torch.testing.assert_close(
            [n for _, n in found], [n for _, n in expected], rtol=1e-9, atol=1e-10
        )
    stats = run.stats()
    assert stats.internal_errors == 0
    if program in ONE_SEGMENT:
        assert (stats.graph_breaks, stats.eager_graphs) == (0, ())
    else:
        assert stats.graph_breaks
