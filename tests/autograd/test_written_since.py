"""A program that calls ``backward()`` after it has written what a gradient's formula reads: eager
raises, and so does what is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

Step = Callable[[Tensor, Tensor], Tensor]


def written(step: Step) -> Callable[[Tensor, Tensor], None]:
    def program(x: Tensor, w: Tensor) -> None:
        step(x, w).sum().backward()

    return program


def sqrt_then_addmm(x: Tensor, w: Tensor) -> Tensor:
    y = x.sqrt()
    y.addmm_(x, w)
    return y


def exp_then_mul(x: Tensor, w: Tensor) -> Tensor:
    y = x.exp()
    z = y * 2
    y.mul_(w)
    return z + y


def factor_is_written(x: Tensor, w: Tensor) -> Tensor:
    t = x + 1
    y = t * w
    t.add_(1)
    return y + t


def factor_is_written_by_no_grad(x: Tensor, w: Tensor) -> Tensor:
    t = x + 1
    y = t * w
    with torch.no_grad():
        t.zero_()
    return y


def a_view_is_written(x: Tensor, w: Tensor) -> Tensor:
    y = x.sigmoid()
    y[0].mul_(2)
    return y


def softmax_is_written(x: Tensor, w: Tensor) -> Tensor:
    y = (x @ w).softmax(-1)
    y += 1
    return y


def sqrt_in_place_is_written(x: Tensor, w: Tensor) -> Tensor:
    y = x * w
    y.sqrt_()
    y.add_(w)
    return y


def relu_in_place(x: Tensor, w: Tensor) -> Tensor:
    return F.relu(F.linear(x, w), inplace=True)


def batch_norm_then_relu(x: Tensor, w: Tensor) -> Tensor:
    return F.relu_(F.batch_norm(x @ w, None, None, training=True))


def what_nothing_reads(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    y += x
    y *= 2
    return y.exp()


def several_in_place(x: Tensor, w: Tensor) -> Tensor:
    y = x * 2
    y.add_(w).neg_().mul_(w)
    y[1:].sub_(1)
    return y


def written_before(x: Tensor, w: Tensor) -> Tensor:
    t = x * 2
    t.add_(1)
    return t * w


def kron_then_written(x: Tensor, w: Tensor) -> Tensor:
    t = x * 2
    y = torch.kron(w, t[1:])
    t.mul_(2)
    return y


def kron_of_a_constant(x: Tensor, w: Tensor) -> Tensor:
    t = x * 2
    y = torch.kron(w.detach(), t)
    t.mul_(2)
    return y + w.sum()


REFUSED = [
    sqrt_then_addmm,
    exp_then_mul,
    factor_is_written,
    factor_is_written_by_no_grad,
    a_view_is_written,
    softmax_is_written,
    sqrt_in_place_is_written,
]
COMPILED = [
    relu_in_place,
    batch_norm_then_relu,
    what_nothing_reads,
    several_in_place,
    written_before,
    kron_of_a_constant,
]


def leaves(n: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    x, w = torch.rand(n, n), torch.rand(n, n)
    return x.requires_grad_(), w.requires_grad_()


@pytest.mark.parametrize("step", REFUSED)
def test_what_eager_refuses_is_refused(step: Step) -> None:
    program = written(step)
    fast = anyshape.compile(program)
    for n in (3, 5):
        for run in (program, fast):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                run(*leaves(n))


@pytest.mark.parametrize("step", COMPILED)
def test_what_no_formula_reads_may_be_written(step: Step) -> None:
    program = written(step)
    fast = anyshape.compile(program)
    for n in (3, 5):
        ours, theirs = leaves(n), leaves(n)
        fast(*ours)
        program(*theirs)
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.grad, b.grad)
    assert fast.stats().eager_graphs == ()


def test_kron_reads_what_was_written_as_eager_s_formula_does() -> None:
    program = written(kron_then_written)
    fast = anyshape.compile(program)
    for n in (3, 5):
        ours, theirs = leaves(n), leaves(n)
        fast(*ours)
        program(*theirs)
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.grad, b.grad)


def test_a_second_step_may_write_what_the_first_one_has_read() -> None:
    def program(x: Tensor, w: Tensor) -> None:
        for _ in range(2):
            (x * w).sum().backward()
            with torch.no_grad():
                w.sub_(w.grad)

    fast = anyshape.compile(program)
    for n in (3, 5):
        ours, theirs = leaves(n), leaves(n)
        fast(*ours)
        program(*theirs)
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.grad, b.grad)
            torch.testing.assert_close(a, b)
