"""The launch behind `triton_split` or `gluon_split`: adds up the slots of what was cut.

It is there before the parts are: one warp a program, small enough to wait beside the first launch,
with everything found out but the sums. What one border between two pieces cuts, the borders that
cut the same sequence and head share among them: each takes slices of its rows and columns.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyshape.attention.triton_plan import (
    SPLIT,
    count_sequences,
    find,
    keys_of,
    rows_of,
    split_of,
    total_of,
)
from anyshape.attention.triton_split import piece_of
from anyshape.attention.triton_tiles import LOG2E
from anyshape.kernels.launches import quick
from anyshape.kernels.overlap import get_ready


@triton.jit
def _cut(
    item, count, starts, lengths, rows, most, window,
    G: tl.constexpr, HEADS: tl.constexpr, FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    WINDOWED: tl.constexpr, SPLITS: tl.constexpr, MIN_TILES: tl.constexpr,
    PROGRAMS: tl.constexpr, BLOCK_S: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    """(first row of q, rows to add up, head, first slot, slots, whose share this is, shares). No
    rows if there is nothing. An item is a border between the pieces of programs `item` and `item` +
    1, or with SPLITS one of SHARES of a sequence and head.
    """
    if SPLITS:
        of = item // SHARES
        s = of // HEADS
        start, queries = rows_of(starts, s, s < count, rows)
        _, keys = keys_of(lengths, s, s < count, most, True)
        _, tiles, size = split_of(queries, keys, window, BN, WINDOWED, SPLITS, MIN_TILES)
        parts = (tiles + size - 1) // size
        here = (s < count) & (queries <= FEW) & (parts > 1)
        return (
            start, tl.where(here, queries * G, 0), of % HEADS, of * SPLITS, parts,
            item % SHARES, SHARES + 0 * parts,
        )  # fmt: skip
    else:
        total = total_of(
            count, starts, lengths, rows, most, window,
            SPLIT, True, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, BLOCK_S,
        )  # fmt: skip
        piece = piece_of(total, PROGRAMS, MIN_TILES, SPLITS)
        border = (item + 1) * piece
        s, base = find(
            border, count, starts, lengths, rows, most, window,
            SPLIT, True, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, BLOCK_S,
        )  # fmt: skip
        start, queries = rows_of(starts, s, s < count, rows)
        _, keys = keys_of(lengths, s, s < count, most, True)
        _, tiles, _ = split_of(queries, keys, window, BN, WINDOWED, SPLITS, MIN_TILES)
        head = (border - base) // tiles
        begin = base + head * tiles
        first = begin // piece
        parts = (begin + tiles - 1) // piece - first + 1
        here = (s < count) & (queries <= FEW) & (border < total) & (begin < border)
        slot = first * 2 + (first * piece < begin).to(tl.int32)
        return (
            start, tl.where(here, queries * G, 0), head, slot, parts, item - first, parts - 1,
        )  # fmt: skip


@triton.jit
def _add_up(
    cut, live, out, slots, sums, sinks, out_token, out_head,
    PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    G: tl.constexpr, DV: tl.constexpr, BLOCK_DV: tl.constexpr, FEW: tl.constexpr,
    SPLITS: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    """Add up a share's slices of ROWS rows and COLUMNS columns, PARTS slots at a time; if not
    `live` do as much without reading or writing.
    """
    start, lines, head, lead, parts, share, shares = cut
    WIDE: tl.constexpr = BLOCK_DV // COLUMNS
    STEP: tl.constexpr = 1 if SPLITS else 2
    even = lead // STEP * STEP
    slots += even.to(tl.int64) * (FEW * G * DV)
    sums += even.to(tl.int64) * (FEW * G * 2)
    for slice_of in range(share, (lines + ROWS - 1) // ROWS * WIDE, shares):
        row = slice_of // WIDE * ROWS + tl.arange(0, ROWS)
        column = slice_of % WIDE * COLUMNS + tl.arange(0, COLUMNS)
        token = (start + row // G).to(tl.int64)
        of = head * G + row % G
        to = out + (token * out_token + of * out_head)[:, None] + column[None, :]
        m = tl.full([ROWS], float("-inf"), tl.float32)
        l = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, COLUMNS], tl.float32)
        for block in range(0, parts, PARTS):
            part = block + tl.arange(0, PARTS)
            slot = part * STEP
            if SPLITS == 0:
                slot = tl.where(part == 0, lead - even, slot)
            there = (part < parts)[:, None] & (live & (row < lines))[None, :]
            line = slot[:, None] * (FEW * G) + row[None, :]
            at = slots + (line[:, :, None] * DV + column[None, None, :])
            sums_at = sums + line * 2
            inside = there[:, :, None] & (column < DV)[None, None, :]
            values = tl.load(at, mask=inside, other=0.0)
            maxima = tl.load(sums_at, mask=there, other=float("-inf"))
            weights = tl.load(sums_at + 1, mask=there, other=0.0)
            new = tl.maximum(m, tl.max(maxima, 0))
            safe = tl.where(new == float("-inf"), 0.0, new)
            factor = tl.exp2(maxima - safe[None, :])
            shrink = tl.exp2(m - safe)
            l = l * shrink + tl.sum(weights * factor, 0)
            acc = acc * shrink[:, None] + tl.sum(values * factor[:, :, None], 0)
            m = new
        if SINKS:
            sink = tl.load(sinks + of, mask=row < lines, other=0.0).to(tl.float32) * LOG2E
            new = tl.maximum(m, sink)
            safe = tl.where(new == float("-inf"), 0.0, new)
            shrink = tl.exp2(m - safe)
            acc = acc * shrink[:, None]
            l = l * shrink + tl.exp2(sink - safe)
        acc = acc * tl.where(l > 0.0, 1.0 / l, 0.0)[:, None]
        mask = (live & (row < lines))[:, None] & (column < DV)[None, :]
        tl.store(to, acc.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _add_all_up(
    cut, live, out, slots, sums, sinks, out_token, out_head,
    VALUES: tl.constexpr, MOST_AT_ONCE: tl.constexpr, G: tl.constexpr, DV: tl.constexpr,
    BLOCK_DV: tl.constexpr, FEW: tl.constexpr, SPLITS: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    """Add up a share VALUES at a time: few slots of wide slices, or many of narrow ones. So what is
    cut into n parts has slices for n - 1 shares, and each reads all it needs at once.
    """
    parts = cut[4]
    if cut[1] > 0:
        for i in tl.static_range(1, MOST_AT_ONCE + 1):
            if (parts > 2 ** (i - 1)) & ((parts <= 2**i) | (i == MOST_AT_ONCE)):
                _add_up(
                    cut, live, out, slots, sums, sinks, out_token, out_head,
                    2**i, max(1, VALUES // 2**i // BLOCK_DV), min(BLOCK_DV, VALUES // 2**i),
                    G, DV, BLOCK_DV, FEW, SPLITS, SINKS,
                )  # fmt: skip


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "columns", "window"])
def combine_kernel(
    starts, lengths, sequences, sinks, out, slots, sums,
    rows, capacity, columns, out_token, out_head, window,
    PAGE: tl.constexpr, G: tl.constexpr, HEADS: tl.constexpr, DV: tl.constexpr,
    BLOCK_DV: tl.constexpr, FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCK_S: tl.constexpr, PROGRAMS: tl.constexpr, MIN_TILES: tl.constexpr,
    SPLITS: tl.constexpr, SHARES: tl.constexpr, VALUES: tl.constexpr, WINDOWED: tl.constexpr,
    SINKS: tl.constexpr, MOST_AT_ONCE: tl.constexpr, GIVEN: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """See the module."""
    get_ready(OVERLAP)
    count = count_sequences(sequences, capacity, GIVEN)
    if SPLITS:
        if OVERLAP:
            tl.extra.cuda.gdc_wait()
        for item in range(tl.program_id(0), count * HEADS * SHARES, tl.num_programs(0)):
            cut = _cut(
                item, count, starts, lengths, rows, columns * PAGE, window, G, HEADS, FEW, BM, BN,
                WINDOWED, SPLITS, MIN_TILES, PROGRAMS, BLOCK_S, SHARES,
            )  # fmt: skip
            _add_all_up(
                cut, True, out, slots, sums, sinks, out_token, out_head,
                VALUES, MOST_AT_ONCE, G, DV, BLOCK_DV, FEW, SPLITS, SINKS,
            )  # fmt: skip
    else:
        cut = _cut(
            tl.program_id(0), count, starts, lengths, rows, columns * PAGE, window, G, HEADS, FEW,
            BM, BN, WINDOWED, SPLITS, MIN_TILES, PROGRAMS, BLOCK_S, SHARES,
        )  # fmt: skip
        # Twice the same, first without effect while the parts are still being made: what is left
        # to do then is in the instruction cache. (The compiler must not know that it is twice.)
        for turn in range(0 if OVERLAP else 1, 1 + tl.minimum(count, 1)):
            if OVERLAP:
                if turn > 0:
                    tl.extra.cuda.gdc_wait()
            _add_all_up(
                cut, turn > 0, out, slots, sums, sinks, out_token, out_head,
                VALUES, MOST_AT_ONCE, G, DV, BLOCK_DV, FEW, SPLITS, SINKS,
            )  # fmt: skip
        if OVERLAP:
            tl.extra.cuda.gdc_wait()
