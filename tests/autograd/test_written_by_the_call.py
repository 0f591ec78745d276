"""A compiled call writes what was handed in (a running scale) and reads it: what becomes of that
memory before the backward is refused where eager refuses it, by a write, by a second call, and by
`x.data = new` where eager's formula would read the new values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

pytestmark = pytest.mark.usefixtures("doubles")

Program = Callable[[Tensor, Tensor], Tensor]


def read_behind_the_write(x: Tensor, b: Tensor) -> Tensor:
    b.mul_(2)
    return (x * b).sin()


def read_as_a_view(x: Tensor, b: Tensor) -> Tensor:
    b.add_(1)
    return (x * b[None]).sin()


def read_by_a_product(x: Tensor, b: Tensor) -> Tensor:
    b.mul_(2)
    return (x @ torch.eye(4) @ b.unsqueeze(1)).exp()


def made_into_something_else(x: Tensor, b: Tensor) -> Tensor:
    """Eager's formula keeps the exponential."""
    b.mul_(2)
    return (x * b.exp()).sin()


def running_scale(x: Tensor, b: Tensor) -> Tensor:
    b.mul_(0.9).add_(x.detach().abs().mean(0) * 0.1)
    return (x / (b + 1e-3)).tanh()


def not_kept(x: Tensor, b: Tensor) -> Tensor:
    b.mul_(2)
    return (x + b).sin()


PROGRAMS = [
    *(read_behind_the_write, read_as_a_view, read_by_a_product, made_into_something_else),
    *(running_scale, not_kept),
]
CHANGES: dict[str, Callable[[Program, Tensor, Tensor], Any]] = {
    "nothing": lambda run, x, b: None,
    "a write": lambda run, x, b: b.add_(1),
    "zeros": lambda run, x, b: b.zero_(),
    "a second call": lambda run, x, b: run(x, b),
}


def outcome(run: Program, change: str, twice: bool, rows: int) -> Tensor | None:
    """The gradient; None where it is refused."""
    torch.manual_seed(rows)
    x, b = torch.randn(rows, 4, requires_grad=True), torch.rand(4) + 0.5
    made = run(x, b)
    CHANGES[change](run, x, b)
    try:
        (gradient,) = torch.autograd.grad(made.sum(), x, create_graph=twice)
        if twice:
            (gradient,) = torch.autograd.grad(gradient.sin().sum(), x)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return None
    return gradient


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_becomes_of_it_is_refused_as_in_eager_torch(program: Program, twice: bool) -> None:
    if twice and program is not_kept:
        return  # nothing of the gradient is differentiable
    fast = anyshape.compile(program, fullgraph=True)
    for change in CHANGES:
        for rows in (3, 1, 5):
            ours, theirs = (outcome(run, change, twice, rows) for run in (fast, program))
            assert (ours is None) == (theirs is None), change
            if ours is not None and theirs is not None:
                torch.testing.assert_close(ours, theirs)
    assert not fast.stats().eager_graphs  # type: ignore[attr-defined]


def test_other_data_that_a_formula_would_read_are_refused() -> None:
    fast = anyshape.compile(read_behind_the_write, fullgraph=True)
    x, b = torch.randn(3, 4, requires_grad=True), torch.rand(4)
    made = fast(x, b)
    b.data = torch.ones(4)
    with pytest.raises(RuntimeError, match="replaced"):
        made.sum().backward()


def writes_what_is_kept(x: Tensor, b: Tensor) -> Tensor:
    h = x * 2
    made = h.sin() + b
    h.add_(1)
    return made


def test_a_write_of_the_graphs_own_is_refused_though_an_input_was_written_since() -> None:
    fast = anyshape.compile(writes_what_is_kept)
    for rows, change in ((3, "a write"), (3, "nothing"), (5, "zeros")):
        for run in (fast, writes_what_is_kept):
            assert outcome(run, change, False, rows) is None
