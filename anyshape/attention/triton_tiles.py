"""A tile of queries against a range of keys, with a running maximum and sum: what all kernels in
Triton share.

Scores are kept in units of log2, so that exponentials are exp2. Rows of keys and values that are
not a sequence's are never read: they count as zeros and are not seen.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def bend(scores, factor, soft_cap, CAPPED: tl.constexpr):
    """Products of queries and keys as scores in units of log2."""
    if CAPPED:
        bent = 1.0 - 2.0 / (1.0 + tl.exp2(scores * (factor / soft_cap * 2.0 * LOG2E)))
        return bent * (soft_cap * LOG2E)
    else:
        return scores * (factor * LOG2E)


@triton.jit
def locate_keys(
    tile, key_first, length, table, pages, PAGE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """(key numbers [BN], their pages, their rows within, whether they may be read)."""
    j = tile * BN + tl.arange(0, BN)
    inside = j < length
    if PAGE:
        page = tl.load(table + j // PAGE, mask=inside, other=-1)
        return j, page, j % PAGE, inside & (page >= 0) & (page < pages)
    else:
        return j, j * 0, key_first + j, inside


@triton.jit
def see(
    scores, j, valid, position, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """Scores [BM, BN] with -inf where a query does not see a key."""
    seen = valid[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= position[:, None])
    if WINDOWED:
        ahead = j[None, :] - position[:, None]
        seen = seen & (ahead > -window)
        if not CAUSAL:
            seen = seen & (ahead < window)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def attend_keys(
    acc, m, l, bad, q, low, high, key_first, length, position,
    k_at, v_at, table, pages, k_page, k_row, v_page, v_row, factor, soft_cap, window,
    PAGE: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, MASKED: tl.constexpr, FAULTS: tl.constexpr,
):  # fmt: skip
    """acc [BM, BLOCK_DV], the maxima m and sums l [BM] after tiles `low` to `high` of keys. Without
    MASKED every query sees every key of them.
    """
    d = tl.arange(0, BLOCK_D)
    dv = tl.arange(0, BLOCK_DV)
    for tile in range(low, high):
        j, page, row, valid = locate_keys(tile, key_first, length, table, pages, PAGE, BN)
        if FAULTS:
            bad |= (j < length) & (valid == 0)
        at = page.to(tl.int64) * k_page + row.to(tl.int64) * k_row
        mask = valid[None, :]
        if D < BLOCK_D:
            mask = mask & (d < D)[:, None]
        k = tl.load(k_at + at[None, :] + d[:, None], mask=mask, other=0.0)
        scores = tl.dot(q, k.to(q.dtype), input_precision="ieee")
        scores = bend(scores, factor, soft_cap, CAPPED)
        if MASKED:
            scores = see(scores, j, valid, position, window, CAUSAL, WINDOWED)
        new = tl.maximum(m, tl.max(scores, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(scores - safe[:, None])
        shrink = tl.exp2(m - safe)
        l = l * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None]
        at = page.to(tl.int64) * v_page + row.to(tl.int64) * v_row
        mask = valid[:, None]
        if DV < BLOCK_DV:
            mask = mask & (dv < DV)[None, :]
        v = tl.load(v_at + at[:, None] + dv[None, :], mask=mask, other=0.0)
        acc = tl.dot(weights.to(q.dtype), v.to(q.dtype), acc, input_precision="ieee")
        m = new
    return acc, m, l, bad


@triton.jit
def add_sink(acc, m, l, sink):
    """The same after a sink (in units of log2) has taken its part."""
    new = tl.maximum(m, sink)
    safe = tl.where(new == float("-inf"), 0.0, new)
    shrink = tl.exp2(m - safe)
    return acc * shrink[:, None], new, l * shrink + tl.exp2(sink - safe)


@triton.jit
def finish(acc, l, factor):
    """acc / l * factor; zeros where nothing was seen."""
    return acc * tl.where(l > 0.0, factor / l, 0.0)[:, None]


@triton.jit
def scale_of(scale, head, STEP: tl.constexpr):
    """A key head's scale; STEP is 1 where each has its own, 0 for a common one, -1 for none."""
    if STEP >= 0:
        return tl.load(scale + head * STEP)
    else:
        return 1.0
