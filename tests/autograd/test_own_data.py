"""`p.data -= rate * p.grad`: a write where `p` lies, and an assignment of what its `data` is already,
so that a step written by hand is one segment. The same of `requires_grad`, set to what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same

Program = Callable[[nn.Module], None]


def descended(net: nn.Module) -> None:
    for p in net.parameters():
        p.data -= 0.1 * p.grad


def by_the_data_of_gradients(net: nn.Module) -> None:
    for p in net.parameters():
        p.data -= 0.1 * p.grad.data


def gradients_scaled(net: nn.Module) -> None:
    for p in net.parameters():
        p.grad.data *= 2.0
        p.grad.data /= 3.0


def held_meanwhile(net: nn.Module) -> None:
    for p in net.parameters():
        own = p.data
        own.mul_(0.5)
        p.data = own
        own.add_(1.0)


def gradients_cleared_as_of_old(net: nn.Module) -> None:
    for p in net.parameters():
        p.data -= 0.1 * p.grad
        p.grad.detach_()
        p.grad.zero_()


PROGRAMS = (descended, by_the_data_of_gradients, gradients_scaled, held_meanwhile)


@pytest.mark.parametrize("change", PROGRAMS)
def test_a_step_by_hand_is_one_segment(change: Program) -> None:
    logs: list[list[Any]] = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2)).double()

        def step(x: Tensor, net: nn.Module = net) -> Tensor:
            net.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            change(net)
            return loss.detach()

        run = fast = anyshape.compile(step) if compiled else step
        log: list[Any] = []
        for rows in (3, 1, 4):
            log.append([run(torch.linspace(-1, 1, rows * 8).double().view(rows, 8))])
            for p in net.parameters():
                log[-1] += [p.detach().clone(), p.grad.clone(), p._version, p.grad._version]
        logs.append(log)
        if compiled:
            stats = fast.stats()
            assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
    torch.testing.assert_close(logs[0], logs[1])


def swapped(x: Tensor) -> Any:
    own, new = x.data, x.data * 2
    x.data = new
    first = x + 0
    x.data = own
    return first, x + 0


def turned(x: Tensor) -> Any:
    own = x.data
    own.t_()
    x.data = own
    return x.shape, x * 1


def of_a_result(x: Tensor) -> Any:
    y = x * 3
    z = y.exp()
    y.data += 1
    y.data = y.data
    return y, z, y._is_view()


def of_a_view(x: Tensor) -> Any:
    row = x[0]
    row.data *= 2
    return row, x * 1


@pytest.mark.parametrize("program", [swapped, turned, of_a_result, of_a_view])
@pytest.mark.parametrize("requires", [True, False])
def test_data_that_is_assigned_otherwise(program: Callable[[Tensor], Any], requires: bool) -> None:
    seen = []
    for run in (anyshape.compile(program), program):
        seen.append([])
        for rows in (2, 3):
            x = torch.arange(rows * 3.0).view(rows, 3).requires_grad_(requires)
            made = [*run(x)]
            counts = [each._version for each in (x, *made) if isinstance(each, Tensor)]
            total = sum(each.sum() for each in made if isinstance(each, Tensor))
            if requires and total.requires_grad:
                total.backward()
            seen[-1] += [[getattr(v, "detach", lambda v=v: v)() for v in made], counts]
            seen[-1] += [x.detach().clone(), x.grad, x.stride(), total.requires_grad]
    torch.testing.assert_close(*seen)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("given", ["leaf", "plain", "result"])
def test_requires_grad_is_set_as_in_eager(given: str, flag: bool) -> None:
    def program(x: Tensor) -> Tensor:
        x.requires_grad = flag
        return x * 2

    fast = anyshape.compile(program)
    for rows in (3, 4, 5):
        seen: list[Any] = []
        for run in (fast, program):
            x = torch.ones(rows, requires_grad=given != "plain")
            x = x * 1 if given == "result" else x
            try:
                made: Any = run(x).requires_grad
            except RuntimeError as error:
                made = str(error)
            seen.append((made, x.requires_grad, x.is_leaf))
        assert seen[0] == seen[1]
    if (given, flag) in (("leaf", True), ("plain", False)):
        assert fast.stats().graph_breaks == 0


@pytest.mark.parametrize("requires", [True, False])
def test_what_is_detached_is_left_alone(requires: bool) -> None:
    def program(x: Tensor) -> Tensor:
        x.detach_()
        return x * 2

    fast = anyshape.compile(program)
    for rows in (3, 4, 5):
        for view in (False, True):
            seen: list[Any] = []
            for run in (fast, program):
                x = torch.ones(rows, requires_grad=requires)
                x = x[:2] if view else x
                try:
                    made: Any = run(x)
                except RuntimeError as error:
                    made = str(error)
                seen.append([made, x.requires_grad, x.is_leaf, x._version])
            assert_same(*seen)
