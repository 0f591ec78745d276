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
def _piece(total, PROGRAMS: tl.constexpr, MIN_TILES: tl.constexpr, SPLITS: tl.constexpr):
    """How many steps a program takes."""
    piece = (total + PROGRAMS - 1) // PROGRAMS
    return piece if SPLITS else tl.maximum(piece, MIN_TILES)


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "pages", "columns", "window"])
def split_kernel(
    q, k_pages, v_pages, table, starts, lengths, sequences, sinks, k_scale, v_scale,
    out, faults, slots, sums,
    rows, capacity, pages, columns, q_token, q_head, k_page, k_row, k_head,
    v_page, v_row, v_head, table_row, out_token, out_head, scale, soft_cap, window,
    PAGE: tl.constexpr, G: tl.constexpr, PARTS: tl.constexpr, HEADS: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BLOCK_S: tl.constexpr,
    PROGRAMS: tl.constexpr, MIN_TILES: tl.constexpr, SPLITS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr,
    K_STEP: tl.constexpr, V_STEP: tl.constexpr, GIVEN: tl.constexpr, TAIL: tl.constexpr,
    FAULTS: tl.constexpr, LIMIT: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """See the module. HEADS are parts of G heads each; PARTS of them share a key head."""
    follow(OVERLAP)
    program = tl.program_id(0)
    most = columns * PAGE
    count = count_sequences(sequences, capacity, GIVEN)
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
    piece = _piece(total, PROGRAMS, MIN_TILES, SPLITS)
    at = program * piece
    stop = tl.minimum(at + piece, total)
    s, base = find(
        at, count, starts, lengths, rows, most, window,
        SPLIT, True, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, BLOCK_S,
    )  # fmt: skip
    index = tl.arange(0, BM)
    d = tl.arange(0, BLOCK_D)
    dv = tl.arange(0, BLOCK_DV)
    bad = tl.zeros([BN], tl.int1)
    while at < stop:
        start, queries = rows_of(starts, s, True, rows)
        _, keys = keys_of(lengths, s, True, most, True)
        low, tiles, size = split_of(queries, keys, window, BN, WINDOWED, SPLITS, MIN_TILES)
        steps = (tiles + size - 1) // size
        if (queries == 0) | (queries > FEW):
            s += 1
        else:
            head = (at - base) // steps
            step = (at - base) - head * steps
            taken = tl.minimum(steps - step, stop - at)
            if SPLITS:
                taken = 1
            whole = taken == steps
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
                acc, m, l, bad, rows_q, low + step * size,
                low + tl.minimum((step + taken) * size, tiles), 0, keys, keys - queries + query,
                k_pages + key_head.to(tl.int64) * k_head, v_pages + key_head.to(tl.int64) * v_head,
                table + s.to(tl.int64) * table_row, pages, k_page, k_row, v_page, v_row,
                scale * scale_of(k_scale, key_head, K_STEP), soft_cap, window,
                PAGE, BN, D, DV, BLOCK_D, BLOCK_DV, CAUSAL, WINDOWED, CAPPED, True, FAULTS,
            )  # fmt: skip
            acc *= scale_of(v_scale, key_head, V_STEP)
            if whole:
                if SINKS:
                    sink = tl.load(sinks + of, mask=real, other=0.0).to(tl.float32) * LOG2E
                    acc, m, l = add_sink(acc, m, l, sink)
                out_at = out + token * out_token + of * out_head
                tl.store(
                    out_at[:, None] + dv[None, :],
                    finish(acc, l, 1.0).to(out.dtype.element_ty),
                    mask=real[:, None] & (dv < DV)[None, :],
                )
            else:
                slot = program * 2 + (at > program * piece).to(tl.int32)
                if SPLITS:
                    slot = (s * HEADS + head) * SPLITS + step
                place = slot.to(tl.int64) * (FEW * G) + index
                tl.store(
                    slots + place[:, None] * DV + dv[None, :],
                    acc,
                    mask=real[:, None] & (dv < DV)[None, :],
                )
                tl.store(sums + place * 2, m, mask=real)
                tl.store(sums + place * 2 + 1, l, mask=real)
            at += taken
            if at == base + steps * HEADS:
                base = at
                s += 1
    if FAULTS:
        if tl.max(bad.to(tl.int32), 0) > 0:
            tl.atomic_or(faults, PAGE_TABLE)


@triton.jit
def _which(
    program, total, count, starts, lengths, rows, most, window,
    G: tl.constexpr, HEADS: tl.constexpr, FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    WINDOWED: tl.constexpr, SPLITS: tl.constexpr, MIN_TILES: tl.constexpr,
    PROGRAMS: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """(sequence, its first step, head) that this program adds up. Without SPLITS: what the border
    between the pieces of programs `program` and `program` + 1 cuts, if anything.
    """
    if SPLITS:
        return program // HEADS, 0, program % HEADS
    else:
        border = (program + 1) * _piece(total, PROGRAMS, MIN_TILES, SPLITS)
        s, base = find(
            border, count, starts, lengths, rows, most, window,
            SPLIT, True, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, BLOCK_S,
        )  # fmt: skip
        _, queries = rows_of(starts, s, s < count, rows)
        _, keys = keys_of(lengths, s, s < count, most, True)
        _, tiles, _ = split_of(queries, keys, window, BN, WINDOWED, SPLITS, MIN_TILES)
        return s, base, (border - base) // tiles


@quick
@triton.jit(do_not_specialize=["rows", "capacity", "columns", "window"])
def combine_kernel(
    starts, lengths, sequences, sinks, out, slots, sums,
    rows, capacity, columns, out_token, out_head, window,
    PAGE: tl.constexpr, G: tl.constexpr, HEADS: tl.constexpr, DV: tl.constexpr,
    BLOCK_DV: tl.constexpr, FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCK_S: tl.constexpr, PROGRAMS: tl.constexpr, MIN_TILES: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr, WINDOWED: tl.constexpr, SINKS: tl.constexpr,
    GIVEN: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Add up the slots of one sequence and head, one row of queries a program; see the module."""
    follow(OVERLAP)
    program = tl.program_id(0)
    index = tl.program_id(1)
    most = columns * PAGE
    count = count_sequences(sequences, capacity, GIVEN)
    total = total_of(
        count, starts, lengths, rows, most, window,
        SPLIT, True, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, BLOCK_S,
    )  # fmt: skip
    piece = _piece(total, PROGRAMS, MIN_TILES, SPLITS)
    s, base, head = _which(
        program, total, count, starts, lengths, rows, most, window,
        G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES, PROGRAMS, BLOCK_S,
    )  # fmt: skip
    real = s < count
    start, queries = rows_of(starts, s, real, rows)
    _, keys = keys_of(lengths, s, real, most, True)
    _, tiles, size = split_of(queries, keys, window, BN, WINDOWED, SPLITS, MIN_TILES)
    steps = (tiles + size - 1) // size
    here = real & (index < queries * G) & (queries <= FEW)
    if SPLITS:
        here = here & (steps > 1)
        first = 0
        last = steps - 1
    else:
        # the programs whose pieces have a part of this head's steps
        begin = base + head * steps
        border = (program + 1) * piece
        first = begin // piece
        last = (begin + steps - 1) // piece
        here = here & (border < total) & (begin < border) & (first == program)
    if here:
        dv = tl.arange(0, BLOCK_DV)
        part = tl.arange(0, BLOCK)
        m = float("-inf")
        l = 0.0
        acc = tl.zeros([BLOCK_DV], tl.float32)
        for block in range(first, last + 1, BLOCK):
            p = block + part
            there = p <= last
            if SPLITS:
                slot = (s * HEADS + head) * SPLITS + p
            else:
                slot = p * 2 + ((p == first) & (first * piece < begin)).to(tl.int32)
            place = slot.to(tl.int64) * (FEW * G) + index
            maxima = tl.load(sums + place * 2, mask=there, other=float("-inf"))
            parts = tl.load(sums + place * 2 + 1, mask=there, other=0.0)
            values = tl.load(
                slots + place[:, None] * DV + dv[None, :],
                mask=there[:, None] & (dv < DV)[None, :],
                other=0.0,
            )
            new = tl.maximum(m, tl.max(maxima, 0))
            safe = tl.where(new == float("-inf"), 0.0, new)
            weights = tl.exp2(maxima - safe)
            shrink = tl.exp2(m - safe)
            l = l * shrink + tl.sum(parts * weights, 0)
            acc = acc * shrink + tl.sum(values * weights[:, None], 0)
            m = new
        of = head * G + index % G
        if SINKS:
            sink = tl.load(sinks + of).to(tl.float32) * LOG2E
            new = tl.maximum(m, sink)
            safe = tl.where(new == float("-inf"), 0.0, new)
            shrink = tl.exp2(m - safe)
            acc = acc * shrink
            l = l * shrink + tl.exp2(sink - safe)
        acc = acc * tl.where(l > 0.0, 1.0 / l, 0.0)
        token = (start + index // G).to(tl.int64)
        at = out + token * out_token + of * out_head + dv
        tl.store(at, acc.to(out.dtype.element_ty), mask=dv < DV)
