"""What rows of norms mean, on eager torch, where they say more than torch's own call. Rows name
these functions by their dotted names, as those of ``eager.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def batch_norm_of_nothing(*args: Any, **kwargs: Any) -> Tensor:
    return F.batch_norm(*args, **kwargs)


def batch_norm_training(*args: Any, **kwargs: Any) -> Tensor:
    return F.batch_norm(*args, **kwargs)


def instance_norm_training(*args: Any, **kwargs: Any) -> Tensor:
    return F.instance_norm(*args, **kwargs)


def _moved(norm: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """A norm that writes no running statistics: as they are afterwards they come after the
    result."""

    def moved(
        input: Tensor, mean: Tensor, var: Tensor, *rest: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, var = mean.clone(), var.clone()
        return norm(input, mean, var, *rest), mean, var

    return moved


batch_norm_moved = _moved(F.batch_norm)
instance_norm_moved = _moved(F.instance_norm)


LIMITS = {torch.float32: 1e37, torch.float64: 1e307}


def moment(
    input: Tensor,
    dims: tuple[int, ...],
    keepdim: bool,
    mean: Tensor,
    squares: Tensor | None = None,
    *,
    order: str,
    part: str,
) -> Tensor:
    """What is given of a moment; of rows near whose moments squares overflow, what ATen's own
    kernel has (``ir/loops.py`` says what the orders are)."""
    limit = LIMITS[input.dtype]
    given = mean if part == "mean" else squares
    fits = mean * mean < limit
    if squares is not None:
        fits &= squares < limit
    assert given is not None and keepdim
    if fits.all():
        return given
    kept = [d for d in range(input.dim()) if d not in dims]
    rows = input.permute(*kept, *dims).reshape(mean.numel(), -1)
    return torch.where(fits, given, _summed_again(rows, order, part).reshape(given.shape))


def _summed_again(rows: Tensor, order: str, part: str) -> Tensor:
    """A moment of each row of a matrix, in the order that is asked for."""
    count, dtype = rows.shape[1], rows.dtype
    if order == "double":
        return rows.double().mean(1).to(dtype)
    if order == "single":
        return sum(rows.unbind(1), rows.new_zeros(len(rows))) / count
    if order == "raw":
        mean = rows.mean(1)
        return mean if part == "mean" else (rows.square().mean(1) - mean * mean).clamp(0) * count
    ones, zeros = rows.new_ones(count), rows.new_zeros(count)
    if order == "joined_halves":
        rows = rows.bfloat16()
    _, mean, factor = torch.native_layer_norm(rows, (count,), ones, zeros, 0.0)
    return (mean if part == "mean" else count / factor.square()).to(dtype)
