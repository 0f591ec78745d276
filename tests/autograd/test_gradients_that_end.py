"""Gradients of some tensors alone (`torch.autograd.grad`, `backward(inputs=...)`) let go of what lies
on the way to these, and of nothing else: what else there is may be gone through afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same

pytestmark = pytest.mark.usefixtures("doubles")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 3)


def of_what_lies_on_the_way(net: Net, x: Tensor) -> Tensor:
    """Weighed by the gradient of a result, as Grad-CAM does."""
    h = net.trunk(x).tanh()
    (weights,) = torch.autograd.grad(net.first(h).sin().sum(), h)
    loss = (h * weights).sum()
    loss.backward()
    return loss.detach()


def of_one_head_then_all(net: Net, x: Tensor) -> Tensor:
    h = net.trunk(x).tanh()
    net.first(h).square().sum().backward(inputs=[net.first.weight])
    loss = net.second(h).sin().sum()
    loss.backward()
    return loss.detach()


def of_each_head(net: Net, x: Tensor) -> Tensor:
    h = net.trunk(x).tanh()
    net.first(h).square().sum().backward(inputs=list(net.first.parameters()))
    net.second(h).sin().sum().backward(inputs=net.second.bias)
    h.sum().backward()
    return h.detach()


def asked_for_and_gone_on(net: Net, x: Tensor) -> Tensor:
    h = net.trunk(x).tanh()
    (g,) = torch.autograd.grad(net.first(h).square().sum(), net.first.weight)
    loss = net.second(h).sin().sum()
    loss.backward()
    return loss.detach() + g.sum()


def into_what_there_is(net: Net, x: Tensor) -> Tensor:
    """Two losses, whose gradients are added up at some of the leaves."""
    h = net.trunk(x).tanh()
    (net.first(h).sum() + net.second(h).sum()).backward(
        inputs=[net.second.weight, net.trunk.weight], retain_graph=True
    )
    loss = (net.first(h).sin().sum() + net.second(h).cos().sum()).exp().log()
    loss.backward(inputs=[net.trunk.weight, net.first.bias])
    return loss.detach()


PROGRAMS = [
    *(of_what_lies_on_the_way, of_one_head_then_all, of_each_head, asked_for_and_gone_on),
    into_what_there_is,
]


def run(program: Callable[[Net, Tensor], Any], compiled: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    net = Net()

    def function(x: Tensor) -> Any:
        return program(net, x)

    fast = anyshape.compile(function) if compiled else None
    found = []
    for count in (3, 5, 2):
        made = (fast or function)(torch.randn(count, 4))
        found.append([made, [p.grad for p in net.parameters()]])
        with torch.no_grad():
            for p in net.parameters():
                if p.grad is not None:
                    p -= 0.1 * p.grad
    return found, None if fast is None else fast.stats()


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_gradients_have_not_gone_through_may_be(program: Callable[[Net, Tensor], Any]) -> None:
    ours, stats = run(program, compiled=True)
    theirs, _ = run(program, compiled=False)
    assert_same(ours, theirs, 1e-7)
    assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())


def gone_through_again(net: Net, x: Tensor) -> Any:
    h = net.trunk(x).tanh()
    scores = net.first(h)
    scores.square().sum().backward(inputs=[net.first.weight])
    h.sum().backward(retain_graph=True)
    try:
        scores.sin().sum().backward()
    except RuntimeError as error:
        return str(error)[:40]
    return "gone through"


def handed_out(net: Net, x: Tensor) -> Any:
    h = net.trunk(x).tanh()
    net.first(h).square().sum().backward(inputs=[net.first.weight])
    return h, net.second(h)


def test_what_they_have_gone_through_may_not_be() -> None:
    ours, _ = run(gone_through_again, compiled=True)
    theirs, _ = run(gone_through_again, compiled=False)
    assert_same(ours, theirs, 1e-7)


def test_what_is_handed_out_may_be_gone_through() -> None:
    for function in (handed_out, anyshape.compile(handed_out)):
        torch.manual_seed(0)
        net = Net()
        h, scores = function(net, torch.randn(3, 4))
        (scores.sum() + h.sum()).backward()
        found = [p.grad for p in net.parameters()]
        if function is handed_out:
            expected = found
    assert_same(found, expected, 1e-7)
