"""Tiles of many queries on Hopper, in Gluon: one warp loads queries, keys and values by TMA, and
two warpgroups multiply 64 rows of queries each with the same keys.

Programs stay, and take the next tile that nobody has taken. While a warpgroup makes weights out of
one tile's scores, its tensor cores multiply the tile before with its values. Rows of the last tile
that are behind a sequence's end may hold anything: their scores are not seen, and their values are
overwritten with zeros in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from anyshape.attention.gluon_tiles import (
    CHUNK,
    LN2,
    LOG2E,
    PAGE_TABLE,
    add,
    count_of,
    hold,
    keys_at,
    load_tile,
    power_of_2,
    range_at,
    rows_at,
    scores_of,
    see,
    sequence_of,
    zero_tail,
)
from anyshape.kernels.gluon_parts import (
    accumulator_layout,
    advance,
    hear_numbers,
    line_layout,
    make_told,
    number_of,
    take,
    tell,
)
from anyshape.kernels.launches import quick

CONSUMERS = gl.constexpr(2)
# rows of queries of a warpgroup
ROWS = gl.constexpr(64)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the kernel is compiled for. `page` is 0 for packed keys; a `box` is what one load
    brings: rows of one page. Sequences of up to `few` queries are left out.
    """

    group: int
    heads: int
    size: int
    value_size: int
    page: int
    box: int
    bn: int
    stages: int
    few: int
    block_s: int
    tail: bool
    faults: bool
    causal: bool
    windowed: bool
    capped: bool
    sinks: bool
    given: bool
    totals: bool
    consumer_registers: int
    producer_registers: int


@gluon.jit
def _tile_range(
    tile, queries, keys, window, FROM: gl.constexpr, COUNT: gl.constexpr, SET: gl.constexpr
):
    """The tiles of keys of rows FROM to FROM + COUNT of a tile of queries; see `range_at`."""
    first = tile * (CONSUMERS * ROWS) + FROM
    offset = keys - queries
    last = gl.minimum((first + COUNT - 1) // SET.group, queries - 1)
    return range_at(offset + first // SET.group, offset + last, keys, window, SET)


@gluon.jit
def _produce(loads, SET: gl.constexpr):
    """Load the queries of every tile, and its keys and values tile by tile."""
    q_desc, k_desc, v_desc, q_bufs, k_bufs, v_bufs, bars = loads[0]
    starts, lengths, sequences, table, counter, told, numbers, k_places, v_places = loads[1]
    out, totals, faults, strides = loads[2]
    rows, capacity, most, table_row, window = numbers
    full_q, empty_q, full_k, empty_k, full_v, empty_v = bars
    PAGED: gl.constexpr = SET.page > 0
    layout: gl.constexpr = line_layout(gl.num_warps())
    BM: gl.constexpr = CONSUMERS * ROWS
    TOKENS: gl.constexpr = ROWS // SET.group
    count = count_of(sequences, capacity, SET.given)
    index = gl.arange(0, SET.block_s, layout)
    counts = rows_at(starts, index, index < count, rows)[1]
    tiles = gl.where(counts > SET.few, (counts * SET.group + BM - 1) // BM, 0)
    ends = gl.associative_scan(tiles * SET.heads, 0, add)
    total = gl.sum(tiles * SET.heads, 0)
    if SET.tail:
        end = gl.minimum(gl.maximum(gl.load(starts + count).to(gl.int32), 0), rows)
        zero_tail(out, totals, end, rows, strides, layout, SET)
    bad = total < 0
    slot = 0
    phase = 1
    turn = 0
    parity = 1
    q_phase = 1
    at = gl.program_id(0)
    while at < total:
        s, base = sequence_of(at, ends)
        start, queries = rows_at(starts, s, True, rows)
        key_first, keys = keys_at(lengths, s, True, most, PAGED)
        tile = (queries * SET.group + BM - 1) // BM - 1 - (at - base) // SET.heads
        head = (at - base) % SET.heads
        turn, parity = tell(told, turn, parity, (start, queries, keys, tile, head, 0))
        taken = take(counter)
        mbarrier.wait(empty_q, q_phase)
        q_phase ^= 1
        mbarrier.expect(full_q, CONSUMERS * (SET.size // CHUNK) * q_desc.block_type.nbytes)
        for part in gl.static_range(CONSUMERS):
            for c in gl.static_range(SET.size // CHUNK):
                token = start + (tile * CONSUMERS + part) * TOKENS
                tma.async_copy_global_to_shared(
                    q_desc,
                    [token, head * SET.group, c * CHUNK],
                    full_q,
                    q_bufs.index(part * (SET.size // CHUNK) + c),
                )
        low, from_all, to_all, high = _tile_range(tile, queries, keys, window, 0, BM, SET)
        table_at = table + s.to(gl.int64) * table_row
        for j in range(low, high):
            mbarrier.wait(empty_k.index(slot), phase)
            bad_k = load_tile(
                *(k_desc, k_bufs, full_k.index(slot), slot, j, key_first, keys, head, table_at),
                *(k_places, SET, SET.size // CHUNK),
            )
            mbarrier.wait(empty_v.index(slot), phase)
            bad_v = load_tile(
                *(v_desc, v_bufs, full_v.index(slot), slot, j, key_first, keys, head, table_at),
                *(v_places, SET, SET.value_size // CHUNK),
            )
            bad = bad | bad_k | bad_v
            slot, phase = advance(slot, phase, SET.stages)
        at = gl.sum(taken, 0) + gl.num_programs(0)
    if SET.faults:
        if bad:
            gl.atomic_or(faults, PAGE_TABLE)
    tell(told, turn, parity, (-1, 0, 0, 0, 0, 0))


@gluon.jit
def _products(q_bufs, k_bufs, slot, PART: gl.constexpr, SET: gl.constexpr):
    """Start multiplying this part's queries with a tile of keys."""
    CHUNKS: gl.constexpr = SET.size // CHUNK
    layout: gl.constexpr = accumulator_layout(gl.num_warps(), SET.bn, 16)
    BN: gl.constexpr = SET.bn
    s = gl.zeros([ROWS, BN], gl.float32, layout)
    for c in gl.static_range(CHUNKS):
        k = k_bufs.index(slot * CHUNKS + c).permute((1, 0))
        s = warpgroup_mma(q_bufs.index(PART * CHUNKS + c), k, s, use_acc=c > 0, is_async=True)
    return s


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
def _step(work, state, j, seen, PART: gl.constexpr, MASKED: gl.constexpr, SET: gl.constexpr):
    """Multiply the weights of one tile of keys with its values, and meanwhile make those of the
    next tile, `j`.

    The loop that this is the body of must have no branch: the assembler would wait for all products
    before it.
    """
    q_bufs, k_bufs, v_bufs, bars, rules = work
    full_q, empty_q, full_k, empty_k, full_v, empty_v = bars
    o, p, m, l, slot, phase, v_slot, v_phase = state
    o_layout: gl.constexpr = o.type.layout
    p_layout: gl.constexpr = p.type.layout
    mbarrier.wait(full_k.index(slot), phase)
    s = _products(q_bufs, k_bufs, slot, PART, SET)
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
def _attend(work, told_numbers, slot, phase, q_phase, PART: gl.constexpr, SET: gl.constexpr):
    """(sums [64, DV], maxima, sums of weights) of this part's rows, and the place in the ring."""
    q_bufs, k_bufs, v_bufs, bars, rules = work
    full_q, empty_q, full_k, empty_k, full_v, empty_v = bars
    start, queries, keys, tile, head = told_numbers
    factor, soft_cap, window = rules
    BM: gl.constexpr = CONSUMERS * ROWS
    DV: gl.constexpr = SET.value_size
    s_layout: gl.constexpr = accumulator_layout(gl.num_warps(), SET.bn, 16)
    o_layout: gl.constexpr = accumulator_layout(gl.num_warps(), SET.value_size, 16)
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)
    low, from_all, to_all, high = _tile_range(tile, queries, keys, window, 0, BM, SET)
    mine = _tile_range(tile, queries, keys, window, PART * ROWS, ROWS, SET)
    row = tile * BM + PART * ROWS + gl.arange(0, ROWS, row_layout)
    seen = (keys - queries + row // SET.group, keys)
    m = gl.full([ROWS], float("-inf"), gl.float32, row_layout)
    l = gl.zeros([ROWS], gl.float32, row_layout)
    o = gl.zeros([ROWS, DV], gl.float32, o_layout)
    mbarrier.wait(full_q, q_phase)
    mbarrier.wait(full_k.index(slot), phase)
    s = _products(q_bufs, k_bufs, slot, PART, SET)
    s = warpgroup_mma_wait(num_outstanding=0, deps=[s])
    mbarrier.arrive(empty_k.index(slot), count=1)
    weights, m, l, shrink = _weigh(s, low, m, l, seen, rules, True, SET)
    p = gl.convert_layout(weights.to(q_bufs.dtype), p_layout)
    v_slot = slot
    v_phase = phase
    slot, phase = advance(slot, phase, SET.stages)
    # with a window, the first tiles need a mask too
    middle = low + 1
    if not SET.windowed:
        middle = gl.minimum(gl.maximum(mine[2], low + 1), high)
    for j in range(low + 1, middle):
        state = (o, p, m, l, slot, phase, v_slot, v_phase)
        o, p, m, l, slot, phase, v_slot, v_phase = _step(work, state, j, seen, PART, False, SET)
    for j in range(middle, high):
        state = (o, p, m, l, slot, phase, v_slot, v_phase)
        o, p, m, l, slot, phase, v_slot, v_phase = _step(work, state, j, seen, PART, True, SET)
    mbarrier.arrive(empty_q, count=1)
    mbarrier.wait(full_v.index(v_slot), v_phase)
    if high * SET.bn > keys:
        _clear(v_bufs.index(v_slot), keys - (high - 1) * SET.bn, SET)
    o = warpgroup_mma(p, v_bufs.index(v_slot), o, is_async=True)
    o = warpgroup_mma_wait(num_outstanding=0, deps=[o])
    mbarrier.arrive(empty_v.index(v_slot), count=1)
    return o, m, l, row, slot, phase


@gluon.jit
def _clear(buffer, kept, SET: gl.constexpr):
    """Zeros in all rows of a tile of values but the first `kept`. Both parts do it, with the same
    result.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    row = gl.arange(0, SET.bn, gl.SliceLayout(1, layout))
    value = buffer.load(layout)
    buffer.store(gl.where((row < kept)[:, None], value, gl.zeros_like(value)))
    fence_async_shared()


@gluon.jit
def _store(o, m, l, row, told_numbers, target, SET: gl.constexpr):
    """Divide by the sums and store the rows there are."""
    out, totals, sinks, out_token, out_head, totals_token = target
    start, queries, keys, tile, head = told_numbers
    o_layout: gl.constexpr = o.type.layout
    of = head * SET.group + row % SET.group
    real = row // SET.group < queries
    token = (start + row // SET.group).to(gl.int64)
    if SET.sinks:
        sink = gl.load(sinks + of, mask=real, other=0.0).to(gl.float32) * LOG2E
        new = gl.maximum(m, sink)
        safe = gl.where(new == float("-inf"), 0.0, new)
        shrink = gl.exp2(m - safe)
        l = l * shrink + gl.exp2(sink - safe)
        m = new
    else:
        shrink = gl.full_like(m, 1.0)
    if SET.totals:
        log = gl.where(l > 0.0, (m + gl.log2(l)) * LN2, float("-inf"))
        gl.store(totals + token * totals_token + of, log, mask=real)
    factor = gl.where(l > 0.0, shrink / l, 0.0)
    o = o * gl.convert_layout(factor, gl.SliceLayout(1, o_layout))[:, None]
    lines: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    value = gl.convert_layout(o.to(out.dtype.element_ty), lines)
    at = token * out_token + of * out_head
    at = gl.convert_layout(at, gl.SliceLayout(1, lines))
    mask = gl.convert_layout(real, gl.SliceLayout(1, lines))
    column = gl.arange(0, SET.value_size, gl.SliceLayout(0, lines))
    gl.store(out + at[:, None] + column[None, :], value, mask=mask[:, None])


@gluon.jit
def _consume(work, told, target, PART: gl.constexpr, SET: gl.constexpr):
    """Attend and store this part's rows of every tile."""
    slot = 0
    phase = 0
    q_phase = 0
    value, turn, parity = hear_numbers(told, 0, 0)
    start = number_of(value, 0)
    while start >= 0:
        numbers = (
            start,
            number_of(value, 1),
            number_of(value, 2),
            number_of(value, 3),
            number_of(value, 4),
        )
        o, m, l, row, slot, phase = _attend(work, numbers, slot, phase, q_phase, PART, SET)
        q_phase ^= 1
        _store(o, m, l, row, numbers, target, SET)
        value, turn, parity = hear_numbers(told, turn, parity)
        start = number_of(value, 0)


@gluon.jit
def _part(loads, work, told, target, PART: gl.constexpr, SET: gl.constexpr):
    """What one part of the kernel does: the last one loads, the others multiply."""
    if PART < CONSUMERS:
        _consume(work, told, target, PART, SET)
    else:
        _produce(loads, SET)


@quick
@gluon.jit(do_not_specialize=["rows", "capacity", "pages", "most", "window"])
def prefill_kernel(
    q_desc, k_desc, v_desc, starts, lengths, sequences, table, counter, sinks, out, totals,
    faults, rows, capacity, pages, most, table_row, k_row_page, k_row_head, k_column_head,
    v_row_page, v_row_head, v_column_head, out_token, out_head, totals_token,
    factor, soft_cap, window, SET: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """See the module."""
    STAGES: gl.constexpr = SET.stages
    K_CHUNKS: gl.constexpr = SET.size // CHUNK
    V_CHUNKS: gl.constexpr = SET.value_size // CHUNK
    BOXES: gl.constexpr = SET.bn // SET.box
    dtype: gl.constexpr = q_desc.dtype
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    q_loads = gl.allocate_shared_memory(
        dtype, [CONSUMERS * K_CHUNKS] + q_desc.block_type.shape, q_desc.layout
    )
    k_loads = gl.allocate_shared_memory(
        dtype, [STAGES * K_CHUNKS * BOXES] + k_desc.block_type.shape, k_desc.layout
    )
    v_loads = gl.allocate_shared_memory(
        dtype, [STAGES * V_CHUNKS * BOXES] + v_desc.block_type.shape, v_desc.layout
    )
    q_shape: gl.constexpr = [CONSUMERS * K_CHUNKS, ROWS, CHUNK]
    k_shape: gl.constexpr = [STAGES * K_CHUNKS, SET.bn, CHUNK]
    v_shape: gl.constexpr = [STAGES, SET.bn, SET.value_size]
    q_bufs = q_loads._reinterpret(dtype, q_shape, flat)  # noqa: SLF001
    k_bufs = k_loads._reinterpret(dtype, k_shape, flat)  # noqa: SLF001
    v_bufs = v_loads._reinterpret(dtype, v_shape, flat)  # noqa: SLF001
    full_q = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    empty_q = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full_k = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty_k = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full_v = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty_v = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(full_q, count=1)
    mbarrier.init(empty_q, count=CONSUMERS)
    for i in gl.static_range(STAGES):
        mbarrier.init(full_k.index(i), count=1)
        mbarrier.init(full_v.index(i), count=1)
        mbarrier.init(empty_k.index(i), count=CONSUMERS)
        mbarrier.init(empty_v.index(i), count=CONSUMERS)
    told = make_told(CONSUMERS)
    fence_async_shared()
    bars = (full_q, empty_q, full_k, empty_k, full_v, empty_v)
    loads = (
        (q_desc, k_desc, v_desc, q_loads, k_loads, v_loads, bars),
        (
            starts,
            lengths,
            sequences,
            table,
            counter,
            told,
            (rows, capacity, most, table_row, window),
            (k_row_page, k_row_head, k_column_head, pages),
            (v_row_page, v_row_head, v_column_head, pages),
        ),
        (out, totals, faults, (out_token, out_head, totals_token)),
    )
    work = (q_bufs, k_bufs, v_bufs, bars, (factor, soft_cap, window))
    target = (out, totals, sinks, out_token, out_head, totals_token)
    gl.warp_specialize(
        [(_part, (loads, work, told, target, part, SET)) for part in (0, 1, 2)],
        [4, 1],
        [SET.consumer_registers, SET.producer_registers],
    )
