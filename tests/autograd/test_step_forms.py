"""Steps that do more than one `backward()` and one update: each is one segment, and eager's."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import swa_utils

import anyshape
from tests.autograd.beside_eager import assert_same, assert_same_parameters, batch, model

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


def whose_loss_is_scaled(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """By a fused step, which is handed the scale; the gradients of the second call are infinite."""
    fused = torch.optim.AdamW(net.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Tensor:
        fused.zero_grad()
        loss = F.cross_entropy(net(x), y) * (3e38 if len(x) == 5 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(fused)
        scaler.update()
        return scaler._scale.clone()

    return step


def whose_rate_follows_the_loss(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

    def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        schedule.step(loss.detach())
        return loss.detach()

    return step


def averaged(**options: Any) -> Callable[..., Step]:
    def make(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
        average = swa_utils.AveragedModel(net, **options)

        def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Tensor:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
            average.update_parameters(net)
            with torch.no_grad():
                return average(more)

        return step

    return make


AVERAGES = {
    "equal": {},
    "exponential": {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
    "exponential, on lists": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
}


def that_writes_results_part_by_part(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """Into memory of the graph, beside each other: each write is to a view with gaps."""

    def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Tensor:
        made, wide = net(x), torch.zeros(len(x), 6)
        wide[:, 1:5] = made
        wide[:, 5] = made.sum(1)
        wide[:, 0] *= 2
        optimizer.zero_grad()
        loss = F.cross_entropy(wide, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def whose_norm_counts_its_batches(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """`momentum=None` is one over a number that is read from a buffer."""
    norm = nn.BatchNorm1d(4, momentum=None)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)  # some gradients are 0 but for rounding

    def step(x: Tensor, y: Tensor, more: Tensor, labels: Tensor) -> Any:
        plain.zero_grad()
        loss = F.cross_entropy(norm(torch.cat([net(x), net(more)])), torch.cat([y, labels]))
        loss.backward()
        plain.step()
        return loss.detach(), norm.running_mean.clone(), norm.num_batches_tracked.clone()

    return step


FORMS = {
    **{
        make.__name__: make
        for make in (
            *(over_micro_batches, with_an_average_of_weights, of_two_networks),
            *(whose_loss_is_scaled, whose_rate_follows_the_loss),
            *(that_writes_results_part_by_part, whose_norm_counts_its_batches),
        )
    },
    **{f"averaged, {name}": averaged(**options) for name, options in AVERAGES.items()},
}


@pytest.mark.parametrize("name", FORMS)
def test_a_step_is_one_segment_for_every_shape(name: str) -> None:
    ours, theirs = model(), model()
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-2) for net in (ours, theirs)]
    steps = [FORMS[name](net, optimizer) for net, optimizer in zip((ours, theirs), optimizers)]
    fast = anyshape.compile(steps[0])
    for seed, count in enumerate((8, 5, 1, 3, 4, 2)):
        given = (*batch(seed, count), *batch(seed + 10, count + 2))
        torch.testing.assert_close(fast(*given), steps[1](*given), rtol=1e-3, atol=1e-4)
    if name == "whose_loss_is_scaled":  # torch's fused step counts no write
        values = [[p.detach() for p in net.parameters()] for net in (ours, theirs)]
        torch.testing.assert_close(*values, rtol=1e-3, atol=1e-4)
    else:
        assert_same_parameters(ours, theirs, 1e-3)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    assert rates[0] == pytest.approx(rates[1])
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
    assert stats.specializations == 2


class Ragged(nn.Module):
    """Parts of a row of tokens, each pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.mix = nn.Embedding(50, 16), nn.Linear(16, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        h = self.embedding(tokens)
        h = self.norm(h + torch.tanh(self.mix(h)))
        pooled, start = [], 0
        for length in lengths.tolist():
            part = h[start : start + length]
            pooled.append(part.mean(0) + part.amax(0))
            start += length
        made: Tensor = self.head(torch.stack(pooled))
        return made


def over_ragged_parts(net: Ragged) -> Step:
    """With two optimizers, a schedule and an average of the weights."""
    average = copy.deepcopy(net)
    first = torch.optim.AdamW(net.embedding.parameters(), lr=1e-2)
    others = [*net.mix.parameters(), *net.norm.parameters(), *net.head.parameters()]
    second = torch.optim.SGD(others, lr=1e-2, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(first, 10)

    def step(tokens: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        first.zero_grad()
        second.zero_grad()
        loss = F.cross_entropy(net(tokens, lengths), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        first.step()
        second.step()
        schedule.step()
        with torch.no_grad():
            for own, other in zip(average.parameters(), net.parameters()):
                own.lerp_(other, 0.1)
        return loss.detach()

    return step


def test_a_step_over_ragged_parts_is_one_segment_for_each_number_of_parts() -> None:
    """Five numbers: what is cut after three of them is more segments than that."""
    torch.manual_seed(0)
    theirs = Ragged()
    ours = copy.deepcopy(theirs)
    expected, fast = over_ragged_parts(theirs), anyshape.compile(over_ragged_parts(ours))
    for lengths in ((3, 4), (5, 1, 6), (2, 2), (7, 3, 1, 4), (1, 1, 1, 1, 1), (9,), (4, 4)):
        tokens, labels = torch.arange(sum(lengths)) * 7 % 50, torch.arange(len(lengths)) % 5
        given = tokens, torch.tensor(lengths), labels
        torch.testing.assert_close(fast(*given), expected(*given), rtol=1e-4, atol=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-4, atol=1e-5)
    stats = fast.stats()
    assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
    assert stats.specializations == 6  # five numbers of parts, and the first step


TURNED: dict[str, Callable[..., Tensor]] = {
    "mm": lambda x, w: x @ w[0].t(),
    "addmm": lambda x, w: torch.addmm(x[:, :8], x, w[0].t()),
    "bmm": lambda x, w: torch.bmm(x.expand(3, -1, -1), w.transpose(-2, -1)),
    "grouped": lambda x, w: torch._grouped_mm(
        x[:5], w.transpose(-2, -1), offs=torch.tensor([2, 2, 5], dtype=torch.int32)
    ),
}


@pytest.mark.parametrize("name", TURNED)
def test_the_gradient_of_a_turned_weight_is_written_as_the_weight_lies(name: str) -> None:
    """A product that was written the other way had to be read across."""
    weights = [torch.randn(1 if "mm" in name and name != "bmm" else 3, 8, 16) for _ in range(2)]
    weights[1].copy_(weights[0])
    ours, theirs = (weight.requires_grad_() for weight in weights)
    fast = anyshape.compile(lambda x: TURNED[name](x, ours).square().sum().backward())
    for count in (5, 7):
        x = torch.linspace(-1, 1, 16 * count).reshape(count, 16)
        fast(x)
        TURNED[name](x, theirs).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert fast.stats().graph_breaks == 0
    made = re.findall(r"mm : float32\[(.*)\]", fast.graphs()[1])
    assert any(re.fullmatch(r"(3, )?8, (16|s1)", shape) for shape in made)
    assert not any(re.fullmatch(r"(3, )?(16|s1), 8", shape) for shape in made)


def test_layers_are_thawed_between_steps() -> None:
    """What is asked of many parameters at once includes whether they require gradients."""

    def trained(compile: Callable[[Any], Any]) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

        @compile
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        losses = []
        for frozen in (True, False, True):
            model[0].requires_grad_(not frozen)
            losses += [step(torch.randn(n, 4)) for n in (5, 3, 8, 1)]
        return [*losses, *(p.detach() for p in model.parameters())]

    assert_same(trained(anyshape.compile), trained(lambda step: step))


@pytest.mark.parametrize("fused", [False, True])
def test_a_schedule_of_averages_rates_is_no_specialization_a_step(fused: bool) -> None:
    """`OneCycleLR` writes a new tuple `betas` at each step."""

    def trained(compile: Callable[[Any], Any]) -> tuple[Any, nn.Module]:
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=fused)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=9)

        @compile
        def step(x: Tensor, y: Tensor) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach(), optimizer.param_groups[0]["betas"]

        made = [step(*batch(seed, 4 + seed)) for seed in range(6)]
        if compile is anyshape.compile:
            stats = step.stats()
            assert (stats.specializations, stats.graph_breaks) == (2, 0)
        return made, net

    (ours, net), (theirs, other) = trained(anyshape.compile), trained(lambda step: step)
    assert_same(ours, theirs)
    assert_same_parameters(net, other)


def test_an_optimizer_that_is_handed_in_is_one_segment() -> None:
    """Without its model: whose state it looks up is known, as it is the same object each time."""
    nets = model(), model()
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-2) for net in nets]

    def step(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    fast = anyshape.compile(step)
    for call in range(4):
        for net, optimizer, run in zip(nets, optimizers, (fast, step)):
            for p in net.parameters():
                p.grad = torch.full_like(p, float(call))
            run(optimizer)
    assert_same_parameters(*nets)
    stats = fast.stats()
    assert (stats.specializations, stats.segments, stats.graph_breaks) == (2, 1, 0)


def test_optimizers_that_are_other_ones_in_each_call_are_right() -> None:
    def step(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    fast = anyshape.compile(step)
    for call in range(6):
        nets = model(), model()
        for net, run in zip(nets, (fast, step)):
            for p in net.parameters():
                p.grad = torch.full_like(p, float(call))
            run(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
        assert_same_parameters(*nets)


def test_a_step_behind_a_break_is_one_segment_more() -> None:
    def made(net: nn.Module) -> Callable[..., Any]:
        optimizer, steps = torch.optim.Adam(net.parameters(), 1e-2), [0]

        def step(x: Tensor, y: Tensor) -> float | None:
            steps[0] += 1
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            if os.getpid() < 0:
                return None
            optimizer.step()
            return loss.item()

        return step

    nets = model(), model()
    fast, plain = anyshape.compile(made(nets[0])), made(nets[1])
    for seed, count in enumerate((8, 5, 1, 3)):
        given = batch(seed, count)
        assert fast(*given) == pytest.approx(plain(*given), rel=1e-3)
    assert_same_parameters(*nets, 1e-3)
    assert fast.stats().segments == 2
