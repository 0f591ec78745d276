"""Infinities, NaN and numbers whose squares or sums do not fit, through norms, statistics and exponentials.

The rule: NaN and infinities lie where eager's lie, or where those of float64 do (a result that float64
finds finite and eager does not is eager's own rounding); finite values are no further from float64 than
`accuracy` allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

OPERATORS: dict[str, Callable[[Tensor], Any]] = {
    "var_mean": lambda x: torch.var_mean(x, 1),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "var_mean of columns": lambda x: torch.var_mean(x, 0),
    "var_mean of all": lambda x: torch.var_mean(x),
    "std_mean of all": lambda x: torch.std_mean(x),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(1),
    "norm": lambda x: x.norm(dim=1),
    "norm of columns": lambda x: x.norm(dim=0),
    "norm of all": lambda x: x.norm(),
    "1-norm": lambda x: x.norm(1, dim=1),
    "3-norm": lambda x: x.norm(3, dim=1),
    "half norm": lambda x: x.norm(0.5, dim=1),
    "largest": lambda x: x.norm(math.inf, dim=1),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, 2, 1, True),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(0), dim=1),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.flip(0)),
    "cov": torch.cov,
    "corrcoef": torch.corrcoef,
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "mean": lambda x: x.mean(1),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cross_entropy": lambda x: F.cross_entropy(x, x.new_zeros(x.shape[0], dtype=torch.int64)),
    "batch_norm": lambda x: F.batch_norm(x, x[0] * 0 + 1, x[0] * 0 + 2),
}
SHAPES = ((2, 3), (1, 1), (3, 1), (1, 5), (5, 37), (4, 1030))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def contents(shape: tuple[int, int], dtype: torch.dtype) -> Iterator[Tensor]:
    normal = torch.randn(shape, dtype=torch.float64)
    for scale in (1e19, 1e25, 1e-30, 1e-42, 0.0):
        yield normal * scale
    if dtype is torch.float32:  # in smaller ones nothing of the differences is left
        yield normal + 1e3
        yield normal + 1e7
    for value in (math.inf, -math.inf, math.nan, 6e4, 3e38):
        yield torch.full(shape, value, dtype=torch.float64)
        mixed = normal.clone()
        mixed.view(-1)[:: shape[1]] = value  # the first of each row
        yield mixed
    both = normal.clone()
    both.view(-1)[::3] = math.inf
    both.view(-1)[1::3] = -math.inf
    yield both


def kinds(x: Tensor) -> Tensor:
    """0 for a finite element, another number for each of NaN and the infinities."""
    return x.isnan() * 1 + (x == math.inf) * 2 + (x == -math.inf) * 3


def assert_as_good(ours: Tensor, eager: Tensor, wide: Tensor) -> None:
    exact = wide.to(eager.dtype)
    found = kinds(ours)
    assert bool(((found == kinds(eager)) | (found == kinds(exact))).all()), (ours, eager, exact)
    finite = (found == 0) & (kinds(eager) == 0) & (kinds(exact) == 0)
    mine, theirs, truth = (x[finite].double() for x in (ours, eager, wide))
    rounding = (
        torch.finfo(eager.dtype).eps * truth.norm() + torch.finfo(eager.dtype).smallest_normal
    )
    assert (mine - truth).norm() <= 2 * (theirs - truth).norm() + 4 * rounding, (ours, eager, exact)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_special_values_give_what_eager_gives(name: str, dtype: torch.dtype) -> None:
    program = OPERATORS[name]
    fast = anyshape.compile(program)
    torch.manual_seed(0)
    for shape in SHAPES:
        for content in contents(shape, dtype):
            x = content.to(dtype)
            results = (fast(x), program(x), program(x.double()))
            parts = ((r,) if isinstance(r, Tensor) else r for r in results)
            for ours, eager, wide in zip(*parts, strict=True):
                assert_as_good(ours, eager, wide)
