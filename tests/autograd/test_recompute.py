"""What the backward part of a whole step computes again: elementwise work and views, never products,
draws or reductions, and only where less is kept so.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from tests.autograd.beside_eager import SIZES, assert_same


def gated(x: Tensor, a: Tensor, b: Tensor) -> None:
    """Of four tensors of the product's size only the two products are to be kept."""
    left, right = x @ a, x @ b
    ((F.silu(left) * right) @ a).sin().sum().backward()


def drawn(x: Tensor, a: Tensor, b: Tensor) -> None:
    (F.dropout(x @ a, 0.5).sin() @ b).exp().sum().backward()


def normed(x: Tensor, a: Tensor, b: Tensor) -> None:
    (F.layer_norm(x @ a, (8,)).tanh() @ b).square().mean().backward()


def written(x: Tensor, a: Tensor, b: Tensor) -> None:
    gated(x, a, b)
    with torch.no_grad():
        a -= 0.1 * a.grad
        b.mul_(0.5)


def residual(x: Tensor, a: Tensor, b: Tensor) -> None:
    for weight in (a, b, a, b):
        x = x + F.layer_norm(x, (8,)).tanh() @ weight
    x.square().mean().backward()


PROGRAMS = (gated, residual, drawn, normed, written)


def leaves(count: int) -> list[Tensor]:
    stream = torch.Generator().manual_seed(count)
    shapes = ((count, 8), (8, 8), (8, 8))
    return [torch.randn(*shape, generator=stream, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_eagers(program: Callable[[Tensor, Tensor, Tensor], None]) -> None:
    fast = anyshape.compile(program)
    for count in SIZES:
        given, expected = leaves(count), leaves(count)
        for run, tensors in ((fast, given), (program, expected)):
            torch.manual_seed(count)
            run(*tensors)
        assert_same([t.grad for t in given], [t.grad for t in expected])
        assert_same([t.detach() for t in given], [t.detach() for t in expected])
    assert (fast.stats().graph_breaks, fast.stats().eager_graphs) == (0, ())


@pytest.mark.parametrize(
    ("program", "op", "times"),
    [
        (gated, "mm", 3 + 6),
        (gated, "silu", 1 + 1),
        (drawn, "dropout_kept", 1),
        (normed, "mm", 2 + 4),
    ],
)
def test_what_is_cheap_is_computed_again(program, op: str, times: int) -> None:
    fast = anyshape.compile(program)
    fast(*leaves(4))
    assert len(re.findall(rf"# {op} :", fast.graphs()[-1])) == times
