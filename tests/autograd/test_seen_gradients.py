"""What `torch.autograd.grad` gives and the program hands out, writes or asks how it lies: eager is
asked, where a gradient has its memory for itself. Beside eager at several shapes, in float64: values,
strides, versions, and which results share memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape.capture.tensors import second_gradients

pytestmark = pytest.mark.usefixtures("doubles")
grad = torch.autograd.grad
ROWS = (4, 1, 5, 3)
Program = Callable[[Tensor, nn.Module], Any]


def leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


# ---- one segment ---------------------------------------------------------------------------------
def hessian_times_a_vector(x, net):
    ps = [*net.parameters()]
    gs = grad(F.cross_entropy(net(x), torch.arange(len(x)) % 3), ps, create_graph=True)
    return grad(sum((g * torch.ones_like(g)).sum() for g in gs), ps)


def forces(x, net):
    at = leaf(x)
    force = -grad(net(at).square().sum(), at, create_graph=True)[0]
    loss = (force - x).square().mean()
    loss.backward()
    return loss.detach(), force.detach()


def turned(x, net):
    a = leaf(x)
    (g,) = grad((a.t() @ x).sin().sum(), a)
    return g, g.stride(), g.is_contiguous(), g.reshape(-1)


def turned_in_memory(x, net):
    a = leaf(x.t())
    return grad(a.sin().sum(), a)[0], grad((a * a).sum(), a)[0] + 0


def of_parts_that_are_joined(x, net):
    a = leaf(x)
    return grad(torch.cat([a.t(), a.t() * 2], 1).exp().sum(), a)


def of_a_slice(x, net):
    a = leaf(x)
    return grad(a[:, 1:].exp().sum(), a)


def of_an_argument(x, net):
    a = leaf(x)
    return grad((a * x).sum(), a)[0], x


def of_the_cotangent(x, net):
    a, g = leaf(x), x.cos()
    return grad(a * 1, a, g)[0], g


def written(x, net):
    a = leaf(x)
    (g,) = grad((a.sin() * a.cos() + a).sum(), a)
    g.mul_(2)
    g += 1
    return g


def added_up_by_autograd(x, net):
    a = leaf(x)
    return grad((a.sin() * a.cos() + a).sum(), a)[0], grad(a.exp().sum(), a)[0]


def walks(x, net):
    for _ in range(3):
        x = x.detach().requires_grad_()
        (g,) = grad(net(x).sin().sum(), x)
        x = x - 0.1 * g + 0.01 * torch.randn_like(x)
    return x.detach()


def three_times(x, net):
    a = leaf(x)
    (g,) = grad((a**4).sum(), a, create_graph=True)
    (h,) = grad(g.sum(), a, create_graph=True)
    return g.detach(), h.detach(), grad(h.sum(), a)[0]


def row_by_row(x, net):
    a = leaf(x[0])
    (g,) = grad((a**3).sum() * a.sum(), a, create_graph=True)
    return torch.stack([grad(g[i], a, retain_graph=True)[0] for i in range(6)])


def attention(x, net):
    q = leaf(x.view(1, len(x), 2, 3))
    k = leaf(q)
    at = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2))
    return grad(at.square().sum(), (q, k))


ONE_SEGMENT: list[Program] = [
    *[hessian_times_a_vector, forces, turned, turned_in_memory, of_parts_that_are_joined],
    *[of_a_slice, of_an_argument, of_the_cotangent, written, added_up_by_autograd, walks],
    *[three_times, row_by_row, attention],
]


# ---- left to autograd ----------------------------------------------------------------------------
def one_for_two(x, net):
    a, b = leaf(x), leaf(x)
    return grad((a + b).tanh().sum(), (a, b))


def that_repeats_an_element(x, net):
    a = leaf(x)
    return grad(a.sum(), a)


def the_very_cotangent(x, net):
    a, g = leaf(x), x.cos()
    (made,) = grad(a + 1, a, g)
    made.mul_(2)
    return made, g


def that_views_the_cotangent(x, net):
    a, g = leaf(x), x.cos()
    return grad(a.view(-1), a, g.view(-1))


LEFT: list[Program] = [
    *[one_for_two, that_repeats_an_element, that_views_the_cotangent, the_very_cotangent]
]


def told(made: Any) -> list[Any]:
    found, memory = [], {}
    for each in made if isinstance(made, (tuple, list)) else (made,):
        if isinstance(each, Tensor):
            at = memory.setdefault(each.untyped_storage().data_ptr(), len(memory))
            found += [each.shape, each.stride(), each.storage_offset(), each._version, at]
            found += [each.requires_grad, each.is_leaf]
        else:
            found.append(each)
    return found


@pytest.mark.parametrize("program", [*ONE_SEGMENT, *LEFT], ids=lambda p: p.__name__)
@pytest.mark.filterwarnings("ignore")
def test_gradients_lie_in_memory_as_eagers(program: Program) -> None:
    runs: list[list[Any]] = []
    fast: Any = None
    for compiled in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

        def step(x: Tensor, net: Any = net) -> Any:
            return program(x, net)

        run = fast = anyshape.compile(step) if compiled else step
        runs.append([])
        for rows in ROWS:
            net.zero_grad()
            made = run(torch.randn(rows, 6))
            tensors = [
                t
                for t in (made if isinstance(made, (tuple, list)) else (made,))
                if isinstance(t, Tensor)
            ]
            grads = [p.grad for p in net.parameters() if p.grad is not None]
            runs[-1].append((told(made), [t.detach().clone() for t in (*tensors, *grads)]))
        if compiled:
            stats = fast.stats()
    ours, theirs = runs
    for (mine, found), (eagers, expected) in zip(ours, theirs, strict=True):
        assert mine == eagers
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    assert stats.internal_errors == 0
    if program in ONE_SEGMENT:
        assert (stats.segments, stats.graph_breaks, stats.eager_graphs) == (1, 0, ())


def test_gradients_of_no_elements() -> None:
    def program(x: Tensor) -> Any:
        a = leaf(x)
        return grad((a.t() @ x).sin().sum(), a)[0], grad((a.exp() + a).sum(), a)[0]

    fast = anyshape.compile(program)
    for shape in ((3, 2), (0, 2), (3, 0), (0, 0)):
        x = torch.randn(shape)
        ours, theirs = fast(x), program(x)
        assert told(ours) == told(theirs)
        torch.testing.assert_close(ours, theirs)


def test_eager_is_asked_how_gradients_lie_only_where_that_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*args: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(second_gradients, "layouts", refused)

    def program(x: Tensor) -> Tensor:
        a = leaf(x)
        return x - 0.1 * grad((a.sin() * a).sum(), a)[0]

    anyshape.compile(program, fullgraph=True)(torch.randn(3, 2))


def test_each_node_runs_once_however_often_eager_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    count, run_node = [0], second_gradients.run_node

    def counted(*args: Any) -> Any:
        count[0] += 1
        return run_node(*args)

    monkeypatch.setattr(second_gradients, "run_node", counted)

    def asked(turns: int) -> int:
        def program(x: Tensor) -> Tensor:
            for _ in range(turns):
                x = x.detach().requires_grad_()
                x = grad((x.sin() * x).sum(), x)[0]
            return x

        count[0] = 0
        anyshape.compile(program, fullgraph=True)(torch.randn(3, 2))
        return count[0]

    few, more, most = asked(4), asked(8), asked(16)
    assert most - more == 2 * (more - few)
