"""`requires_grad` of what a program makes and writes is eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.capture.by_reference import compiled


def set_row(x: Tensor) -> Tensor:
    y = torch.zeros(3, 4)
    y[0] = x[1]
    return y


def overwritten(x: Tensor) -> Tensor:
    y = x.clone()
    y[...] = 1.0
    return y


MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "zeros_like": lambda x: torch.zeros_like(x),
    "rand_like": lambda x: torch.rand_like(x),
    "new_zeros": lambda x: x.new_zeros(2),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "sign": lambda x: x.sign(),
    "float": lambda x: (x > 0).float(),
    "histc": lambda x: torch.histc(x, 4),
    "multiply": lambda x: x * 2,
    "in place": lambda x: torch.zeros(3, 4).add_(x),
    "copied": lambda x: torch.zeros(3, 4).copy_(x),
    "row": set_row,
    "overwritten": overwritten,
    "view": lambda x: x.view(-1),
    "selected": lambda x: x[0],
    "transposed": lambda x: x.t(),
    "cast": lambda x: x.to(torch.float64),
    "the same": lambda x: x.float(),
}


@pytest.mark.parametrize("name", MADE)
def test_requires_grad_is_eagers_in_every_mode(name: str) -> None:
    make = MADE[name]

    def program(x: Tensor) -> tuple[Any, ...]:
        y = make(x)
        with torch.no_grad():
            z = make(x)
            w = z * 2
        return tuple((t.requires_grad, t, (t + 1).requires_grad) for t in (y, z, w))

    for needed in (True, False):
        x = torch.rand(3, 4).requires_grad_(needed)
        for found, expected in zip(compiled(program)(x), program(x), strict=True):
            assert (found[0], found[2]) == (expected[0], expected[2])
            assert found[1].requires_grad == expected[1].requires_grad


def views(x: Tensor) -> tuple[Tensor, ...]:
    detached = x.detach()
    return detached, detached, detached[1:], x.data.view(-1), x[1:], x.view(-1), x.T, x, x * 2


@pytest.mark.parametrize("leaf", [True, False])
def test_where_gradients_are_off_views_require_them_as_their_base_but_for_detached_ones(
    leaf: bool,
) -> None:
    x = torch.rand(3, 4, requires_grad=True)
    given = x if leaf else x * 2
    fast = anyshape.compile(views)
    with torch.no_grad():
        ours, theirs = fast(given), views(given)
    assert [t.requires_grad for t in ours] == [t.requires_grad for t in theirs]
    assert [t.data_ptr() for t in ours[:-1]] == [t.data_ptr() for t in theirs[:-1]]
    assert ours[0] is ours[1] and ours[7] is given


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_what_is_written_with_gradients_is_no_base_of_other_results(order: tuple[int, ...]) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        h = x * 2
        made = h.view(-1), h[1], h.detach()
        return made[order[0]], made[order[1]], made[order[2]]

    weight = torch.full((), 3.0, requires_grad=True)
    fast, found = anyshape.compile(program, fullgraph=True), []
    for run in (fast, program):
        with torch.no_grad():
            results = run(torch.ones(3, 4, requires_grad=True))
        results[order.index(2)].mul_(weight)
        found.append([(type(t.grad_fn), t._version, t.tolist()) for t in results])
    assert found[0] == found[1]


def test_a_gradient_of_what_was_detached_is_taken_natively() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((y * 3).sum(), y)
        return gradient

    fast = compiled(program, fullgraph=False)
    for count in (3, 1, 0):
        x = torch.ones(count, requires_grad=True)
        assert torch.equal(fast(x), program(x))


def test_functions_that_know_each_other_survive_a_break() -> None:
    def program(x: Tensor) -> list[Tensor]:
        functions: list[Any] = []
        for i in range(3):

            def scaled(v: Tensor, i: int = i, known: Any = functions) -> Tensor:
                return v * i + len(functions) + len(known)

            functions.append(scaled)
            if i == 1:
                x.sum().numpy()
        return [f(x) for f in functions]

    fast = compiled(program, fullgraph=False)
    for count in (3, 1, 0, 2):
        x = torch.ones(count)
        assert all(map(torch.equal, fast(x), program(x)))
