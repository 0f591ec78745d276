"""`requires_grad_()` and `requires_grad = flag` of what was handed in, before anything reads it: part
of the segment. Beside eager at several shapes, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape

pytestmark = pytest.mark.usefixtures("doubles")
ROWS = (4, 1, 5, 0, 3)
Program = Callable[[Tensor, nn.Module], Any]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def with_a_backward(x, net):
    x.requires_grad_()
    net(x).square().sum().backward()
    return x.grad.abs().sum()


def of_an_attack(x, net):
    x.requires_grad = True
    loss = net(x).square().sum()
    net.zero_grad()
    loss.backward()
    return (x + 0.1 * x.grad.sign()).detach()


def saliency(x, net):
    x.requires_grad_(True)
    return torch.autograd.grad(net(x).square().sum(), x)[0]


def handed_out_unspent(x, net):
    x.requires_grad_()
    return net(x).sin()


def under_no_grad(x, net):
    with torch.no_grad():
        x.requires_grad_()
        y = x * 2
    return y, (x * y).sum()


def frozen(x, net):
    for p in net[0].parameters():
        p.requires_grad_(False)
    net(x).square().sum().backward()
    return [p.requires_grad for p in net.parameters()]


def thawed(x, net):
    net[0].weight.requires_grad = False
    net[0].weight.requires_grad = True
    net(x).square().sum().backward()
    return net[0].weight.requires_grad


def read_before(x, net):
    y = x * 2
    x.requires_grad_()
    return (y * x).sum(), y


def of_a_whole_number(x, net):
    n = torch.arange(len(x))
    try:
        n.requires_grad_()
    except RuntimeError as error:
        return str(error)


ONE_SEGMENT: list[Program] = [
    *[with_a_backward, of_an_attack, saliency, handed_out_unspent, under_no_grad, frozen, thawed],
]


@pytest.mark.parametrize(
    "program", [*ONE_SEGMENT, read_before, of_a_whole_number], ids=lambda p: p.__name__
)
@pytest.mark.filterwarnings("ignore")
def test_flags_are_set_as_in_eager(program: Program) -> None:
    runs: list[list[Any]] = []
    fast: Any = None
    for compiled in (True, False):
        net = network()

        def step(x: Tensor, net: Any = net) -> Any:
            return program(x, net)

        run = anyshape.compile(step) if compiled else step
        fast = run if compiled else fast
        runs.append([])
        for rows in ROWS:
            x = torch.randn(rows, 6)
            made = run(x)
            several = made if isinstance(made, (tuple, list)) else (made,)
            tensors = [t for t in several if isinstance(t, Tensor)]
            if left := [t for t in tensors if t.requires_grad]:
                sum(t.sum() for t in left).backward()
            leaves = [x, *net.parameters()]
            flags = [(t.requires_grad, t.is_leaf, t._version) for t in (*leaves, *tensors)]
            others = [each for each in several if not isinstance(each, Tensor)]
            grads = [t.grad for t in leaves]
            values = [None if t is None else t.detach().clone() for t in (*tensors, *grads)]
            runs[-1].append((flags, others, values))
    for (flags, others, found), (eagers, theirs, expected) in zip(*runs, strict=True):
        assert flags == eagers and others == theirs
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    stats = fast.stats()
    assert stats.internal_errors == 0
    if program in ONE_SEGMENT:
        assert (stats.segments, stats.graph_breaks) == (1, 0)


def test_layers_are_thawed_between_two_steps_in_one_segment() -> None:
    log: list[list[Any]] = []
    fast: Any = None
    for compiled in (True, False):
        net = network()
        net[0].requires_grad_(False)
        optimizer, count = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9), [0]

        def step(x: Tensor, net: Any = net, optimizer: Any = optimizer, count: Any = count) -> Any:
            count[0] += 1
            if count[0] == 3:
                net[0].requires_grad_(True)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), torch.arange(len(x)) % 3)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = anyshape.compile(step) if compiled else step
        fast = run if compiled else fast
        log.append([run(torch.randn(rows, 6)) for rows in (4, 1, 5, 3, 2)])
        log[-1] += [p.detach() for p in net.parameters()]
        torch.manual_seed(1)
    torch.testing.assert_close(*[[t for t in run] for run in log], rtol=1e-9, atol=1e-10)
    assert (fast.stats().segments, fast.stats().graph_breaks) == (1, 0)


def test_a_flag_is_set_back_where_data_is_not_as_expected() -> None:
    def step(x: Tensor) -> Any:
        before = x.requires_grad
        x.requires_grad_()
        loss = (x * x).sum()
        if (x.detach() > 0).any():
            loss = loss + x[x.detach() > 0].sum()
        loss.backward()
        assert x.grad is not None
        return before, x.grad.sum()

    fast = anyshape.compile(step)
    for sign in (1, 1, -1, 1):
        x = sign * torch.rand(4)
        found, expected = fast(x.clone()), step(x.clone())
        assert found[0] is expected[0] is False
        torch.testing.assert_close(found[1], expected[1])
    assert fast.stats().denied == 1
