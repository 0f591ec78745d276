"""Flags that change behind a reader: networks that are frozen for a part of a step and thawed again,
as GANs do it. Beside eager at several shapes, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape

pytestmark = pytest.mark.usefixtures("doubles")
ROWS = (4, 1, 5, 3)


class Adversaries:
    """Two networks with an optimizer each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.makes = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
        self.judges = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
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


ONE_SEGMENT: list[Callable[..., Any]] = [
    *[thawed_first, frozen_first, each_in_turn, with_a_penalty, cleared_while_frozen],
    *[with_a_penalty_while_frozen, penalty_of_what_was_judged_before],
    *[frozen_before_backward, read_while_frozen, viewed_and_done_with],
    asked_of_a_view_after_the_thaw,
]
CUT: list[Callable[..., Any]] = [view_read_after_the_thaw, view_handed_out, written_while_frozen]
CUT += [with_a_penalty_behind_a_step]


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
            leaves = [*nets.makes.parameters(), *nets.judges.parameters()]
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
