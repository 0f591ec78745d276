"""What rows that index by masks mean, on eager torch: by the masks, which its formulas keep for
gradients, and not by the positions that were made of them.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def index_at_masks(input: Tensor, positions: Any, masks: Any) -> Tensor:
    return torch.ops.aten.index(input, list(masks))


def put_at_masks(
    input: Tensor, positions: Any, values: Tensor, accumulate: bool, masks: Any
) -> Tensor:
    return torch.ops.aten.index_put(input, list(masks), values, accumulate)


def put_at_masks_(
    input: Tensor, positions: Any, values: Tensor, accumulate: bool, masks: Any
) -> Tensor:
    return torch.ops.aten.index_put_(input, list(masks), values, accumulate)
