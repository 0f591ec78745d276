"""Launches of attention: which kernels a batch needs, as far as the host can know.

Sequences of a few queries are split along their keys, and those of more are cut into tiles of
queries; both launches go through the same batch, and each leaves to the other what is not its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.attention import gluon_attention, launch_sizes
from anyshape.attention.launch_sizes import Blocks
from anyshape.attention.rules import Rules
from anyshape.attention.triton_combine import combine_kernel
from anyshape.attention.triton_prefill import tiles_kernel
from anyshape.attention.triton_split import split_kernel
from anyshape.kernels.launches import given, power_of_two, processors
from anyshape.kernels.overlap import overlap

COMBINED_AT_ONCE = 1024
LEAST_COLUMNS = 16
# where each sequence is split by itself: that share one's parts, and programs a multiprocessor
SHARES = 4
COMBINING = 16


def ragged_paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    faults: Tensor | None,
    sequences: Tensor | None,
    sinks: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    scale: float,
    causal: bool,
    window: int,
    soft_cap: float,
    max_queries: int,
    batch_invariant: bool,
    zero_tail: bool,
) -> None:
    """See `anyshape.attention.ragged_paged_attention`."""
    if out.numel() == 0:
        return
    if page_table.numel() == 0:
        page_table = page_table.new_zeros(page_table.shape[0], 1)
        lengths = torch.zeros_like(lengths)
    rules = Rules(scale, causal, window, soft_cap)
    part = q.shape[1] // k_pages.shape[2]
    part //= launch_sizes.parts_of(part)
    few, only = launch_sizes.few_queries(part, max_queries)
    if q.shape[0] <= few:
        only = True
    counter = None if only else torch.empty(1, dtype=torch.int32, device=q.device)
    side = (sinks, k_scale, v_scale, sequences, faults, counter)
    limit = max_queries if faults is not None and 0 < max_queries <= few else 0
    split(
        *(q, k_pages, v_pages, page_table, starts, lengths, out, rules, few, limit),
        *(batch_invariant, zero_tail, *side),
    )
    if not only:
        tiles(
            *(q, k_pages, v_pages, page_table, starts, lengths, out, None, rules, few, False),
            *(batch_invariant, *side),
        )


def split(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    rules: Rules,
    few: int,
    limit: int,
    batch_invariant: bool,
    zero_tail: bool,
    sinks: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    sequences: Tensor | None,
    faults: Tensor | None,
    counter: Tensor | None = None,
    blocks: Blocks | None = None,
) -> None:
    """Sequences of up to `few` queries; with a `limit`, any with more is a fault. The counter of
    `tiles` is set to 0.
    """
    rows, heads, size = q.shape
    page_size, key_heads, value_size = k_pages.shape[1], k_pages.shape[2], v_pages.shape[3]
    parts = launch_sizes.parts_of(heads // key_heads)
    group, heads = heads // key_heads // parts, key_heads * parts
    plain = k_scale is None and v_scale is None and blocks is None
    operands = (q, k_pages, v_pages, page_table.shape[0], rules, few)
    hopper = plain and gluon_attention.fits_split(*operands)
    if hopper:
        blocks = gluon_attention.split_blocks(size, value_size)
    if blocks is None:
        largest = max(size, value_size)
        blocks = launch_sizes.split_blocks(few * group, largest, q.dtype, k_pages.dtype)
    programs = processors(q.device) * blocks.programs
    splits = launch_sizes.INVARIANT_SPLITS if batch_invariant else 0
    capacity, columns = page_table.shape
    count = capacity * heads * splits if splits else 2 * programs
    slots = torch.empty(count * few * group * value_size, dtype=torch.float32, device=q.device)
    sums = torch.empty(count * few * group * 2, dtype=torch.float32, device=q.device)
    constants = {
        "PAGE": page_size,
        "G": group,
        "HEADS": heads,
        "DV": value_size,
        "BLOCK_DV": max(16, power_of_two(value_size)),
        "FEW": few,
        "BM": blocks.bm,
        "BN": blocks.bn,
        "BLOCK_S": launch_sizes.block_of(capacity),
        "PROGRAMS": programs,
        "MIN_TILES": blocks.min_tiles,
        "SPLITS": splits,
        "WINDOWED": rules.window > 0,
        "SINKS": sinks is not None,
        "GIVEN": sequences is not None,
        **overlap(q),
    }
    if hopper:
        gluon_attention.split(
            *(q, k_pages, v_pages, page_table, starts, lengths, out, slots, sums, rules, few),
            *(limit, splits, programs, zero_tail, sinks, sequences, faults, counter, blocks),
        )
    else:
        split_kernel[(programs,)](
            *(q, k_pages, v_pages, page_table, starts, lengths),
            *given(starts, sequences, sinks, k_scale, v_scale),
            *(out, *given(starts, faults), slots, sums, *given(starts, counter)),
            *(rows, capacity, k_pages.shape[0], columns, *q.stride()[:2]),
            *(
                *k_pages.stride()[:3],
                *v_pages.stride()[:3],
                page_table.stride(0),
                *out.stride()[:2],
            ),
            *(rules.scale, rules.soft_cap, rules.window),
            PARTS=parts,
            D=size,
            BLOCK_D=max(16, power_of_two(size)),
            CAUSAL=rules.causal,
            CAPPED=rules.soft_cap > 0,
            K_STEP=launch_sizes.step_of(k_scale),
            V_STEP=launch_sizes.step_of(v_scale),
            TAIL=zero_tail,
            FAULTS=faults is not None,
            LIMIT=limit,
            COUNTS=counter is not None,
            **constants,
            num_warps=blocks.warps,
            num_stages=blocks.stages,
        )
    items = capacity * heads * SHARES
    combining = min(items, COMBINING * processors(q.device)) if splits else programs - 1
    at_once = min(COMBINED_AT_ONCE // LEAST_COLUMNS, power_of_two(splits or 2**30))
    combine_kernel[(combining,)](
        *(starts, lengths, *given(starts, sequences, sinks), out, slots, sums),
        *(rows, capacity, columns, *out.stride()[:2], rules.window),
        VALUES=COMBINED_AT_ONCE,
        MOST_AT_ONCE=at_once.bit_length() - 1,
        SHARES=SHARES,
        **constants,
        num_warps=1,
        maxnreg=64,
    )


def tiles(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    out: Tensor,
    totals: Tensor | None,
    rules: Rules,
    few: int,
    zero_tail: bool,
    batch_invariant: bool,
    sinks: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    sequences: Tensor | None,
    faults: Tensor | None,
    counter: Tensor | None = None,
    blocks: Blocks | None = None,
) -> None:
    """Sequences of more than `few` queries. Without a page table, k_pages [1, R, KH, D] are packed
    rows, and `lengths` says where each sequence's begin. A `counter` that is given is one that
    `split`, launched just before, has set to 0.
    """
    rows, heads, size = q.shape
    key_heads, value_size = k_pages.shape[2], v_pages.shape[3]
    if blocks is None:
        operands = (q, k_pages, v_pages, starts.shape[0] - 1, rules)
        plain = k_scale is None and v_scale is None
        if plain and gluon_attention.fits_prefill(*operands, paged=page_table is not None):
            gluon_attention.prefill(
                *(q, k_pages, v_pages, page_table, starts, lengths, out, totals, rules, few),
                *(zero_tail, batch_invariant, sinks, sequences, faults, counter),
            )
            return
        blocks = launch_sizes.tile_blocks(max(size, value_size), q.dtype)
    page_size = 0 if page_table is None else k_pages.shape[1]
    most = k_pages.shape[1] if page_table is None else page_table.shape[1] * page_size
    capacity = starts.shape[0] - 1
    tiles_kernel[(processors(q.device) * blocks.programs,)](
        *(q, k_pages, v_pages, *given(starts, page_table), starts, lengths),
        *given(starts, sequences, sinks, k_scale, v_scale),
        *(out, *given(out, totals), *given(starts, faults)),
        torch.zeros(1, dtype=torch.int32, device=q.device) if counter is None else counter,
        *(rows, capacity, k_pages.shape[0], most, *q.stride()[:2]),
        *(*k_pages.stride()[:3], *v_pages.stride()[:3]),
        *(0 if page_table is None else page_table.stride(0), *out.stride()[:2]),
        *(0 if totals is None else totals.stride(0), rules.scale, rules.soft_cap, rules.window),
        PAGE=page_size,
        G=heads // key_heads,
        HEADS=key_heads,
        D=size,
        DV=value_size,
        BLOCK_D=max(16, power_of_two(size)),
        BLOCK_DV=max(16, power_of_two(value_size)),
        FEW=few,
        BM=blocks.bm,
        BN=blocks.bn,
        BLOCK_S=launch_sizes.block_of(capacity),
        CAUSAL=rules.causal,
        WINDOWED=rules.window > 0,
        CAPPED=rules.soft_cap > 0,
        SINKS=sinks is not None,
        K_STEP=launch_sizes.step_of(k_scale),
        V_STEP=launch_sizes.step_of(v_scale),
        GIVEN=sequences is not None,
        TAIL=zero_tail,
        TOTALS=totals is not None,
        FAULTS=faults is not None,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )


def ragged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    sequences: Tensor | None,
    sinks: Tensor | None,
    scale: float,
    causal: bool,
    window: int,
    soft_cap: float,
    batch_invariant: bool,
) -> tuple[Tensor, Tensor]:
    """See `anyshape.attention.ragged_attention`; and the totals [T, H]."""
    out = q.new_empty(*q.shape[:2], v.shape[2])
    totals = q.new_empty(q.shape[:2], dtype=torch.float32)
    if out.numel() == 0:
        return out, totals
    rules = Rules(scale, causal, window, soft_cap)
    tiles(
        *(q, k[None], v[None], None, starts, key_starts, out, totals, rules, 0, True),
        *(batch_invariant, sinks, None, None, sequences, None),
    )
    return out, totals
