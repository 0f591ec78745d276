"""Few queries a sequence (decoding): the keys of all sequences and heads form one line of tiles,
and every program takes an equal piece of it.

A piece may end in the middle of a sequence; what was summed up to there goes to a slot of its own,
and a second launch adds up the slots of each sequence and head that was cut. Each program has two
slots, for its first and its last sequence, so their memory depends on nothing but the grid. With
SPLITS, pieces depend on a sequence's own length alone, and each has a slot.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyshape.attention.triton_plan import (
    PAGE_TABLE,
    SPLIT,
    count_sequences,
    find,
    keys_of,
    next_part,
    note_faults,
    rows_of,
    split_of,
    total_of,
    zero_tail,
)
from anyshape.attention.triton_tiles import LOG2E, add_sink, attend_keys, finish, scale_of
from anyshape.kernels.launches import quick
from anyshape.kernels.overlap import follow


@triton.jit
def piece_of(total, PROGRAMS: tl.constexpr, MIN_TILES: tl.constexpr, SPLITS: tl.constexpr):
    """How many steps a program takes."""
    piece = (total + PROGRAMS - 1) // PROGRAMS
    return piece if SPLITS else tl.maximum(piece, MIN_TILES)


@triton.jit
def _store(
    acc, m, l, slot, index, real, of, token, sinks, out, slots, sums, out_token, out_head,
    G: tl.constexpr, DV: tl.constexpr, BLOCK_DV: tl.constexpr, FEW: tl.constexpr,
    SINKS: tl.constexpr,
):  # fmt: skip
    """Store a whole result, or (`slot` is not -1) leave a part of it in its slot."""
    dv = tl.arange(0, BLOCK_DV)
    mask = real[:, None] & (dv < DV)[None, :]
    if slot < 0:
        if SINKS:
            sink = tl.load(sinks + of, mask=real, other=0.0).to(tl.float32) * LOG2E
            acc, m, l = add_sink(acc, m, l, sink)
        at = out + token * out_token + of * out_head
        value = finish(acc, l, 1.0).to(out.dtype.element_ty)
        tl.store(at[:, None] + dv[None, :], value, mask=mask)
    else:
        position = slot.to(tl.int64) * (FEW * G) + index
        tl.store(slots + position[:, None] * DV + dv[None, :], acc, mask=mask)
        tl.store(sums + position * 2, m, mask=real)
        tl.store(sums + position * 2 + 1, l, mask=real)


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "pages", "columns", "window"])
def split_kernel(
    q, k_pages, v_pages, table, starts, lengths, sequences, sinks, k_scale, v_scale,
    out, faults, slots, sums, counter,
    rows, capacity, pages, columns, q_token, q_head, k_page, k_row, k_head,
    v_page, v_row, v_head, table_row, out_token, out_head, scale, soft_cap, window,
    PAGE: tl.constexpr, G: tl.constexpr, PARTS: tl.constexpr, HEADS: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BLOCK_S: tl.constexpr,
    PROGRAMS: tl.constexpr, MIN_TILES: tl.constexpr, SPLITS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr,
    K_STEP: tl.constexpr, V_STEP: tl.constexpr, GIVEN: tl.constexpr, TAIL: tl.constexpr,
    FAULTS: tl.constexpr, LIMIT: tl.constexpr, COUNTS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """See the module. HEADS are parts of G heads each; PARTS of them share a key head."""
    follow(OVERLAP)
    program = tl.program_id(0)
    most = columns * PAGE
    count = count_sequences(sequences, capacity, GIVEN)
    if COUNTS:
        if program == 0:
            tl.store(counter, 0)
    if FAULTS:
        if program == 0:
            note_faults(faults, count, starts, lengths, rows, most, True, False, LIMIT, BLOCK_S)
    if TAIL:
        zero_tail(
            out, out, count, starts, rows, out_token, out_head, 0, G * HEADS, DV, BLOCK_DV, False
        )
    total = total_of(
        count, starts, lengths, rows, most, window,
        SPLIT, True, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, BLOCK_S,
    )  # fmt: skip
    piece = piece_of(total, PROGRAMS, MIN_TILES, SPLITS)
    at = program * piece
    stop = tl.minimum(at + piece, total)
    s, base = find(
        at, count, starts, lengths, rows, most, window,
        SPLIT, True, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, BLOCK_S,
    )  # fmt: skip
    index = tl.arange(0, BM)
    d = tl.arange(0, BLOCK_D)
    bad = tl.zeros([BN], tl.int1)
    while at < stop:
        start, queries = rows_of(starts, s, True, rows)
        _, keys = keys_of(lengths, s, True, most, True)
        low, tiles, size = split_of(queries, keys, window, BN, WINDOWED, SPLITS, MIN_TILES)
        if (queries == 0) | (queries > FEW):
            s += 1
        else:
            at, head, tile, taken, part = next_part(at, base, stop, tiles, size, SPLITS)
            if taken > 0:
                query = index // G
                of = head * G + index % G
                real = index < queries * G
                token = (start + query).to(tl.int64)
                mask = real[:, None]
                if D < BLOCK_D:
                    mask = mask & (d < D)[None, :]
                q_at = q + token * q_token + of * q_head
                rows_q = tl.load(q_at[:, None] + d[None, :], mask=mask, other=0.0)
                key_head = head // PARTS
                m = tl.full([BM], float("-inf"), tl.float32)
                l = tl.zeros([BM], tl.float32)
                acc = tl.zeros([BM, BLOCK_DV], tl.float32)
                acc, m, l, bad = attend_keys(
                    acc, m, l, bad, rows_q, low + tile,
                    low + tile + taken, 0, keys, keys - queries + query,
                    k_pages + key_head.to(tl.int64) * k_head,
                    v_pages + key_head.to(tl.int64) * v_head,
                    table + s.to(tl.int64) * table_row, pages, k_page, k_row, v_page, v_row,
                    scale * scale_of(k_scale, key_head, K_STEP), soft_cap, window,
                    PAGE, BN, D, DV, BLOCK_D, BLOCK_DV, CAUSAL, WINDOWED, CAPPED, True, FAULTS,
                )  # fmt: skip
                acc *= scale_of(v_scale, key_head, V_STEP)
                if SPLITS:
                    slot = (s * HEADS + head) * SPLITS + part
                else:
                    slot = program * 2 + (at > program * piece).to(tl.int32)
                slot = tl.where(taken == tiles, -1, slot)
                _store(
                    acc, m, l, slot, index, real, of, token, sinks, out, slots, sums,
                    out_token, out_head, G, DV, BLOCK_DV, FEW, SINKS,
                )  # fmt: skip
                at += taken
            if at == base + tiles * HEADS:
                base = at
                s += 1
    if FAULTS:
        if tl.max(bad.to(tl.int32), 0) > 0:
            tl.atomic_or(faults, PAGE_TABLE)
