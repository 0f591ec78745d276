"""`torch.utils.checkpoint` in compiled functions: the function is captured, what it computes is computed
again in the backward half, and what eager runs twice to another effect than once is eager's.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import anyshape
from tests.autograd.beside_eager import (
    SIZES,
    assert_same,
    assert_same_parameters,
    batch,
    descend,
    model,
)

Program = Callable[[nn.Module, Tensor, bool], Any]
CAPTURED: dict[str, Program] = {}
NATIVE: dict[str, Program] = {}


def captured(function: Program) -> Program:
    CAPTURED[function.__name__] = function
    return function


def native(function: Program) -> Program:
    NATIVE[function.__name__] = function
    return function


def leaves_hooks_behind() -> bool:
    """Whether a checkpoint without re-entrance whose function raises goes on replacing what is
    saved behind it, so that eager raises anew in the backward pass (torch 2.11)."""

    def refused(x: Tensor) -> Tensor:
        raise KeyError

    x = torch.ones(2, requires_grad=True)
    try:
        try:
            checkpoint(refused, x, use_reentrant=False)
        except KeyError:
            x.square().sum().backward()
    except KeyError:
        return True
    return False


LEAVES_HOOKS_BEHIND = leaves_hooks_behind()


# ---- what is captured ----------------------------------------------------------------------------
@captured
def one(net, x, reentrant):
    return checkpoint(net, x, use_reentrant=reentrant)


@captured
def two_in_a_row(net, x, reentrant):
    wide = checkpoint(lambda v: net[1](net[0](v)), x, use_reentrant=reentrant)
    return checkpoint(lambda v: net[3](net[2](v)), wide, use_reentrant=reentrant)


@captured
def dropout_inside(net, x, reentrant):
    made = checkpoint(lambda v: net(F.dropout(v, 0.3)).tanh(), x, use_reentrant=reentrant)
    return made, torch.rand(2)


@captured
def several_results(net, x, reentrant):
    def both(v):
        hidden = net[0](v)
        return hidden.sin(), hidden.cos() * 2

    first, second = checkpoint(both, x, use_reentrant=reentrant)
    return net[3](first * second), first.detach()


@captured
def in_a_sequence(net, x, reentrant):
    return checkpoint_sequential(net, 2, x, use_reentrant=reentrant)


@captured
def within_another(net, x, reentrant):
    inner = functools.partial(checkpoint, net[0], use_reentrant=reentrant)
    return checkpoint(lambda v: net[3](net[2](inner(v))), x, use_reentrant=reentrant)


@captured
def the_same_outside(net, x, reentrant):
    return checkpoint(net, x, use_reentrant=reentrant) * net(x)


@captured
def under_autocast(net, x, reentrant):
    with torch.autocast("cpu", torch.bfloat16):
        made = checkpoint(net, x, use_reentrant=reentrant)
    return made.float()


@captured
def writes_its_own_memory(net, x, reentrant):
    def run(v):
        y = net[0](v) * 2
        y.add_(1)
        return net[3](y.sin())

    return checkpoint(run, x, use_reentrant=reentrant)


@captured
def a_partial_that_holds_a_tensor(net, x, reentrant):
    scale = x.mean()
    run = functools.partial(lambda s, v: net(v) * s, scale.detach())
    return checkpoint(run, x, use_reentrant=reentrant)


@captured
def a_checkpoint_that_raises(net, x, reentrant):
    def run(v):
        raise KeyError(3)

    try:
        checkpoint(run, x, use_reentrant=reentrant or LEAVES_HOOKS_BEHIND)
    except KeyError:
        return net(x)


# ---- what eager runs -----------------------------------------------------------------------------
@native
def writes_a_statistic(net, x, reentrant):
    seen = torch.zeros(4)

    def run(v):
        made = net(v)
        seen.add_(made.detach().sum(0))
        return made

    made = checkpoint(run, x, use_reentrant=reentrant)
    made.sum().backward()
    return seen


@native
def appends(net, x, reentrant):
    turns = []

    def run(v):
        turns.append(v.shape[0])
        return net(v)

    checkpoint(run, x, use_reentrant=reentrant, **({} if reentrant else {"early_stop": False}))
    return net(x)


@native
def draws_others(net, x, reentrant):
    checkpoint(
        lambda v: F.dropout(net(v)), x, use_reentrant=reentrant, preserve_rng_state=False
    ).sum().backward()
    return torch.rand(1)


@native
def breaks(net, x, reentrant):
    def run(v):
        hidden = net[0](v)
        print(end="", flush=hidden.sum().item() > 1e9)
        return net[3](hidden.sin())

    return checkpoint(run, x, use_reentrant=reentrant)


def outcomes(program: Program, net: nn.Module, x: Tensor, reentrant: bool) -> Any:
    x = x.clone().requires_grad_()
    torch.manual_seed(x.shape[0])
    made = program(net, x, reentrant)
    first = made[0] if isinstance(made, tuple) else made
    if first is not None and first.requires_grad:
        first.square().sum().backward()
    return made, x.grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", [*CAPTURED, *NATIVE])
def test_a_checkpoint_is_as_eagers(name: str, reentrant: bool) -> None:
    program = (CAPTURED | NATIVE)[name]
    ours, theirs = model(), model()
    fast = anyshape.compile(program)
    tolerance = 5e-2 if name == "under_autocast" else 1e-3
    for seed, count in enumerate(SIZES):
        x, _ = batch(seed, count)
        found, expected = (
            outcomes(fast, ours, x, reentrant),
            outcomes(program, theirs, x, reentrant),
        )
        assert_same(found, expected, tolerance)
        assert_same_parameters(ours, theirs, tolerance)
    stats = fast.stats()
    assert stats.internal_errors == 0
    assert (name in NATIVE) == (stats.graph_breaks > 0), stats


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", CAPTURED)
def test_a_whole_step_with_checkpoints_is_one_segment(name: str, reentrant: bool) -> None:
    program = CAPTURED[name]

    def step(net, x):
        made = program(net, x, reentrant)
        (made[0] if isinstance(made, tuple) else made).square().mean().backward()
        descend(net)

    ours, theirs = model(), model()
    fast = anyshape.compile(step)
    tolerance = 5e-2 if name == "under_autocast" else 1e-3
    for seed, count in enumerate((4, 4, *SIZES)):
        x, _ = batch(seed, count)
        ours.zero_grad()
        theirs.zero_grad()
        given = [x.clone().requires_grad_() for _ in range(2)]
        for run, net, leaf in ((fast, ours, given[0]), (step, theirs, given[1])):
            torch.manual_seed(count)
            run(net, leaf)
        assert_same(given[0].grad, given[1].grad, tolerance)
        assert_same_parameters(ours, theirs, tolerance)
    assert (fast.stats().graph_breaks, fast.stats().eager_graphs) == (0, ())


# ---- what is computed again ----------------------------------------------------------------------
def chain(x: Tensor, weights: list[Tensor], again: bool) -> Tensor:
    for w in weights:

        def layer(v, w=w):
            return (F.linear(v, w).sin() @ w.t()).cos()

        x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
    return x


def leaves() -> tuple[Tensor, list[Tensor]]:
    stream = torch.Generator().manual_seed(0)
    x, *weights = [torch.randn(8, 8, generator=stream, requires_grad=True) for _ in range(4)]
    return x, weights


def test_what_lies_in_checkpoints_is_not_saved() -> None:
    counts = {}
    for again in (False, True):
        x, weights = leaves()
        fast = anyshape.compile(chain)
        fast(x, weights, again).sum().backward()
        backward = fast.graphs()[-1]
        counts[again] = backward.count("functional.linear("), backward.count("# argument 'saved")
    assert counts[False][0] == 0
    assert counts[True] == (3, 6)  # what is handed to each checkpoint, and the weights


def test_a_whole_step_computes_checkpoints_again() -> None:
    def step(x, weights, again):
        chain(x, weights, again).sum().backward()

    for again, products in ((False, 3), (True, 6)):
        x, weights = leaves()
        fast = anyshape.compile(step)
        fast(x, weights, again)
        assert fast.graphs()[-1].count("functional.linear(") == products


def test_equal_work_outside_does_not_undo_a_checkpoint() -> None:
    def both(x, w):
        made = checkpoint(lambda v: F.linear(v, w).sin().cos(), x, use_reentrant=False)
        with torch.no_grad():
            other = F.linear(x, w).sin().cos()
        return made * other

    x, (w, *_) = leaves()
    fast = anyshape.compile(both)
    fast(x, w).sum().backward()
    assert fast.graphs()[-1].count("functional.linear(") == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", range(1, 13))
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_segment_that_ends_where_a_checkpoint_begins(
    every: int, reentrant: bool, interrupted: bool
) -> None:
    def doubled(x: Tensor) -> Tensor:
        y = x.sin()
        if interrupted:
            signal.raise_signal(signal.SIGINT)
        return y * 2

    def program(x: Tensor) -> Tensor:
        y = x + 1
        try:
            y = checkpoint(doubled, y, use_reentrant=reentrant)
        except KeyboardInterrupt:
            y = y - 1
        return y * 2

    fast = anyshape.compile(program, options={"break_every": every})
    for _ in range(2):
        by_us, by_eager = (torch.ones(3, requires_grad=True) for _ in range(2))
        made, wanted = fast(by_us), program(by_eager)
        torch.testing.assert_close(made, wanted)
        made.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(by_us.grad, by_eager.grad)
