"""Training steps that loop over experts, whose numbers of rows the router decides: one segment where
every expert has rows, and right where some have none (eager leaves their gradients None).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from tests.autograd.beside_eager import assert_same, assert_same_parameters

EXPERTS, CHOSEN, WIDTH = 3, 2, 8
Experts = Callable[[Any, Tensor, Tensor, Tensor], Tensor]


def where_of_each(net: Any, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    mask = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
    for number in range(EXPERTS):
        choice, token = torch.where(mask[number])
        rows = net.experts[number](x[None, token].reshape(-1, WIDTH)) * weights[token, choice, None]
        out.index_add_(0, token, rows)
    return out


def of_those_hit(net: Any, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    mask = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
    hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for number in hit:
        choice, token = torch.where(mask[number].squeeze(0))
        rows = net.experts[number](x[token]) * weights[token, choice, None]
        out.index_add_(0, token, rows)
    return out


def of_those_hit_but_the_last(net: Any, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    with torch.no_grad():
        mask = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for number in hit:
        number = number[0]
        if number == EXPERTS:
            continue
        choice, token = torch.where(mask[number])
        rows = net.experts[int(number)](x[token]) * weights[token, choice, None]
        out.index_add_(0, token, rows)
    return out


def parts_of_counts(net: Any, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    order = chosen.view(-1).argsort(stable=True)
    counts = torch.bincount(chosen.view(-1), minlength=EXPERTS)
    parts = x[order // CHOSEN].split(counts.tolist())
    rows = torch.cat([net.experts[number](part) for number, part in enumerate(parts)])
    rows = rows * weights.reshape(-1)[order][:, None]
    return torch.zeros_like(x).index_add_(0, order // CHOSEN, rows)


def slices_that_skip_nothing(net: Any, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    counts = chosen.new_zeros((chosen.shape[0], EXPERTS)).scatter_(1, chosen, 1).sum(0)
    order = chosen.view(-1).argsort(stable=True)
    rows, outs, start = x[order // CHOSEN], [], 0
    for number, count in enumerate(counts.tolist()):
        end = start + count
        if count == 0:
            continue
        outs.append(net.experts[number](rows[start:end]))
        start = end
    made = torch.cat(outs)
    back = torch.empty_like(made)
    back[order] = made
    return (back.view(*chosen.shape, -1) * weights[..., None]).sum(1)


def where_there_are_some(net: Any, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for number in range(EXPERTS):
        token, choice = torch.where(chosen == number)
        if token.numel() > 0:
            out.index_add_(0, token, net.experts[number](x[token]) * weights[token, choice, None])
    return out


def counts_in_a_list(net: Any, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
    for number in range(EXPERTS):
        if not counts[number]:
            continue
        token, choice = torch.where(chosen == number)
        out[token] += net.experts[number](x[token]) * weights[token, choice, None]
    return out


FORMS = [
    where_of_each,
    of_those_hit,
    of_those_hit_but_the_last,
    parts_of_counts,
    slices_that_skip_nothing,
    where_there_are_some,
    counts_in_a_list,
]


class Mixture(nn.Module):
    def __init__(self, form: Experts) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4), nn.SiLU(), nn.Linear(4, WIDTH))
            for _ in range(EXPERTS)
        )
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(F.softmax(self.router(x), dim=-1), CHOSEN, dim=-1)
        return self.form(self, x, weights, chosen)


def make_step(net: Mixture) -> Callable[[Tensor], Tensor]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - x.flip(-1)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def steps(form: Experts, batches: list[Tensor]) -> Any:
    """The compiled step after these batches, each beside eager."""
    ours, theirs = Mixture(form).double(), Mixture(form).double()
    fast, plain = anyshape.compile(make_step(ours)), make_step(theirs)
    for x in batches:
        assert_same(fast(x), plain(x), rtol=1e-8)
        assert_same_parameters(ours, theirs, rtol=1e-8)
    return fast


def rows(seed: int, count: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(count, WIDTH, generator=stream, dtype=torch.float64)


ALIKE = rows(9, 1).expand(4, WIDTH).contiguous()  # one expert has no rows


@pytest.mark.parametrize("form", FORMS)
def test_a_step_over_experts_is_one_segment_for_all_counts(form: Experts) -> None:
    fast = steps(form, [rows(1, 40), rows(2, 25), rows(3, 40), rows(4, 31)])
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
    assert (stats.specializations, stats.denied, stats.internal_errors) == (2, 0, 0)


@pytest.mark.parametrize("form", FORMS)
def test_experts_without_rows_get_what_eager_gives_them(form: Experts) -> None:
    batches = [rows(1, 40), rows(2, 25), rows(3, 40), rows(4, 31), ALIKE, rows(5, 33)]
    stats = steps(form, batches).stats()
    assert (stats.segments, stats.graph_breaks, stats.internal_errors) == (1, 0, 0)
    assert stats.denied == (form not in (where_of_each, parts_of_counts))


@pytest.mark.parametrize("form", [of_those_hit, where_there_are_some])
def test_where_experts_often_have_no_rows_nothing_is_expected(form: Experts) -> None:
    stats = steps(form, [ALIKE, ALIKE, rows(1, 40), ALIKE]).stats()
    assert stats.denied == 1 and stats.graph_breaks > 0 and not stats.internal_errors
