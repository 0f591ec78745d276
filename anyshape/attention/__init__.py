"""Attention over sequences of different lengths, usable with plain PyTorch: no compiler of ours is
needed.

Keys and values lie in pages (`ragged_paged_attention`, `write_pages`, `PagedCache`) or packed
(`ragged_attention`, with gradients). No length ever goes to the host, so that one CUDA graph serves
any number of sequences of any lengths.
"""

from __future__ import annotations

from anyshape.attention.cache import Batch, PagedCache
from anyshape.attention.faults import check_faults, new_faults
from anyshape.attention.packed import ragged_attention
from anyshape.attention.paged import ragged_paged_attention, write_pages

__all__ = [
    "Batch",
    "PagedCache",
    "check_faults",
    "new_faults",
    "ragged_attention",
    "ragged_paged_attention",
    "write_pages",
]
