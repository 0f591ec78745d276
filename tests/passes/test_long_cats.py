"""Joins of many parts: eager's values at every size, and code that does not grow with the parts."""

from __future__ import annotations

import pytest
import torch

import anyshape
from anyshape.costs import COSTS

WIDEST = COSTS.kernel_parts
COUNTS = [WIDEST, WIDEST + 1, 2 * WIDEST + 1, 300]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_many_parts_are_joined_as_eager_joins_them(count: int, dim: int) -> None:
    def join(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parts = [(x + n) if n % 3 else y.flip(0) for n in range(count)]
        return torch.cat(parts, dim) * 2

    fast = anyshape.compile(join, fullgraph=True)
    for rows, columns in [(2, 3), (0, 3), (1, 1), (3, 0), (17, 2)]:
        x, y = torch.randn(rows, columns), torch.randn(rows, columns)
        torch.testing.assert_close(fast(x, y), join(x, y))
    assert fast.stats().specializations == 1


def test_parts_of_several_dtypes_are_rounded_once() -> None:
    def join(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y] * 20 + [z])

    fast = anyshape.compile(join, fullgraph=True)
    x = torch.tensor([2**24 + 1, 257], dtype=torch.int64)
    y, z = torch.randn(3).bfloat16(), torch.randn(4)
    assert torch.equal(fast(x, y, z), join(x, y, z))


def test_empty_vectors_among_many_parts_are_skipped() -> None:
    def join(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros(0), *[x + n for n in range(40)], torch.zeros(0)])

    fast = anyshape.compile(join, fullgraph=True)
    for rows in (0, 1, 3):
        x = torch.randn(rows, 2)
        assert torch.equal(fast(x), join(x))


def reversed_pieces(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    for row in range(lengths.shape[0]):
        pieces = torch.split(x, lengths[row].tolist())
        x = torch.cat([piece.flip(0) for piece in pieces]) * 2 + 1
    return x


def test_the_number_of_kernels_does_not_grow_with_the_parts() -> None:
    kernels = []
    for width in (64, 128):
        lengths = torch.randint(0, 4, (2, width))
        lengths[:, -1] += 4 * width - lengths.sum(1)
        x = torch.randn(4 * width)
        fast = anyshape.compile(reversed_pieces, fullgraph=True)
        assert torch.equal(fast(x, lengths), reversed_pieces(x, lengths))
        other = lengths.flip(1).contiguous()
        assert torch.equal(fast(x, other), reversed_pieces(x, other))
        kernels.append(fast.stats().kernels)
    assert kernels[0] == kernels[1] <= 4
