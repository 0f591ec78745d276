"""A tensor that the program makes a leaf (`requires_grad_()`): gradients end there, in one graph; a
leaf that is handed out is eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import anyshape
from tests.autograd.beside_eager import assert_same, assert_same_parameters

Program = Callable[[nn.Module, Tensor], Any]


def gradient(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    net(y).square().sum().backward()
    return y.grad * 1  # type: ignore[operator]


def perturbed(net: nn.Module, x: Tensor) -> Any:
    adversarial = x.clone().detach().requires_grad_(True)
    F.cross_entropy(net(adversarial), torch.zeros(len(x), dtype=torch.long)).backward()
    return (adversarial + 0.1 * adversarial.grad.sign()).detach()  # type: ignore[union-attr]


def set_as_an_attribute(net: nn.Module, x: Tensor) -> Any:
    y = x.detach() * 2
    y.requires_grad = True
    (net(y).sum() * y.mean()).backward()
    return y.grad.abs().sum()  # type: ignore[union-attr]


def added_up(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    net(y).sum().backward()
    net(y * 2).sum().backward()
    return y.grad + 0  # type: ignore[operator]


def two(net: nn.Module, x: Tensor) -> Any:
    y = (x.detach() * 2).requires_grad_()
    z = y.detach().clone().requires_grad_()
    (y.sum() + z.sum() * 2).backward()
    return y.grad + 0, z.grad + 0, y.is_leaf  # type: ignore[operator]


def known_by_two_names(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone()
    z, held = y, {y: 1}
    before = y * 2
    y.requires_grad_()
    (z * 3).sum().backward()
    return z.grad is y.grad, before.requires_grad, z in held, y.grad + 0  # type: ignore[operator]


def born_a_leaf(net: nn.Module, x: Tensor) -> Any:
    w = torch.zeros(x.shape[1], requires_grad=True)
    b = torch.full((1,), 0.5, dtype=x.dtype, requires_grad=True)
    (net(x * (w + 1)) * b).sum().backward()
    return w.grad + 0, b.grad + 0, w.is_leaf, w.requires_grad  # type: ignore[operator]


def born_a_random_leaf(net: nn.Module, x: Tensor) -> Any:
    w = torch.randn(x.shape, requires_grad=True)
    again = torch.ones_like(x, requires_grad=True)
    net(x * w).sum().backward()
    (again * w).sum().backward()
    return w.grad + 0, again.grad + 0, torch.rand(2)  # type: ignore[operator]


def detached_in_place(net: nn.Module, x: Tensor) -> Any:
    h = net(x).tanh()
    known, before = [h], h * 2
    before.sum().backward()
    h.detach_()
    ((known[0] * net.weight.sum()).sum()).backward()
    return h, h.requires_grad, h.is_leaf, h is known[0], before.detach()


def truncated(net: nn.Module, x: Tensor) -> Any:
    h, total = x[:, :3] * 0.1, torch.zeros(())
    for _ in range(3):
        h = (net(x) * h).tanh()
        h.pow(2).sum().backward()
        total = total + h.detach().sum()
        h.detach_()
    return h, total


def detached_and_written(net: nn.Module, x: Tensor) -> Any:
    h = net(x).tanh()
    made = (h * 2).sum()
    h.detach_()
    h.mul_(0.5)
    h.requires_grad_()
    return made + (h * 3).sum(), h.detach()


ONE_GRAPH = [
    detached_in_place,
    truncated,
    gradient,
    perturbed,
    set_as_an_attribute,
    added_up,
    two,
    born_a_leaf,
    born_a_random_leaf,
]


def handed_out(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    net(y).sum().backward()
    return y, y.grad


def born_and_handed_out(net: nn.Module, x: Tensor) -> Any:
    w = torch.ones(x.shape[1], requires_grad=True)
    loss = net(x * w).sum()
    loss.backward()
    return w, w.grad


def born_of_what_is_there(net: nn.Module, x: Tensor) -> Any:
    y = x * 2
    z = torch.asarray(y, requires_grad=True)
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    (net(z).sum() * w).sum().backward()
    return z.grad, w.grad, y.requires_grad, z is y


def detached_behind_a_view(net: nn.Module, x: Tensor) -> Any:
    h = net(x).tanh()
    view = h[0]
    h.detach_()
    return view.requires_grad, h.requires_grad, (view * 2).sum(), h


def detached_as_a_view(net: nn.Module, x: Tensor) -> Any:
    h = net(x).tanh()
    try:
        h[0].detach_()
    except RuntimeError as error:
        return h * 2, str(error)
    return h


def detached_and_handed_out(net: nn.Module, x: Tensor) -> Any:
    h = net(x).tanh()
    made = h.exp() * h
    h.detach_()
    return made, h, (h * net.weight.sum()).sum()


def detached_after_it_was_saved(net: nn.Module, x: Tensor) -> Any:
    h = net(x).tanh()
    made = (h * h).sum()
    h.detach_()
    try:
        made.backward()
    except RuntimeError:
        return "refused"
    return made


def detached_of_others(net: nn.Module, x: Tensor) -> Any:
    x.detach_()
    return net(x), x.requires_grad


def handed_out_unspent(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    return (y * 2).sum(), y


def viewed_before(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone()
    view = y.view(-1)
    y.requires_grad_()
    return view.requires_grad, (y * 2).sum()


def broken(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    print("here")
    (y * 2).sum().backward()
    return y.grad


def cleared(net: nn.Module, x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_()
    net(y).sum().backward()
    y.grad = None
    (y * 3).sum().backward()
    return y.grad


def seeded(program: Callable[[Tensor], Any], x: Tensor) -> Any:
    torch.manual_seed(1)
    return program(x)


def assert_eager_s(program: Program, **options: Any) -> Any:
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    ours, theirs = copy.deepcopy(net), copy.deepcopy(net)
    fast = anyshape.compile(lambda x: program(ours, x), **options)
    for count in (3, 1, 5, 3):
        x = torch.randn(count, 4)
        found, expected = seeded(fast, x), seeded(lambda x: program(theirs, x), x)
        assert_same(found, expected)
        assert_same_parameters(ours, theirs)
    return fast


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda p: p.__name__)
def test_gradients_of_a_leaf_that_is_made_are_part_of_the_graph(program: Program) -> None:
    stats = assert_eager_s(program, fullgraph=True).stats()
    assert not stats.eager_graphs and not stats.internal_errors


@pytest.mark.parametrize(
    "program",
    [
        known_by_two_names,
        handed_out,
        handed_out_unspent,
        viewed_before,
        broken,
        cleared,
        born_and_handed_out,
        born_of_what_is_there,
        detached_and_written,
        detached_behind_a_view,
        detached_as_a_view,
        detached_and_handed_out,
        detached_after_it_was_saved,
        detached_of_others,
    ],
    ids=lambda p: p.__name__,
)
def test_a_leaf_that_others_see_is_eager_s(program: Program) -> None:
    assert assert_eager_s(program).stats().internal_errors == 0
