"""One warpgroup's rows of queries against a range of tiles of keys, which another warp loads.

While a warpgroup makes weights out of one tile's scores, its tensor cores multiply the tile before
with its values. Rows of the last tile that are behind a sequence's end may hold anything: their
scores are not seen, and their values are overwritten with zeros in shared memory.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from anyshape.attention.gluon_tiles import CHUNK, hold, power_of_2, scores_of, see
from anyshape.kernels.gluon_parts import accumulator_layout, advance

# rows of queries of a warpgroup
ROWS = gl.constexpr(64)


@gluon.jit
def _products(qs, k_bufs, slot, SET: gl.constexpr):
    """Start multiplying this part's queries with a tile of keys."""
    CHUNKS: gl.constexpr = SET.size // CHUNK
    layout: gl.constexpr = accumulator_layout(gl.num_warps(), SET.bn, 16)
    BN: gl.constexpr = SET.bn
    s = gl.zeros([ROWS, BN], gl.float32, layout)
    for c in gl.static_range(CHUNKS):
        k = k_bufs.index(slot * CHUNKS + c).permute((1, 0))
        s = warpgroup_mma(qs[c], k, s, use_acc=c > 0, is_async=True)
    return s


@gluon.jit
def _queries(work, q_slot, PART: gl.constexpr, SET: gl.constexpr):
    """This part's queries, CHUNK columns at a time: where they lie, or in registers, so that the
    next ones can be loaded to their stage.
    """
    CHUNKS: gl.constexpr = SET.size // CHUNK
    layout: gl.constexpr = accumulator_layout(gl.num_warps(), SET.bn, 16)
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    dtype: gl.constexpr = work[0].dtype
    qs = ()
    for c in gl.static_range(CHUNKS):
        box = work[0].index((q_slot * SET.consumers + PART) * CHUNKS + c)
        q = box._reinterpret(dtype, [ROWS, CHUNK], flat)  # noqa: SLF001
        if SET.q_registers:
            qs = qs + (q.load(operand),)
        else:
            qs = qs + (q,)
    return qs


@gluon.jit
def _weigh(s, j, m, l, seen, rules, MASKED: gl.constexpr, SET: gl.constexpr):
    """(weights of a tile's products, new maxima, new sums, by what older sums shrink)."""
    position, keys = seen
    factor, soft_cap, window = rules
    layout: gl.constexpr = s.type.layout
    s, unit = scores_of(s, factor, soft_cap, SET)
    if MASKED:
        column = j * SET.bn + gl.arange(0, SET.bn, gl.SliceLayout(0, layout))
        s = see(s, column[None, :], position[:, None], keys, window, SET)
    new = gl.maximum(m, gl.max(s, 1) * unit)
    safe = gl.where(new == float("-inf"), 0.0, new)
    weights = power_of_2(s * unit - safe[:, None])
    shrink = power_of_2(m - safe)
    return weights, new, l * shrink + gl.sum(weights, 1), shrink


@gluon.jit
def _step(work, qs, state, j, seen, MASKED: gl.constexpr, SET: gl.constexpr):
    """Multiply the weights of one tile of keys with its values, and meanwhile make those of the
    next tile, `j`.

    The loop that this is the body of must have no branch: the assembler would wait for all products
    before it.
    """
    _, k_bufs, v_bufs, bars, rules = work
    full_q, empty_q, full_k, empty_k, full_v, empty_v = bars
    o, p, m, l, slot, phase, v_slot, v_phase = state
    o_layout: gl.constexpr = o.type.layout
    p_layout: gl.constexpr = p.type.layout
    mbarrier.wait(full_k.index(slot), phase)
    s = _products(qs, k_bufs, slot, SET)
    mbarrier.wait(full_v.index(v_slot), v_phase)
    o = warpgroup_mma(p, v_bufs.index(v_slot), o, is_async=True)
    s = warpgroup_mma_wait(num_outstanding=1, deps=[s])
    mbarrier.arrive(empty_k.index(slot), count=1)
    weights, m, l, shrink = _weigh(s, j, m, l, seen, rules, MASKED, SET)
    l = hold(l)
    o, rounded = warpgroup_mma_wait(num_outstanding=0, deps=[o, weights.to(p.dtype)])
    mbarrier.arrive(empty_v.index(v_slot), count=1)
    o = o * gl.convert_layout(shrink, gl.SliceLayout(1, o_layout))[:, None]
    p = gl.convert_layout(rounded, p_layout)
    next_slot, next_phase = advance(slot, phase, SET.stages)
    return o, p, m, l, next_slot, next_phase, slot, phase


@gluon.jit
def attend(
    work,
    seen,
    low,
    middle,
    high,
    slot,
    phase,
    q_slot,
    q_phase,
    PART: gl.constexpr,
    SET: gl.constexpr,
):
    """(sums [64, DV], maxima, sums of weights, stage of the ring) of rows against tiles `low` to
    `high` of keys. `seen` has the rows' positions and how many keys there are; tiles after the
    first and before `middle` need no mask.
    """
    q_bufs, k_bufs, v_bufs, bars, rules = work
    full_q, empty_q, full_k, empty_k, full_v, empty_v = bars
    position, keys = seen
    DV: gl.constexpr = SET.value_size
    row_layout: gl.constexpr = position.type.layout
    o_layout: gl.constexpr = accumulator_layout(gl.num_warps(), SET.value_size, 16)
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    m = gl.full([ROWS], float("-inf"), gl.float32, row_layout)
    l = gl.zeros([ROWS], gl.float32, row_layout)
    o = gl.zeros([ROWS, DV], gl.float32, o_layout)
    mbarrier.wait(full_q.index(q_slot), q_phase)
    qs = _queries(work, q_slot, PART, SET)
    if SET.q_registers:
        mbarrier.arrive(empty_q.index(q_slot), count=1)
    mbarrier.wait(full_k.index(slot), phase)
    s = _products(qs, k_bufs, slot, SET)
    s = warpgroup_mma_wait(num_outstanding=0, deps=[s])
    mbarrier.arrive(empty_k.index(slot), count=1)
    weights, m, l, shrink = _weigh(s, low, m, l, seen, rules, True, SET)
    p = gl.convert_layout(weights.to(q_bufs.dtype), p_layout)
    v_slot = slot
    v_phase = phase
    slot, phase = advance(slot, phase, SET.stages)
    for j in range(low + 1, middle):
        state = (o, p, m, l, slot, phase, v_slot, v_phase)
        o, p, m, l, slot, phase, v_slot, v_phase = _step(work, qs, state, j, seen, False, SET)
    for j in range(middle, high):
        state = (o, p, m, l, slot, phase, v_slot, v_phase)
        o, p, m, l, slot, phase, v_slot, v_phase = _step(work, qs, state, j, seen, True, SET)
    if not SET.q_registers:
        mbarrier.arrive(empty_q.index(q_slot), count=1)
    mbarrier.wait(full_v.index(v_slot), v_phase)
    if high * SET.bn > keys:
        _clear(v_bufs.index(v_slot), keys - (high - 1) * SET.bn, SET)
    o = warpgroup_mma(p, v_bufs.index(v_slot), o, is_async=True)
    o = warpgroup_mma_wait(num_outstanding=0, deps=[o])
    mbarrier.arrive(empty_v.index(v_slot), count=1)
    return o, m, l, slot, phase


@gluon.jit
def _clear(buffer, kept, SET: gl.constexpr):
    """Zeros in all rows of a tile of values but the first `kept`. All warpgroups do it, with the
    same result.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    row = gl.arange(0, SET.bn, gl.SliceLayout(1, layout))
    value = buffer.load(layout)
    buffer.store(gl.where((row < kept)[:, None], value, gl.zeros_like(value)))
    fence_async_shared()
