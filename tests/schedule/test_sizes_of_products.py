"""Loops over sizes of which it is known that a product of them is one of them: most are 0 or 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor], Any]
SHAPES = (1, 1, 1), (4, 1, 1), (1, 1, 4), (0, 3, 2), (1, 3, 3), (2, 3, 6), (6, 2, 3), (3, 2, 3)

KNOWN: dict[str, tuple[Program, Program]] = {
    "all are the first": (
        lambda x: x.numel() == x.shape[0],
        lambda x: x * x.flatten()[:, None, None],
    ),
    "all are the last": (lambda x: x.numel() == x.shape[2], lambda x: x * x.flatten()),
    "all are the second": (
        lambda x: x.numel() == x.shape[1],
        lambda x: x.mT.contiguous() * x.flatten(),
    ),
    "the first two are the last": (
        lambda x: x.shape[0] * x.shape[1] == x.shape[2],
        lambda x: x * x[:, :, 0].flatten(),
    ),
    "the last two are the first": (
        lambda x: x.shape[1] * x.shape[2] == x.shape[0],
        lambda x: x * x[0].flatten()[:, None, None] if x.shape[0] else x,
    ),
    "two are one": (
        lambda x: x.shape[0] * x.shape[1] == x.shape[1],
        lambda x: x.flatten(0, 1) * x[0] if x.shape[0] else x,
    ),
    "two products": (
        lambda x: x.shape[0] * x.shape[1] == x.shape[1] * x.shape[2],
        lambda x: x.flatten(0, 1)[:, None] * x.flatten(1).T[..., None],
    ),
}
"""What is known, and what is multiplied then that has the same size in two ways."""

PROGRAMS: dict[str, Program] = {
    "products": lambda x: x,
    "all summed": lambda x: x.sum(),
    "rows summed": lambda x: x.sum(-1),
    "columns summed": lambda x: x.sum(0),
    "scan": lambda x: x.cumsum(0),
    "softmax": lambda x: x.softmax(-1).sum(),
    "turned": lambda x: (x.transpose(0, -1) * 2).flatten().cumsum(0),
    "joined": lambda x: torch.cat([x.flatten(), x.transpose(0, -1).flatten()]).sum(),
    "two readers": lambda x: (x.sum(), x * 2, (x.flatten() * 2).cumsum(0)),
    "written": lambda x: x.clone().flatten(1).mul_(2).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("known", KNOWN)
def test_loops_over_what_is_known_of_products(known: str, name: str) -> None:
    holds, product = KNOWN[known]

    def program(x: Tensor) -> Any:
        return PROGRAMS[name](product(x)) if holds(x) else None

    fast = anyshape.compile(program)
    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(fast(x), program(x), rtol=1e-5, atol=1e-5)
    assert fast.stats().internal_errors == 0


def test_a_mask_of_all_elements_along_the_first_dimension() -> None:
    def program(x: Tensor) -> Tensor:
        x[None, x.flatten() > 0] = 0
        return x.sum()

    fast = anyshape.compile(program)
    for rows in (1, 0, 1):
        x = torch.ones(rows, rows, rows)
        other = x.clone()
        assert torch.equal(fast(x), program(other))
        assert torch.equal(x, other)
    assert fast.stats().internal_errors == 0
