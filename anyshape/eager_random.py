"""What rows that draw random numbers mean, on eager torch, where torch has them under other
parameters. Rows name these functions by their dotted names, as those of ``eager.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def randint_like(input: Tensor, low: int, high: Any = None, **options: Any) -> Tensor:
    ends = (low,) if high is None else (low, high)
    return torch.randint_like(input, *ends, **options)


def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None) -> Tensor:
    return torch.bernoulli(input) if p is None else torch.bernoulli(input, p)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
    layout: Any = None,
) -> Tensor:
    return (
        torch.normal(mean, std)
        if size is None
        else torch.normal(mean, std, size, dtype=dtype, device=device)
    )


def rrelu_random(input: Tensor, lower: float, upper: float) -> Tensor:
    return F.rrelu(input, lower, upper, training=True)


random_dropout1d, random_dropout2d, random_dropout3d = F.dropout1d, F.dropout2d, F.dropout3d
random_alpha_dropout, random_feature_alpha_dropout = F.alpha_dropout, F.feature_alpha_dropout


def _drawn(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = (arg for arg in args if arg is not None)
        fresh = torch.empty_like(input)
        if fresh.is_contiguous() and not input.is_contiguous():  # ATen draws in another way there
            fresh = torch.empty_strided(
                input.shape, input.stride(), dtype=input.dtype, device=input.device
            )
        return getattr(fresh, name)(*given, **kwargs)

    return function


def random_(input: Tensor, low: Any = None, high: Any = None, *, generator: Any = None) -> Tensor:
    given = (bound for bound in (low, high) if bound is not None)
    return input.random_(*given, generator=generator)


drawn_normal, drawn_uniform, drawn_bernoulli = (
    _drawn("normal_"),
    _drawn("uniform_"),
    _drawn("bernoulli_"),
)
drawn_exponential, drawn_random = _drawn("exponential_"), _drawn("random_")
