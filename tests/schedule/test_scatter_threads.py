"""Scatters with indices that repeat give one result, however many threads run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import anyshape

ROWS, COLUMNS, POSITIONS = 301, 257, 13


def set_rows(x: Tensor, at: Tensor) -> Tensor:
    return torch.zeros(POSITIONS, COLUMNS).index_copy(0, at, x)


def add_rows(x: Tensor, at: Tensor) -> Tensor:
    return torch.zeros(POSITIONS, COLUMNS).index_add(0, at, x * 2)


def scatter_add(x: Tensor, at: Tensor) -> Tensor:
    return torch.zeros(POSITIONS, COLUMNS).scatter_add(0, at[:, None].expand(x.shape), x + 1)


def largest(x: Tensor, at: Tensor) -> Tensor:
    positions = at[:, None].expand(x.shape)
    return torch.zeros(POSITIONS, COLUMNS).scatter_reduce(0, positions, x, "amax")


def product(x: Tensor, at: Tensor) -> Tensor:
    positions = at[:, None].expand(x.shape)
    return torch.ones(POSITIONS, COLUMNS).scatter_reduce(0, positions, x.sign() + 2, "prod")


def put(x: Tensor, at: Tensor) -> Tensor:
    return torch.zeros(POSITIONS, COLUMNS).index_put((at,), x, accumulate=True)


def put_in_place(x: Tensor, at: Tensor) -> Tensor:
    made = x.new_zeros(POSITIONS, COLUMNS)
    made[at] += x[0]
    made.index_add_(0, at, x)
    return made


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "function", [set_rows, add_rows, scatter_add, largest, product, put, put_in_place]
)
def test_two_threads_scatter_as_one_does(
    function: Callable[[Tensor, Tensor], Tensor], threads: Callable[[int], None]
) -> None:
    fast = anyshape.compile(function, fullgraph=True)
    for rows in (0, 1, ROWS):
        x, at = torch.randn(rows + 1, COLUMNS)[:rows], torch.randint(0, POSITIONS, (rows,))
        if function is put_in_place and rows == 0:
            continue
        if function is set_rows:  # eager: which of those that meet stays is not said
            at, x = torch.randperm(POSITIONS)[:rows], x[:POSITIONS]
        found = []
        for count in (1, 2, 2):
            threads(count)
            found.append(fast(x, at))
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
        torch.testing.assert_close(found[0], function(x, at), rtol=1e-4, atol=1e-4)
