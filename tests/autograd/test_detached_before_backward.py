"""`detach_()` of a result between a call and its gradients: refused where a formula of eager's keeps
that result, and given where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def kept_by_a_sine(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x * 2
    return h, h.sin() * w


def kept_by_a_product(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x.tanh()
    return h, h * w


def kept_by_nothing(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x * w
    return h, h * 2


def kept_by_its_own_formula(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x.exp()
    return h, h + w


PROGRAMS = [kept_by_a_sine, kept_by_a_product, kept_by_nothing, kept_by_its_own_formula]


def outcome(run: Program, rows: int, when: str, of_result: bool) -> Any:
    """The gradients, and those of their squares; or that they are refused."""
    torch.manual_seed(rows)
    x, w = (torch.randn(rows, 3, requires_grad=True) for _ in range(2))
    h, made = run(x, w)
    ends = [x, w, h] if of_result else [x, w]
    found: list[Any] = []
    try:
        if when == "before":
            h.detach_()
        if when == "alone":
            h.detach_()
            return torch.autograd.grad(made.sum(), [x, w], allow_unused=True)
        first = torch.autograd.grad(made.sum(), ends, create_graph=True, allow_unused=True)
        found += [None if g is None else g.detach() for g in first]
        if when == "between":
            h.detach_()
        total = sum(g.square().sum() for g in first if g is not None)
        found += torch.autograd.grad(total, [x, w], allow_unused=True, retain_graph=True)
        if when == "later":
            h.detach_()
        found += torch.autograd.grad(total, [x, w], allow_unused=True)
    except RuntimeError as error:
        assert "detached in-place" in str(error), error
        return "refused"
    return found


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("when", ["alone", "before", "between", "later"])
def test_detached_results_are_refused_as_in_eager_torch(program: Program, when: str) -> None:
    for of_result in (False, True) if when in ("between", "later") else (False,):
        fast = anyshape.compile(program, fullgraph=True)
        for rows in (3, 1, 0, 4):
            ours, theirs = (outcome(run, rows, when, of_result) for run in (fast, program))
            assert isinstance(ours, str) == isinstance(theirs, str), (ours, theirs)
            if not isinstance(ours, str):
                for a, b in zip(ours, theirs, strict=True):
                    assert (a is None) == (b is None)
                    assert a is None or torch.allclose(a, b)
        assert not fast.stats().eager_graphs
