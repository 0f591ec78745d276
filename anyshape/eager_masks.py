"""What rows that index by masks mean, on eager torch: by the masks, which its formulas keep for
gradients, and not by the positions that were made of them.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def index_at_masks(input: Tensor, positions: Any, masks: Any) -> Tensor:
    return input[_key(masks)]


def put_at_masks(
    input: Tensor, positions: Any, values: Tensor, accumulate: bool, masks: Any
) -> Tensor:
    made = put_at_masks_(input.clone(), positions, values, accumulate, masks)
    torch._C._autograd._unsafe_set_version_counter((made,), (0,))  # written while it was made
    return made


def put_at_masks_(
    input: Tensor, positions: Any, values: Tensor, accumulate: bool, masks: Any
) -> Tensor:
    if accumulate:
        return input.index_put_(masks, values, accumulate)
    input[_key(masks)] = values
    return input


def _key(masks: Any) -> tuple[Any, ...]:
    return tuple([slice(None) if mask is None else mask for mask in masks])
