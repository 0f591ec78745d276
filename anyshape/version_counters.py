"""Version counters of tensors, by which autograd sees that what it has saved was written."""

from __future__ import annotations

import torch


def move_version(tensor: torch.Tensor, times: int) -> None:
    """Counts writes that were done as one."""
    if not tensor.is_inference():
        set_version(tensor, tensor._version + times)


def version_of(tensor: torch.Tensor) -> int:
    """How often the tensor was written, -1 where nobody counts."""
    return -1 if tensor.is_inference() else tensor._version


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Says how often the tensor was written; inference tensors do not count."""
    if not tensor.is_inference():
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
