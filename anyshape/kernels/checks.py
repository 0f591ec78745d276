"""What the kernels ask of their arguments; every error names the argument and says what it should
have been.

Only shapes, dtypes and devices are looked at: no check reads a value from the device.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

INDEX_DTYPES = (torch.int32, torch.int64)
FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FP8 = torch.float8_e4m3fn


def fail(argument: str, expected: str, got: object) -> None:
    """Raise the one kind of error that this package has for bad arguments."""
    raise ValueError(f"{argument} must be {expected}, got {got}")


def check_tensor(argument: str, value: Tensor, ndim: int, dtypes: Collection[torch.dtype]) -> None:
    """A tensor with `ndim` dimensions and one of the `dtypes`."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{argument} must be a tensor, got {type(value).__name__}")
    if value.dim() != ndim:
        fail(argument, f"{ndim}-dimensional", f"shape {tuple(value.shape)}")
    if value.dtype not in dtypes:
        fail(argument, "of dtype " + " or ".join(str(dtype) for dtype in dtypes), value.dtype)


def check_size(argument: str, value: Tensor, dim: int, size: int, of: str) -> None:
    """`value.shape[dim]` is `size`, the size that `of` names."""
    if value.shape[dim] != size:
        fail(argument, f"of size {size} in dimension {dim} ({of})", f"shape {tuple(value.shape)}")


def check_vector(
    argument: str,
    value: Tensor,
    size: int,
    of: str,
    dtypes: Collection[torch.dtype] = INDEX_DTYPES,
) -> None:
    """A one-dimensional tensor of `size` elements."""
    check_tensor(argument, value, 1, dtypes)
    check_size(argument, value, 0, size, of)


def check_device(argument: str, value: Tensor, like: Tensor) -> None:
    """`value` lies where `like` lies."""
    if value.device != like.device:
        fail(argument, f"on {like.device}", value.device)


def check_valid(argument: str, valid: Tensor | None, like: Tensor) -> None:
    """A count on the device, or several whose sum is the count; None when every row counts."""
    if valid is None:
        return
    if not isinstance(valid, Tensor):
        raise TypeError(f"{argument} must be a tensor on the device, got {type(valid).__name__}")
    if valid.dtype not in INDEX_DTYPES:
        fail(argument, "of dtype torch.int32 or torch.int64", valid.dtype)
    if valid.dim() > 1:
        fail(argument, "a single number or a vector of counts", f"shape {tuple(valid.shape)}")
    check_device(argument, valid, like)


def check_choice(argument: str, value: str, choices: Collection[str]) -> None:
    """One of the names in `choices`."""
    if value not in choices:
        fail(argument, "one of " + ", ".join(repr(choice) for choice in choices), repr(value))


def check_range(argument: str, value: int, low: int, high: int, why: str) -> None:
    """`low <= value <= high`."""
    if value < low or value > high:
        fail(argument, f"from {low} to {high} ({why})", value)
