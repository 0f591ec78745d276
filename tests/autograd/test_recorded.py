"""Operators without a gradient rule: torch's autograd records the one call inside of a compiled graph,
and behaves as it does in eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.autograd.beside_eager import assert_same

SIZES = (3, 1, 0, 8)


def leaf(*shape: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=stream, dtype=torch.float64).requires_grad_()


def of_distances(x: Tensor, w: Tensor) -> Tensor:
    made = torch.tanh(x @ w)
    return torch.special.i1(torch.cdist(made, made * 0.5 + 1)).sum()


def of_memory_that_is_written_again(x: Tensor, w: Tensor) -> Tensor:
    made = torch.special.i1(x @ w + 1)  # what it reads and what it gives is dead behind it
    return (torch.exp(made * 2) * 3).sum()


def of_no_result_that_is_used(x: Tensor, w: Tensor) -> Tensor:
    values, positions = torch.kthvalue(x @ w, 2, dim=1)
    return (positions * 2).sum() + torch.sin(x).sum() + (values * 0).sum()


def of_two_results(x: Tensor, w: Tensor) -> Tensor:
    q, r = torch.linalg.qr(w @ w.mT + torch.eye(4, dtype=w.dtype))
    return (x @ q).square().sum() + r.diagonal().sum()


def of_two_results_by_other_names(x: Tensor, w: Tensor) -> Tensor:
    """A normalizing flow's determinant, as a function of torch's and as a method."""
    square = w @ w.mT + torch.eye(4, dtype=w.dtype)
    (q, _), (_, volume) = torch.qr(square), torch.slogdet(square)
    return (x @ q).square().sum() + volume + square.slogdet().logabsdet * square.svd().S.sum()


def of_matrices_with_holes(x: Tensor, w: Tensor) -> Tensor:
    """What autograd keeps lies as it did: the backward formula of det asks whether it is contiguous."""
    wide = torch.cat((w, torch.sin(w)), 1)
    many = torch.tanh(wide)[:, ::2].expand(2, 4, 4)
    return (x * torch.linalg.det(wide[:, :4])).sum() + torch.linalg.det(many).sum() * torch.exp(
        x
    ).sum()


def of_arguments_without_a_formula(x: Tensor, w: Tensor) -> Tensor:
    """Rows that have a rule, for other arguments than these."""
    image = torch.sin(x @ w).t()[None]
    kernel = w[:, :3].reshape(1, 4, 3)
    same = torch.nn.functional.conv1d(image, kernel, padding="same") if x.shape[0] else image
    pooled = torch.nn.functional.adaptive_avg_pool2d(w[None], 2)
    return (
        same.exp().sum()
        + (x @ w).norm(3)
        + (x.tanh() @ w).norm(float("inf"), dim=1).sum()
        + pooled.sum()
    )


PROGRAMS = (
    of_matrices_with_holes,
    of_arguments_without_a_formula,
    of_distances,
    of_memory_that_is_written_again,
    of_no_result_that_is_used,
    of_two_results,
    of_two_results_by_other_names,
)


class Unrolled(torch.nn.Module):
    """A cell that the program itself goes through the sequence with."""

    def __init__(self, cell: torch.nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Any:
        made, last = [], self.cell(x[0])
        for row in x[1:]:
            made.append(last[0] if isinstance(last, tuple) else last)
            last = self.cell(row, last)
        return torch.stack([*made, last[0] if isinstance(last, tuple) else last]), last


RECURRENT = {
    "cells of an LSTM": lambda: Unrolled(torch.nn.LSTMCell(4, 3)),
    "cells of a GRU": lambda: Unrolled(torch.nn.GRUCell(4, 3)),
    "LSTM": lambda: torch.nn.LSTM(4, 3, num_layers=2, batch_first=True, bidirectional=True),
    "LSTM with projections": lambda: torch.nn.LSTM(4, 3, proj_size=2),
    "GRU": lambda: torch.nn.GRU(4, 3, num_layers=2, dropout=0.5),
    "RNN": lambda: torch.nn.RNN(4, 3, nonlinearity="relu"),
    "RNN of tanh": lambda: torch.nn.RNN(4, 3, bias=False),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_are_trained_in_a_compiled_graph(name: str) -> None:
    """The last states alone, the sequence alone, and both: each has gradients or none."""
    grads = []
    for compiled in (True, False):
        torch.manual_seed(0)
        layer = RECURRENT[name]().double()

        def step(x: Tensor, layer: torch.nn.Module = layer) -> Any:
            made, last = layer(torch.tanh(x))
            states = last if isinstance(last, tuple) else (last,)
            losses = made.sin().sum(), sum(s.square().sum() for s in states)
            for loss in (losses[0], losses[1], losses[0] * losses[1]):
                loss.backward(retain_graph=True)
            return made.detach(), losses[0].detach()

        run = anyshape.compile(step) if compiled else step
        for length, count in ((5, 2), (3, 1), (1, 4)):
            torch.manual_seed(1)
            x = leaf(length, count, 4)
            grads.append((run(x), x.grad, [p.grad.clone() for p in layer.parameters()]))
        if compiled:
            stats = run.stats()
            assert (stats.eager_graphs, stats.internal_errors) == ((), 0) and stats.recorded
    assert_same(grads[:3], grads[3:])


def inside(program: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def step(*given: Tensor) -> Tensor:
        loss = program(*given)
        loss.backward()
        return loss.detach()

    return step


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_eagers_at_every_size(program: Callable[..., Tensor]) -> None:
    outside, within = anyshape.compile(program), anyshape.compile(inside(program))
    for size in SIZES:
        x, w = leaf(size, 4), leaf(4, 4, seed=1)
        expected = torch.autograd.grad(program(x, w), (x, w))
        assert_same(torch.autograd.grad(outside(x, w), (x, w)), expected)
        within(x, w)
        assert_same((x.grad, w.grad), expected)
    for stats in (outside.stats(), within.stats()):
        assert stats.eager_graphs == () and stats.internal_errors == 0
        assert stats.recorded >= 1 and stats.kernels >= 1


def test_it_is_gone_through_twice_and_kept_for_as_long() -> None:
    fast = anyshape.compile(of_distances)
    grads = []
    for run in (fast, of_distances):
        x, w = leaf(3, 4), leaf(4, 4, seed=1)
        loss = run(x, w)
        loss.backward(retain_graph=True)
        run(x * 2, w)  # another call between, with a handle of its own
        loss.backward()
        grads.append((x.grad, w.grad))
    assert_same(*grads)


@pytest.mark.parametrize(
    "program", [lambda x: torch.special.i1(x * 1).sum(), lambda x: torch.special.i1(x).sum()]
)
def test_a_later_write_raises_where_eager_raises(program: Callable[[Tensor], Tensor]) -> None:
    def outcome(run: Callable[[Tensor], Tensor]) -> Any:
        x = leaf(4)
        loss = run(x)
        with torch.no_grad():
            x.add_(1)
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error)[:60]
        return x.grad

    expected, found = outcome(program), outcome(anyshape.compile(program))
    assert_same(found, expected)


def _distances_from(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, torch.cdist(y, y + 1)


def _least(x: Tensor) -> tuple[Tensor, ...]:
    y = x.sin()
    return y, y.cummin(0)[0]


def _least_in_place(x: Tensor) -> tuple[Tensor, ...]:
    y = x.flatten() + 0
    y.scatter_reduce_(0, torch.zeros_like(y, dtype=torch.int64), y.clone(), "amin")
    return (y,)


def _divided_in_place(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x * 2, x + 5
    return y.div_(z), z


@pytest.mark.parametrize("written", range(2))
@pytest.mark.parametrize("program", [_distances_from, _least, _least_in_place, _divided_in_place])
def test_a_later_write_to_a_result_raises_where_eager_raises(
    program: Callable[[Tensor], tuple[Tensor, ...]], written: int
) -> None:
    def outcome(run: Callable[[Tensor], tuple[Tensor, ...]]) -> Any:
        x = leaf(4, 4)
        results = run(x)
        results[written % len(results)].detach().add_(1)
        try:
            results[-1].sum().backward()
        except RuntimeError as error:
            return str(error)[:60]
        return x.grad

    fast = anyshape.compile(program)
    assert_same(outcome(fast), outcome(program))
    assert fast.stats().eager_graphs == ()


def test_an_operator_of_the_program_runs_once_and_its_own_backward_is_used() -> None:
    calls = []

    @torch.library.custom_op("anyshape_tests::recorded_cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        calls.append("forward")
        return x**3

    @cube.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kept = inputs[0]  # where autograd does not see it

    def backward(ctx: Any, g: Tensor) -> Tensor:
        calls.append("backward")
        return g * ctx.kept**2 * 3

    cube.register_autograd(backward, setup_context=keep)

    def program(x: Tensor) -> Tensor:
        return (cube(torch.sin(x)) * 2).exp().sum()

    fast = anyshape.compile(program)
    for size in SIZES:
        x = leaf(size)
        expected = torch.autograd.grad(program(x), x)
        fast(x)
        del calls[:]
        fast(x).backward()
        assert calls == ["forward", "backward"]
        assert_same((x.grad,), expected)
    assert fast.stats().recorded == 1 and fast.stats().internal_errors == 0


def clipped(ratio: Tensor, gain: Tensor) -> Tensor:
    """PPO's loss, in which elements tie wherever nothing is clipped; and a spread that is learnt."""
    lesser = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
    greater = ratio.max(gain) + torch.max(input=gain, other=ratio)
    spread = ratio[:1].exp().expand_as(gain * 2)
    return -lesser.mean() + (greater * spread).mean()


def test_an_extremum_of_two_and_expand_as_have_rules() -> None:
    outside, within = anyshape.compile(clipped), anyshape.compile(inside(clipped))
    for size in (4, 1, 7):
        ratio, gain = leaf(size, 3), leaf(size, 3, seed=1)
        expected = torch.autograd.grad(clipped(ratio, gain), (ratio, gain))
        assert_same(torch.autograd.grad(outside(ratio, gain), (ratio, gain)), expected)
        within(ratio, gain)
        assert_same((ratio.grad, gain.grad), expected)
    for stats in (outside.stats(), within.stats()):
        assert stats.eager_graphs == () and stats.recorded == 0 and stats.specializations <= 2
