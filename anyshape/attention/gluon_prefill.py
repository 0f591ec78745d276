"""Tiles of many queries on Hopper, in Gluon: one warp loads queries, keys and values by TMA, and
two warpgroups multiply 64 rows of queries each with the same keys.

Programs stay, and take the next tile that nobody has taken. Launched behind `gluon_split`, it
begins while that still runs: nothing it reads is made there but the counter of tiles that were
taken, and each program waits before it looks at that.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)
from triton.language.extra.cuda import gdc_wait

from anyshape.attention.gluon_attend import ROWS, attend
from anyshape.attention.gluon_tiles import (
    CHUNK,
    LN2,
    LOG2E,
    PAGE_TABLE,
    add,
    count_of,
    keys_at,
    load_tile,
    range_at,
    rows_at,
    sequence_of,
    zero_tail,
)
from anyshape.kernels.gluon_parts import (
    accumulator_layout,
    advance,
    line_layout,
    make_channel,
    number_of,
    receive_numbers,
    send,
    take,
)
from anyshape.kernels.launches import quick

CONSUMERS = gl.constexpr(2)


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
    q_stages: int
    q_registers: bool
    consumers: int
    few: int
    block_s: int
    tail: bool
    faults: bool
    overlap: bool
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
    starts, lengths, sequences, table, counter, channel, numbers, k_steps, v_steps = loads[1]
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
    q_slot = 0
    q_phase = 1
    at = gl.program_id(0)
    waits = total >= 0
    while at < total:
        s, base = sequence_of(at, ends)
        start, queries = rows_at(starts, s, True, rows)
        key_first, keys = keys_at(lengths, s, True, most, PAGED)
        tile = (queries * SET.group + BM - 1) // BM - 1 - (at - base) // SET.heads
        head = (at - base) % SET.heads
        turn, parity = send(channel, turn, parity, (start, queries, keys, tile, head))
        if not SET.overlap:
            taken = take(counter)
        else:
            taken = gl.zeros([32 * gl.num_warps()], gl.int32, layout)
            if not waits:
                taken = take(counter)
        mbarrier.wait(empty_q.index(q_slot), q_phase)
        mbarrier.expect(
            full_q.index(q_slot), CONSUMERS * (SET.size // CHUNK) * q_desc.block_type.nbytes
        )
        for part in gl.static_range(CONSUMERS):
            for c in gl.static_range(SET.size // CHUNK):
                token = start + (tile * CONSUMERS + part) * TOKENS
                tma.async_copy_global_to_shared(
                    q_desc,
                    [token, head * SET.group, c * CHUNK],
                    full_q.index(q_slot),
                    q_bufs.index((q_slot * CONSUMERS + part) * (SET.size // CHUNK) + c),
                )
        q_slot, q_phase = advance(q_slot, q_phase, SET.q_stages)
        low, from_all, to_all, high = _tile_range(tile, queries, keys, window, 0, BM, SET)
        table_at = table + s.to(gl.int64) * table_row
        for j in range(low, high):
            mbarrier.wait(empty_k.index(slot), phase)
            bad_k = load_tile(
                *(k_desc, k_bufs, full_k.index(slot), slot, j, key_first, keys, head, table_at),
                *(k_steps, SET, SET.size // CHUNK),
            )
            mbarrier.wait(empty_v.index(slot), phase)
            bad_v = load_tile(
                *(v_desc, v_bufs, full_v.index(slot), slot, j, key_first, keys, head, table_at),
                *(v_steps, SET, SET.value_size // CHUNK),
            )
            bad = bad | bad_k | bad_v
            slot, phase = advance(slot, phase, SET.stages)
        if SET.overlap:
            if waits:
                gdc_wait()
                taken = take(counter)
            waits = total < 0
        at = gl.sum(taken, 0) + gl.num_programs(0)
    if SET.overlap:
        gdc_wait()
    if SET.faults:
        if bad:
            gl.atomic_or(faults, PAGE_TABLE)
    send(channel, turn, parity, (-1, 0, 0, 0, 0))


@gluon.jit
def _attend(
    work, work_numbers, slot, phase, q_slot, q_phase, PART: gl.constexpr, SET: gl.constexpr
):
    """(sums [64, DV], maxima, sums of weights, rows, stage of the ring) of this part of a tile."""
    start, queries, keys, tile, head = work_numbers
    window = work[4][2]
    BM: gl.constexpr = CONSUMERS * ROWS
    s_layout: gl.constexpr = accumulator_layout(gl.num_warps(), SET.bn, 16)
    low, from_all, to_all, high = _tile_range(tile, queries, keys, window, 0, BM, SET)
    mine = _tile_range(tile, queries, keys, window, PART * ROWS, ROWS, SET)
    row = tile * BM + PART * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))
    seen = (keys - queries + row // SET.group, keys)
    # with a window, the first tiles need a mask too
    middle = low + 1
    if not SET.windowed:
        middle = gl.minimum(gl.maximum(mine[2], low + 1), high)
    o, m, l, slot, phase = attend(
        work, seen, low, middle, high, slot, phase, q_slot, q_phase, PART, SET
    )
    return o, m, l, row, slot, phase


@gluon.jit
def _store(o, m, l, row, work_numbers, target, SET: gl.constexpr):
    """Divide by the sums and store the rows there are."""
    out, totals, sinks, out_token, out_head, totals_token = target
    start, queries, keys, tile, head = work_numbers
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
def _consume(work, channel, target, PART: gl.constexpr, SET: gl.constexpr):
    """Attend and store this part's rows of every tile."""
    slot = 0
    phase = 0
    q_slot = 0
    q_phase = 0
    value, turn, parity = receive_numbers(channel, 0, 0)
    start = number_of(value, 0)
    while start >= 0:
        numbers = (
            start,
            number_of(value, 1),
            number_of(value, 2),
            number_of(value, 3),
            number_of(value, 4),
        )
        o, m, l, row, slot, phase = _attend(work, numbers, slot, phase, q_slot, q_phase, PART, SET)
        q_slot, q_phase = advance(q_slot, q_phase, SET.q_stages)
        _store(o, m, l, row, numbers, target, SET)
        value, turn, parity = receive_numbers(channel, turn, parity)
        start = number_of(value, 0)


@gluon.jit
def _part(loads, work, channel, target, PART: gl.constexpr, SET: gl.constexpr):
    """What one part of the kernel does: the last one loads, the others multiply."""
    if PART < CONSUMERS:
        _consume(work, channel, target, PART, SET)
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
        dtype, [SET.q_stages * CONSUMERS * K_CHUNKS] + q_desc.block_type.shape, q_desc.layout
    )
    k_loads = gl.allocate_shared_memory(
        dtype, [STAGES * K_CHUNKS * BOXES] + k_desc.block_type.shape, k_desc.layout
    )
    v_loads = gl.allocate_shared_memory(
        dtype, [STAGES * V_CHUNKS * BOXES] + v_desc.block_type.shape, v_desc.layout
    )
    q_shape: gl.constexpr = [SET.q_stages * CONSUMERS * K_CHUNKS, ROWS, CHUNK]
    k_shape: gl.constexpr = [STAGES * K_CHUNKS, SET.bn, CHUNK]
    v_shape: gl.constexpr = [STAGES, SET.bn, SET.value_size]
    q_bufs = q_loads._reinterpret(dtype, q_shape, flat)  # noqa: SLF001
    k_bufs = k_loads._reinterpret(dtype, k_shape, flat)  # noqa: SLF001
    v_bufs = v_loads._reinterpret(dtype, v_shape, flat)  # noqa: SLF001
    Q_STAGES: gl.constexpr = SET.q_stages
    full_q = gl.allocate_shared_memory(gl.int64, [Q_STAGES, 1], mbarrier.MBarrierLayout())
    empty_q = gl.allocate_shared_memory(gl.int64, [Q_STAGES, 1], mbarrier.MBarrierLayout())
    full_k = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty_k = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full_v = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty_v = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(Q_STAGES):
        mbarrier.init(full_q.index(i), count=1)
        mbarrier.init(empty_q.index(i), count=CONSUMERS)
    for i in gl.static_range(STAGES):
        mbarrier.init(full_k.index(i), count=1)
        mbarrier.init(full_v.index(i), count=1)
        mbarrier.init(empty_k.index(i), count=CONSUMERS)
        mbarrier.init(empty_v.index(i), count=CONSUMERS)
    channel = make_channel(CONSUMERS)
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
            channel,
            (rows, capacity, most, table_row, window),
            (k_row_page, k_row_head, k_column_head, pages),
            (v_row_page, v_row_head, v_column_head, pages),
        ),
        (out, totals, faults, (out_token, out_head, totals_token)),
    )
    work = (q_bufs, k_bufs, v_bufs, bars, (factor, soft_cap, window))
    target = (out, totals, sinks, out_token, out_head, totals_token)
    gl.warp_specialize(
        [(_part, (loads, work, channel, target, part, SET)) for part in (0, 1, 2)],
        [4, 1],
        [SET.consumer_registers, SET.producer_registers],
    )
