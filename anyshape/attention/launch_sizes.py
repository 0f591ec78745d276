"""How large the pieces are that a launch works in: found by measuring on an H200
(benchmarks/attention.py), and only from what the host knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyshape.kernels.launches import power_of_two

# Queries with the heads of a group: how many rows a product of a few queries may have.
MOST_ROWS = 64
FEW_ROWS = 16
# Pieces of a sequence where results may not depend on the other sequences.
INVARIANT_SPLITS = 16
MOST_SEQUENCES_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of queries, keys at a time, warps, stages of loads, programs a multiprocessor, and the
    least tiles of keys that are worth a piece of their own.
    """

    bm: int
    bn: int
    warps: int
    stages: int
    programs: int = 1
    min_tiles: int = 1


def split_blocks(rows: int, size: int, dtype: torch.dtype, pages: torch.dtype) -> Blocks:
    """For up to `rows` rows of queries, split along keys."""
    bm = max(16, power_of_two(rows))
    if dtype.itemsize > 2:
        return Blocks(bm, 32, 4, 2, 2)
    if size > 128:
        return Blocks(bm, 32 if pages.itemsize > 1 else 64, 4, 3, 2, 2)
    return Blocks(bm, 64 if pages.itemsize > 1 else 128, 4, 3, 2, 2)


def tile_blocks(size: int, dtype: torch.dtype) -> Blocks:
    """For tiles of many queries."""
    if dtype.itemsize > 2:
        return Blocks(32, 32, 4, 2, 2)
    if size > 128:
        return Blocks(128, 64, 8, 2, 1)
    return Blocks(128, 128, 8, 2, 1)


def parts_of(group: int) -> int:
    """Into how many equal parts the heads of a group go, so that a part fits a product's rows."""
    return next(n for n in range(1, group + 1) if group % n == 0 and group // n <= MOST_ROWS)


def few_queries(part: int, max_queries: int) -> tuple[int, bool]:
    """(up to how many queries a sequence's keys are split, whether none has more), for parts of
    `part` heads. It depends on no sequence, so neither does how a sequence is treated.
    """
    if 0 < max_queries * part <= MOST_ROWS:
        return max_queries, True
    return max(1, FEW_ROWS // part), False


def block_of(capacity: int) -> int:
    """How many sequences are looked at together."""
    return min(MOST_SEQUENCES_AT_ONCE, power_of_two(max(1, capacity)))


def step_of(scale: Tensor | None) -> int:
    """From one key head's scale to the next: -1 without scales."""
    if scale is None:
        return -1
    return 0 if scale.numel() == 1 else 1


def backward_blocks(size: int, dtype: torch.dtype) -> tuple[Blocks, Blocks]:
    """For the gradients of queries, and of keys and values."""
    if dtype.itemsize > 2:
        return Blocks(32, 32, 4, 1, 2), Blocks(32, 32, 4, 1, 2)
    if size > 128:
        return Blocks(64, 32, 4, 1, 1), Blocks(32, 64, 4, 1, 1)
    return Blocks(128, 64, 8, 3, 1), Blocks(64, 128, 8, 3, 1)
