"""Many queries a sequence (prefill, encoders, training): tiles of queries, taken by the programs as
they become free.

A tile has BM rows: queries of one sequence with the G heads that share a key head, so that those
read their keys once. The longest tiles of a causal sequence come first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyshape.attention.triton_plan import (
    PAGE_TABLE,
    TILES,
    count_sequences,
    find,
    keys_of,
    note_faults,
    rows_of,
    total_of,
    zero_tail,
)
from anyshape.attention.triton_tiles import LN2, LOG2E, add_sink, attend_keys, finish, scale_of
from anyshape.kernels.launches import quick


@triton.jit
def range_of(
    first, last, keys, window, BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """Tiles of keys for queries at positions `first` to `last`: (first, first that all see, past
    the last that all see, past the last).
    """
    low = keys * 0
    high = keys
    from_all = keys * 0
    to_all = keys
    if CAUSAL:
        high = tl.minimum(last + 1, keys)
        to_all = tl.minimum(first + 1, keys)
    if WINDOWED:
        low = tl.maximum(first - window + 1, 0)
        from_all = tl.maximum(last - window + 1, 0)
        if not CAUSAL:
            high = tl.minimum(last + window, keys)
            to_all = tl.minimum(first + window, keys)
    low = low // BN
    high = tl.maximum((tl.maximum(high, 0) + BN - 1) // BN, low)
    from_all = tl.minimum(tl.maximum((from_all + BN - 1) // BN, low), high)
    to_all = tl.minimum(tl.maximum(tl.maximum(to_all, 0) // BN, from_all), high)
    return low, from_all, to_all, high


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "pages", "most", "window"])
def tiles_kernel(
    q, k_pages, v_pages, table, starts, lengths, sequences, sinks, k_scale, v_scale,
    out, totals, faults, counter,
    rows, capacity, pages, most, q_token, q_head, k_page, k_row, k_head,
    v_page, v_row, v_head, table_row, out_token, out_head, totals_token, scale, soft_cap, window,
    PAGE: tl.constexpr, G: tl.constexpr, HEADS: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BLOCK_S: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr,
    K_STEP: tl.constexpr, V_STEP: tl.constexpr, GIVEN: tl.constexpr, TAIL: tl.constexpr,
    TOTALS: tl.constexpr, FAULTS: tl.constexpr,
):  # fmt: skip
    """See the module. `most` keys can be there, in pages of PAGE rows or (0) packed."""
    PAGED: tl.constexpr = PAGE > 0
    count = count_sequences(sequences, capacity, GIVEN)
    if FAULTS:
        if tl.program_id(0) == 0:
            note_faults(faults, count, starts, lengths, rows, most, PAGED, False, 0, BLOCK_S)
    if TAIL:
        zero_tail(
            out, totals, count, starts, rows, out_token, out_head, totals_token,
            G * HEADS, DV, BLOCK_DV, TOTALS,
        )  # fmt: skip
    total = total_of(
        count, starts, lengths, rows, most, window,
        TILES, PAGED, G, HEADS, FEW, BM, BN, WINDOWED, 0, 1, BLOCK_S,
    )  # fmt: skip
    index = tl.arange(0, BM)
    d = tl.arange(0, BLOCK_D)
    dv = tl.arange(0, BLOCK_DV)
    bad = tl.zeros([BN], tl.int1)
    at = tl.atomic_add(counter, 1)
    while at < total:
        s, base = find(
            at, count, starts, lengths, rows, most, window,
            TILES, PAGED, G, HEADS, FEW, BM, BN, WINDOWED, 0, 1, BLOCK_S,
        )  # fmt: skip
        start, queries = rows_of(starts, s, True, rows)
        key_first, keys = keys_of(lengths, s, True, most, PAGED)
        tiles = (queries * G + BM - 1) // BM
        tile = tiles - 1 - (at - base) // HEADS
        head = (at - base) % HEADS
        position = tile * BM + index
        query = position // G
        of = head * G + position % G
        real = query < queries
        token = (start + query).to(tl.int64)
        mask = real[:, None]
        if D < BLOCK_D:
            mask = mask & (d < D)[None, :]
        q_at = q + token * q_token + of * q_head
        rows_q = tl.load(q_at[:, None] + d[None, :], mask=mask, other=0.0)
        offset = keys - queries
        first = offset + tile * BM // G
        last = offset + tl.minimum((tile * BM + BM - 1) // G, queries - 1)
        low, from_all, to_all, high = range_of(first, last, keys, window, BN, CAUSAL, WINDOWED)
        position = offset + query
        k_at = k_pages + head.to(tl.int64) * k_head
        v_at = v_pages + head.to(tl.int64) * v_head
        table_at = table + s.to(tl.int64) * table_row
        factor = scale * scale_of(k_scale, head, K_STEP)
        m = tl.full([BM], float("-inf"), tl.float32)
        l = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, BLOCK_DV], tl.float32)
        if WINDOWED:
            acc, m, l, bad = attend_keys(
                acc, m, l, bad, rows_q, low, from_all, key_first, keys, position,
                k_at, v_at, table_at, pages, k_page, k_row, v_page, v_row, factor, soft_cap, window,
                PAGE, BN, D, DV, BLOCK_D, BLOCK_DV, CAUSAL, WINDOWED, CAPPED, True, FAULTS,
            )  # fmt: skip
        acc, m, l, bad = attend_keys(
            acc, m, l, bad, rows_q, from_all, to_all, key_first, keys, position,
            k_at, v_at, table_at, pages, k_page, k_row, v_page, v_row, factor, soft_cap, window,
            PAGE, BN, D, DV, BLOCK_D, BLOCK_DV, CAUSAL, WINDOWED, CAPPED, False, FAULTS,
        )  # fmt: skip
        acc, m, l, bad = attend_keys(
            acc, m, l, bad, rows_q, to_all, high, key_first, keys, position,
            k_at, v_at, table_at, pages, k_page, k_row, v_page, v_row, factor, soft_cap, window,
            PAGE, BN, D, DV, BLOCK_D, BLOCK_DV, CAUSAL, WINDOWED, CAPPED, True, FAULTS,
        )  # fmt: skip
        if SINKS:
            sink = tl.load(sinks + of, mask=real, other=0.0).to(tl.float32) * LOG2E
            acc, m, l = add_sink(acc, m, l, sink)
        out_at = out + token * out_token + of * out_head
        value = finish(acc, l, scale_of(v_scale, head, V_STEP)).to(out.dtype.element_ty)
        tl.store(out_at[:, None] + dv[None, :], value, mask=real[:, None] & (dv < DV)[None, :])
        if TOTALS:
            log = tl.where(l > 0.0, m + tl.log2(l), float("-inf"))
            tl.store(totals + token * totals_token + of, log * LN2, mask=real)
        at = tl.atomic_add(counter, 1)
    if FAULTS:
        if tl.max(bad.to(tl.int32), 0) > 0:
            tl.atomic_or(faults, PAGE_TABLE)
