"""What a side of a branch on data writes, which a gradient may be made of: eager refuses that
gradient in those calls alone in which the side is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor, Tensor], Any]


def of_a_number(x: Tensor, w: Tensor, flags: Tensor) -> Tensor:
    made = x * 1
    product = made * w
    if float(flags.sum()) > 1:
        made.add_(3)
    return product


def of_a_size(x: Tensor, w: Tensor, flags: Tensor) -> Tensor:
    made = x * 1
    product = made * w
    if flags[flags > 0].shape[0] > 2:
        made.add_(3)
    return product


def through_a_view(x: Tensor, w: Tensor, flags: Tensor) -> Tensor:
    made = x * 1
    product = made.view(2, -1).mul(w.view(2, -1))
    if float(flags.sum()) > 1:
        made[1:].zero_()
    return product


def of_a_result(x: Tensor, w: Tensor, flags: Tensor) -> Tensor:
    made = torch.exp(w)
    product = made * 2
    if float(flags.sum()) > 1:
        made.detach().add_(3)
    return product


def of_an_argument(x: Tensor, w: Tensor, flags: Tensor) -> Tensor:
    product = x * w
    if float(flags.sum()) > 1:
        x.add_(3)
    return product


def outcome(program: Program, size: int, *, taken: bool) -> Any:
    x, w = torch.arange(float(size)), torch.ones(size, requires_grad=True)
    flags = torch.full((3,), 2.0 if taken else 0.0)
    try:
        program(x, w, flags).sum().backward()
    except RuntimeError as error:
        return str(error)[:60]
    return w.grad


@pytest.mark.parametrize("first", [True, False], ids=["taken first", "not taken first"])
@pytest.mark.parametrize(
    "program", [of_a_number, of_a_size, through_a_view, of_a_result, of_an_argument]
)
@pytest.mark.filterwarnings("ignore::anyshape.errors.PerformanceWarning")
def test_a_gradient_is_refused_where_the_side_that_writes_is_taken(
    program: Program, first: bool
) -> None:
    fast = anyshape.compile(program)
    for size, taken in ((4, first), (6, not first), (4, not first), (8, first)):
        eager, ours = outcome(program, size, taken=taken), outcome(fast, size, taken=taken)
        assert isinstance(eager, str) is taken
        if taken:
            assert eager == ours
        else:
            assert torch.equal(eager, ours)


def test_what_no_gradient_reads_is_written_without_a_break() -> None:
    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        count = torch.zeros(3)
        loss = (x * w).sum()
        if float(x.sum()) > 1:
            count.add_(1)
        return loss, count

    fast = anyshape.compile(program, fullgraph=True)
    for value in (0.0, 1.0):
        w = torch.ones(4, requires_grad=True)
        loss, count = fast(torch.full((4,), value), w)
        loss.backward()
        assert torch.equal(count, torch.full((3,), value))
        assert w.grad is not None and torch.equal(w.grad, torch.full((4,), value))
    assert fast.stats().joined == 1
