"""Python functions of torch in a form that sizes nobody knows can go through.

Each stands in for the function named in `STAND_INS`, is interpreted like a program's own code (see
polyfills.py) and gives what that function gives for plain tensors.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.masked import _ops as masked


def input_mask(input: Any, *args: Any, mask: Any = None, **kwargs: Any) -> Any:
    """The mask in the input's shape: broadcast whether or not it has that shape already."""
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            "input)"
        )
    return torch.broadcast_to(mask, input.shape).to(torch.bool)


def combine_input_and_mask(op: Any, input: Any, mask: Any, *args: Any) -> Any:
    """The input with the operator's identity where the mask is False; makes no class."""
    if mask is None:
        return input
    identity = masked._reduction_identity(op.__name__, input, *args)
    return torch.where(input_mask(input, mask=mask), input, identity)


STAND_INS: Mapping[Any, Callable[..., Any]] = types.MappingProxyType(
    {
        masked._input_mask: input_mask,
        masked._combine_input_and_mask: combine_input_and_mask,
    }
)
