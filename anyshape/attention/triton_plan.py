"""Which work there is: every kernel makes it out of the starts and lengths on the device, so that a
fixed grid serves any batch.

Work is counted in steps, all sequences' one behind the other; `total_of` counts them, and `find`
says which sequence a step belongs to. What a step is, its kernel says by `steps_of`.
"""

from __future__ import annotations

import triton
import triton.language as tl

STARTS = tl.constexpr(1)
LENGTHS = tl.constexpr(2)
PAGE_TABLE = tl.constexpr(4)
MAX_QUERIES = tl.constexpr(8)
# What is counted in steps: pieces of a few queries' keys, or tiles of queries.
SPLIT = tl.constexpr(0)
TILES = tl.constexpr(1)
KEY_TILES = tl.constexpr(2)


@triton.jit
def count_sequences(sequences, capacity, GIVEN: tl.constexpr):
    """How many sequences there are."""
    count = capacity
    if GIVEN:
        count = tl.minimum(tl.maximum(tl.load(sequences).to(tl.int32), 0), capacity)
    return count


@triton.jit
def rows_of(starts, s, real, rows):
    """(first row of q, queries) of sequences, within the `rows` there are."""
    start = tl.load(starts + s, mask=real, other=0).to(tl.int32)
    end = tl.load(starts + s + 1, mask=real, other=0).to(tl.int32)
    start = tl.minimum(tl.maximum(start, 0), rows)
    end = tl.minimum(tl.maximum(end, start), rows)
    return start, end - start


@triton.jit
def keys_of(lengths, s, real, most, PAGED: tl.constexpr):
    """(first key, keys) of sequences. With pages, `lengths` are lengths, of `most` keys at most;
    else where each sequence begins among `most` packed rows, as `starts`.
    """
    if PAGED:
        length = tl.load(lengths + s, mask=real, other=0).to(tl.int32)
        return length * 0, tl.minimum(tl.maximum(length, 0), most)
    else:
        return rows_of(lengths, s, real, most)


@triton.jit
def first_tile(queries, keys, window, BN: tl.constexpr, WINDOWED: tl.constexpr):
    """The first tile of keys that any query of a sequence sees."""
    low = keys * 0
    if WINDOWED:
        low = tl.minimum(tl.maximum(keys - queries - window + 1, 0), keys) // BN
    return low


@triton.jit
def split_of(
    queries, keys, window, BN: tl.constexpr, WINDOWED: tl.constexpr, SPLITS: tl.constexpr,
    MIN_TILES: tl.constexpr,
):  # fmt: skip
    """(first tile of keys, tiles, tiles a part). With SPLITS a sequence has at most so many parts,
    whatever the others have; else it is cut at any tile.
    """
    low = first_tile(queries, keys, window, BN, WINDOWED)
    tiles = tl.maximum((keys + BN - 1) // BN - low, 1)
    size = tiles * 0 + 1
    if SPLITS:
        size = tl.maximum((tiles + SPLITS - 1) // SPLITS, MIN_TILES)
    return low, tiles, size


@triton.jit
def next_part(at, base, stop, tiles, size, SPLITS: tl.constexpr):
    """(tile `at` or where the next part begins, head, tile of the head, tiles to take, part) of a
    sequence of `tiles` a head whose first tile is `base`. A piece of the work takes the parts that
    begin in it, so 0 tiles, or less, if none does in this head.
    """
    head = (at - base) // tiles
    tile = (at - base) - head * tiles
    taken = tl.minimum(tiles - tile, stop - at)
    part = head * 0
    if SPLITS:
        part = (tile + size - 1) // size
        at += tl.minimum(part * size, tiles) - tile
        tile = part * size
        taken = tl.where(at < stop, tl.minimum(size, tiles - tile), 0)
    return at, head, tile, taken, part


@triton.jit
def steps_of(
    s, real, starts, lengths, rows, most, window,
    KIND: tl.constexpr, PAGED: tl.constexpr, G: tl.constexpr, HEADS: tl.constexpr,
    FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, WINDOWED: tl.constexpr,
    SPLITS: tl.constexpr, MIN_TILES: tl.constexpr,
):  # fmt: skip
    """How many steps sequences have, for all heads. FEW divides the work: sequences of up to FEW
    queries are split along their keys, those of more are cut into tiles.
    """
    _, queries = rows_of(starts, s, real, rows)
    _, keys = keys_of(lengths, s, real, most, PAGED)
    if KIND == SPLIT:
        _, steps, _ = split_of(queries, keys, window, BN, WINDOWED, SPLITS, MIN_TILES)
        here = (queries > 0) & (queries <= FEW)
    elif KIND == TILES:
        steps = (queries * G + BM - 1) // BM
        here = queries > FEW
    else:
        steps = (keys + BN - 1) // BN
        here = keys > 0
    return tl.where(here & real, steps * HEADS, 0)


@triton.jit
def total_of(
    count, starts, lengths, rows, most, window,
    KIND: tl.constexpr, PAGED: tl.constexpr, G: tl.constexpr, HEADS: tl.constexpr,
    FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, WINDOWED: tl.constexpr,
    SPLITS: tl.constexpr, MIN_TILES: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """How many steps there are."""
    total = 0
    for block in range(0, count, BLOCK_S):
        s = block + tl.arange(0, BLOCK_S)
        steps = steps_of(
            s, s < count, starts, lengths, rows, most, window,
            KIND, PAGED, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES,
        )  # fmt: skip
        total += tl.sum(steps, 0)
    return total


@triton.jit
def find(
    step, count, starts, lengths, rows, most, window,
    KIND: tl.constexpr, PAGED: tl.constexpr, G: tl.constexpr, HEADS: tl.constexpr,
    FEW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, WINDOWED: tl.constexpr,
    SPLITS: tl.constexpr, MIN_TILES: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """(the sequence that a step belongs to, its first step)."""
    sequence = 0
    base = 0
    before = 0
    for block in range(0, count, BLOCK_S):
        s = block + tl.arange(0, BLOCK_S)
        steps = steps_of(
            s, s < count, starts, lengths, rows, most, window,
            KIND, PAGED, G, HEADS, FEW, BM, BN, WINDOWED, SPLITS, MIN_TILES,
        )  # fmt: skip
        ends = before + tl.cumsum(steps, 0)
        past = (ends <= step) & (s < count)
        sequence += tl.sum(past.to(tl.int32), 0)
        base = tl.maximum(base, tl.max(tl.where(past, ends, 0), 0))
        before += tl.sum(steps, 0)
    return sequence, base


@triton.jit
def note_faults(
    faults, count, starts, lengths, rows, most, PAGED: tl.constexpr, WRITES: tl.constexpr,
    LIMIT: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Set the bits of what is wrong with starts and lengths. With a LIMIT, no sequence may have
    more queries.
    """
    bits = tl.where(tl.load(starts) != 0, STARTS, 0)
    for block in range(0, count, BLOCK_S):
        s = block + tl.arange(0, BLOCK_S)
        real = s < count
        start = tl.load(starts + s, mask=real, other=0)
        end = tl.load(starts + s + 1, mask=real, other=0)
        wrong = (start < 0) | (end < start) | (end > rows)
        bits |= tl.where(tl.max((wrong & real).to(tl.int32), 0) > 0, STARTS, 0)
        if LIMIT:
            many = (end - start > LIMIT) & real
            bits |= tl.where(tl.max(many.to(tl.int32), 0) > 0, MAX_QUERIES, 0)
        if PAGED:
            length = tl.load(lengths + s, mask=real, other=0)
            least = length * 0
            if WRITES:
                least = (end - start).to(length.dtype)
            wrong = (length < least) | (length > most)
            bits |= tl.where(tl.max((wrong & real).to(tl.int32), 0) > 0, LENGTHS, 0)
    if bits != 0:
        tl.atomic_or(faults, bits)


@triton.jit
def zero_tail(
    out, totals, count, starts, rows, out_token, out_head, totals_token,
    HEADS: tl.constexpr, DV: tl.constexpr, BLOCK_DV: tl.constexpr, TOTALS: tl.constexpr,
):  # fmt: skip
    """Zeros in the rows that belong to no sequence, a row a program at a time."""
    end = 0
    if count > 0:
        end = tl.minimum(tl.maximum(tl.load(starts + count).to(tl.int32), 0), rows)
    d = tl.arange(0, BLOCK_DV)
    for row in range(end + tl.program_id(0), rows, tl.num_programs(0)):
        for head in range(HEADS):
            at = out + tl.cast(row, tl.int64) * out_token + head * out_head + d
            tl.store(at, tl.zeros([BLOCK_DV], out.dtype.element_ty), mask=d < DV)
            if TOTALS:
                tl.store(totals + tl.cast(row, tl.int64) * totals_token + head, 0.0)
