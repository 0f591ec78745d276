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
