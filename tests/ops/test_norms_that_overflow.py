"""Norms of float32 whose squares or cubes are past float32: as eager's, but for those that join moments.

Of those eager's own answer depends on where the numbers stand in a row (README, "Known to be wrong"), so there is
nothing to be like.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

LENGTHS = 3, 17, 64, 1000
LARGE = 3e18, 1e19, 1e20, 3e37
NORMS = {
    "of two": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "of three": lambda x: torch.linalg.vector_norm(x, 3, dim=-1),
    "of all": lambda x: torch.linalg.vector_norm(x),
    "a variance": lambda x: x.var(-1),
    "normalized": lambda x: F.normalize(x, dim=-1),
    "by the root of the mean square": lambda x: F.rms_norm(x, x.shape[-1:]),
    "an angle": lambda x: F.cosine_similarity(x, x + 1, dim=-1),
}


def rows(length: int, large: float, *, all_large: bool) -> Tensor:
    x = torch.randn(3, length, generator=torch.Generator().manual_seed(length))
    if all_large:
        return x * large
    x[:, length // 2] = large
    return x


def kinds(x: Tensor) -> list[str]:
    """Of each number: NaN, infinite, zero or else."""
    return ["nan" if v != v else str(v) if v in (0.0, torch.inf) else "finite" for v in x.flatten()]


@pytest.mark.parametrize("name", NORMS)
def test_norms_whose_powers_overflow_are_what_eager_has(name: str) -> None:
    fast = anyshape.compile(NORMS[name])
    for length in LENGTHS:
        for large in LARGE:
            for all_large in (True, False):
                x = rows(length, large, all_large=all_large)
                assert kinds(fast(x)) == kinds(NORMS[name](x)), (length, large, all_large)


def test_eagers_own_layer_norm_depends_on_the_order_there() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    x[0], x[1] = 3e37, -1.5e37
    orders = (torch.randperm(64, generator=torch.Generator().manual_seed(n)) for n in range(200))
    found = {bool(F.layer_norm(x[order], (64,)).isnan().any()) for order in orders}
    assert found == {True, False}
