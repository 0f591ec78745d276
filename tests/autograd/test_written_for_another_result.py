"""An argument is written that eager keeps for one result and not for another: the gradient of the
other is given, and right; that of what keeps it is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

Function = Callable[[Tensor], Tensor]

KEEPING: dict[str, Function] = {
    "the largest": lambda x: x.max(),
    "a square": lambda x: x * x,
    "a product": lambda x: x @ x,
    "the result of another": lambda x: x.exp().sin(),
}
FREE: dict[str, Function] = {
    "a sum": lambda x: x + 1,
    "a multiple": lambda x: (x * 2).sum(0),
    "a part": lambda x: x[1:].t() * 3,
    "a scatter": lambda x: x.diagonal_scatter(x.diagonal() * 2),
}
AGAIN: dict[str, Function] = {"an exponential": lambda x: (x * 2).exp()}
"""Its gradient is computed again from the argument where that is saved anyway: refused."""


def _outcome(run: Callable[[Tensor], tuple[Tensor, ...]], size: int, asked: int) -> Tensor | None:
    """The gradient of one result, the argument written since; None where that is refused."""
    x = torch.linspace(0.1, 1, size * size).view(size, size).requires_grad_()
    results = run(x)
    x.detach().add_(1)
    try:
        results[asked].sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return None
    return x.grad


@pytest.mark.parametrize("keeping", KEEPING)
@pytest.mark.parametrize("free", [*FREE, *AGAIN])
def test_what_is_kept_for_one_result_is_not_asked_for_by_another(keeping: str, free: str) -> None:
    pair = KEEPING[keeping], {**FREE, **AGAIN}[free]
    programs: tuple[Callable[[Tensor], tuple[Tensor, ...]], ...] = (
        lambda x: (pair[0](x), pair[1](x)),
        lambda x: (pair[1](x), pair[0](x)),
    )
    for position, program in enumerate(programs):
        fast = anyshape.compile(program)
        for size in (3, 4, 1):
            for asked in range(2):
                ours, theirs = (_outcome(run, size, asked) for run in (fast, program))
                if ours is None:
                    assert theirs is None or (asked != position and free in AGAIN)
                else:
                    assert theirs is not None
                    torch.testing.assert_close(ours, theirs)


def test_a_local_value_behind_a_break_refuses_no_gradient_of_another() -> None:
    def program(x: Tensor) -> Tensor:
        largest = x.max()
        moved = x + 1
        torch.eq(x, x, out=x)
        return moved if largest.dim() == 0 else largest

    fast = anyshape.compile(program)
    for size in (3, 4, 1):
        x = torch.randn(size, size, requires_grad=True)
        fast(x).sum().backward()
        assert x.grad is not None and torch.equal(x.grad, torch.ones(size, size))
