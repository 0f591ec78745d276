"""Products of matrices whose rows overlap in memory, which BLAS has no leading dimension for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anyshape

Tensor = torch.Tensor

PROGRAMS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "on the left": lambda x, n: x.unfold(-1, 3, 1) @ torch.ones(3, 5),
    "on the right": lambda x, n: torch.ones(5, 3) @ x.unfold(-1, 3, 1).mT,
    "on both sides": lambda x, n: x.unfold(-1, 2, 1) @ x.unfold(-1, 2, 1).mT,
    "columns": lambda x, n: x.unfold(-1, 3, 2).mT @ x.unfold(-1, 3, 2),
    "rows at a distance that varies": lambda x, n: x.unfold(-1, 3, n) @ torch.ones(3, 16),
    "rows as long as varies": lambda x, n: x.unfold(-1, n, 2) @ torch.ones(n, 4),
    "by addmm": lambda x, n: torch.addmm(torch.ones(4), x.unfold(-1, 3, 1), torch.ones(3, 4)),
    "by linear": lambda x, n: torch.nn.functional.linear(x.unfold(-1, 3, 1), torch.ones(4, 3)),
    "strided as given": lambda x, n: x.as_strided((4, 3), (n, 1)) @ torch.ones(3, 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_eagers_whether_rows_overlap_or_not(name: str) -> None:
    def program(x: Tensor, n: int) -> Tensor:
        y = PROGRAMS[name](x * 2, n) + 1
        return y.mT @ y

    fast = anyshape.compile(program)
    for size in (16, 15, 18):
        for n in (3, 1, 2, 4):
            x = torch.arange(float(size))
            assert torch.equal(fast(x, n), program(x, n)), (size, n)
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("first", ("stepped", "expanded"))
def test_a_gradient_whose_stride_differs_from_call_to_call(first: str) -> None:
    """A step of 0 came where one of 3 was expected: the backward half refused it."""
    layouts = {
        "stepped": torch.arange(12.0)[1::3],
        "expanded": torch.tensor([2.0]).expand(4),
        "plain": torch.arange(4.0),
    }

    def program(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    fast = anyshape.compile(program)
    for name in (first, *layouts):
        y = layouts[name].detach().requires_grad_()
        grads = []
        for function in (fast, program):
            x = torch.ones(4, 4, requires_grad=True)
            total = (function(x, y) * torch.arange(4.0)).sum()
            grads.append(torch.autograd.grad(total, (x, y)))
        assert all(map(torch.equal, *grads)), name
    assert fast.stats().internal_errors == 0
