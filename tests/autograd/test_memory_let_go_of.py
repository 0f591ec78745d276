"""What a compiled call has kept for its backward is let go of there, though its results are held: the
bytes that live then are eager's, and a second backward raises where eager's does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import anyshape
from tests.autograd.beside_eager import assert_same

Program = Callable[[Tensor, Tensor, Tensor], Any]
ROWS = (100, 60)


def elementwise(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return (x.sin() * v.exp() * x).tanh().sum()


def network(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    hidden = F.layer_norm(F.gelu((x * v) @ w), (100,))
    return F.cross_entropy(hidden @ w.mT, v.argmax(1))


def of_the_input_alone(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return (x * x.exp()).sin().sum()


def drawn(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return F.dropout(x * v, 0.5).exp().sum()


def written(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    v.mul_(2)
    return (x * v).sin().sum()


def recorded(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.cdist(x, v).sin().sum()


def on_the_way(x: Tensor, v: Tensor, w: Tensor) -> Any:
    scores = (x * v.sigmoid()).relu()
    return scores, (scores @ w).logsumexp(-1).sum()


PROGRAMS = [elementwise, network, of_the_input_alone, drawn, written, recorded, on_the_way]


def bytes_left(run: Program, use: Callable[[Tensor], Any], rows: int, replaced: bool) -> int:
    """That live behind a call and ``use`` of its last result, and did not before; all results are
    held, and no argument is."""
    held: list[Any] = []

    def whole() -> None:
        x, v = torch.randn(rows, 100, requires_grad=True) * 2, torch.randn(rows, 100)
        w = torch.randn(100, 100, requires_grad=True)
        made = run(x, v, w)
        if replaced:
            x.data = torch.zeros(rows, 100)
        held.append(made)
        use(made[-1] if isinstance(made, tuple) else made)

    whole()  # what is made once is made
    held.clear()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        whole()
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    events = seen.profiler.kineto_results.events()
    return sum(event.nbytes() for event in events if event.name() == "[memory]")


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_much_is_held_behind_a_backward_as_in_eager_torch(
    program: Program, replaced: bool
) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for rows in ROWS:
        ours, theirs = (
            bytes_left(run, lambda loss: loss.backward(), rows, replaced) for run in (fast, program)
        )
        assert ours <= theirs, (ours, theirs)
    assert not fast.stats().eager_graphs and fast.stats().gradients


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_retained_is_there_for_a_second_backward(program: Program) -> None:
    def twice(loss: Tensor) -> None:
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()

    fast = anyshape.compile(program, fullgraph=True)
    for run in (fast, program):
        once = bytes_left(run, lambda loss: loss.backward(), 100, False)
        assert bytes_left(run, twice, 100, False) <= once


def gradients(run: Program, through: Sequence[int], retain: bool) -> list[Any]:
    """Of several results, one after the other; the name of what is raised instead."""
    torch.manual_seed(0)
    x, v = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    made = run(x, v, torch.ones(4))
    found: list[Any] = []
    for position in through:
        try:
            made[position].sum().backward(retain_graph=retain)
            found.append([t if t is None else t.clone() for t in (x.grad, v.grad)])
        except RuntimeError as error:
            found.append(str(error)[:40])
            break
    return found


@pytest.mark.parametrize("retain", [False, True])
def test_results_are_gone_through_one_by_one(retain: bool) -> None:
    def two_heads(x: Tensor, v: Tensor, w: Tensor) -> Any:
        return x.sin() * 2, v.exp() * v

    def shared_trunk(x: Tensor, v: Tensor, w: Tensor) -> Any:
        trunk = (x * v).sin()
        return trunk.exp(), trunk.cos()

    def one_behind_the_other(x: Tensor, v: Tensor, w: Tensor) -> Any:
        trunk = (x * v).sin()
        return trunk, trunk.cos()

    for program in (two_heads, shared_trunk, one_behind_the_other):
        fast = anyshape.compile(program, fullgraph=True)
        for through in ((0, 1), (1, 0), (0, 0), (1, 1), (0, 1, 0), (1, 0, 1)):
            ours, theirs = (gradients(run, through, retain) for run in (fast, program))
            assert_same(ours, theirs)


def test_what_eager_keeps_nothing_for_is_gone_through_again() -> None:
    def program(x: Tensor, v: Tensor) -> Tensor:
        return (x + v - 3).sum(0)

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 4):
        found = []
        for run in (fast, program):
            x, v = (torch.ones(rows, 2, requires_grad=True) for _ in range(2))
            made = run(x, v)
            for _ in range(3):
                made.backward(torch.tensor([1.0, 2.0]))
            (again,) = torch.autograd.grad(made.sum(), v)
            found.append([x.grad, v.grad, again])
        torch.testing.assert_close(*found)


class Noted(nn.Module):
    """Keeps its last loss, as programs do that print it later."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(100, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).square().mean()


def test_losses_that_a_program_collects_hold_no_batches() -> None:
    def lasting(compiled: bool) -> int:
        net = Noted()
        run = anyshape.compile(net, fullgraph=True) if compiled else net
        losses = [run(torch.randn(50, 100))]
        losses[0].backward()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            for _ in range(3):
                losses.append(run(torch.randn(50, 100)))
                losses[-1].backward()
        assert seen.profiler is not None and seen.profiler.kineto_results is not None
        events = seen.profiler.kineto_results.events()
        return sum(event.nbytes() for event in events if event.name() == "[memory]")

    assert lasting(True) <= lasting(False) < 1000
