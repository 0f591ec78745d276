"""`retain_grad()` of what a segment has made, whose gradient a `backward()` in the same segment gives.
Beside eager at several shapes, in float64."""

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


def loss_of(made: Tensor) -> Tensor:
    return F.cross_entropy(made, torch.arange(len(made)) % 3)


def of_a_layer(x, net):
    h = net[1](net[0](x))
    assert h.retain_grad() is None
    loss = loss_of(net[2](h))
    loss.backward()
    return h.grad, h.detach(), loss.detach()


def of_weights_of_attention(x, net):
    h = net[0](x)
    weights = F.softmax(h @ h.t(), -1)
    weights.retain_grad()
    loss_of(net[2](weights @ h)).backward()
    return (weights.grad * weights).sum(-1).detach()


def that_lies_across(x, net):
    h = net[0](x).t() * 1.0
    h.retain_grad()
    loss_of(net[2](h.t())).backward()
    return h.grad, h.grad.stride()


def added_up(x, net):
    h = net[1](net[0](x))
    h.retain_grad()
    loss = loss_of(net[2](h))
    loss.backward(retain_graph=True)
    first = h.grad
    (loss * 2).backward()
    return first, h.grad, first is h.grad


def of_two_of_which_one_is_used(x, net):
    h, k = net[0](x), net[0](x + 1)
    h.retain_grad()
    k.retain_grad()
    loss_of(net[2](h)).backward()
    return h.grad, k.grad


def of_a_leaf(x, net):
    net[0].weight.retain_grad()
    loss_of(net(x)).backward()
    return net[0].weight.grad.sum()


ONE_SEGMENT: list[Program] = [
    *[of_a_layer, of_weights_of_attention, that_lies_across, added_up],
    of_two_of_which_one_is_used,
]


def that_is_handed_out(x, net):
    h = net[1](net[0](x))
    h.retain_grad()
    loss_of(net[2](h)).backward()
    return h, h.retains_grad


def for_a_backward_outside(x, net):
    h = net[1](net[0](x))
    h.retain_grad()
    return net[2](h).sum(), h


def of_a_view(x, net):
    h = net[1](net[0](x)).t()
    h.retain_grad()
    loss_of(net[2](h.t())).backward()
    return h.grad


def written_since(x, net):
    h = net[0](x)
    h.retain_grad()
    h.mul_(2)
    loss_of(net[2](h)).backward()
    return h.grad


def of_what_requires_none(x, net):
    try:
        (x * 2).retain_grad()
    except RuntimeError as error:
        return str(error)


def hooked_before(x, net):
    h = net[0](x)
    h.register_hook(lambda g: g * 2)
    h.retain_grad()
    loss_of(net[2](h)).backward()
    return h.grad


def hooked_afterwards(x, net):
    h = net[0](x)
    h.retain_grad()
    h.register_hook(lambda g: g * 2)
    loss_of(net[2](h)).backward()
    return h.grad


def asked_by_autograd_grad(x, net):
    h = net[0](x)
    h.retain_grad()
    (g,) = torch.autograd.grad(net[2](h).sum(), net[0].weight)
    return g.sum(), h.grad


LEFT: list[Program] = [
    *[that_is_handed_out, for_a_backward_outside, of_a_view, written_since, of_what_requires_none],
    *[hooked_before, hooked_afterwards, asked_by_autograd_grad, of_a_leaf],
]


@pytest.mark.parametrize("program", [*ONE_SEGMENT, *LEFT], ids=lambda p: p.__name__)
@pytest.mark.filterwarnings("ignore")
def test_gradients_are_retained_as_in_eager(program: Program) -> None:
    runs: list[list[Any]] = []
    fast: Any = None
    for compiled in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

        def step(x: Tensor, net: Any = net) -> Any:
            return program(x, net)

        run = anyshape.compile(step) if compiled else step
        fast = run if compiled else fast
        runs.append([])
        for rows in ROWS:
            made = run(torch.randn(rows, 6))
            several = [*made] if isinstance(made, (tuple, list)) else [made]
            tensors = [t for t in several if isinstance(t, Tensor)]
            if program is for_a_backward_outside:
                several[0].backward()
                tensors.append(several[1].grad)
            kinds = [(t.stride(), t._version, t.requires_grad, t.is_leaf) for t in tensors]
            others = [each for each in several if not isinstance(each, Tensor)]
            grads = [p.grad for p in net.parameters()]
            values = [None if t is None else t.detach().clone() for t in (*tensors, *grads)]
            runs[-1].append((kinds, others, values))
    for (kinds, others, found), (eagers, theirs, expected) in zip(*runs, strict=True):
        assert kinds == eagers and others == theirs
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10, equal_nan=True)
    stats = fast.stats()
    assert stats.internal_errors == 0
    if program in ONE_SEGMENT:
        assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())
