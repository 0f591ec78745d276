"""Few queries a sequence (decoding) on Hopper, in Gluon: one warp loads by TMA, and one warpgroup
multiplies.

The work and its division are those of `triton_split`, whose second launch adds up what was cut. The
loads run ahead from one sequence to the next, so that reading never stops. The queries of a
sequence, with the heads of a group, are rows of one product of 64 rows, most of which are nobody's.
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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from anyshape.attention.gluon_attend import ROWS, attend
from anyshape.attention.gluon_tiles import (
    CHUNK,
    LOG2E,
    PAGE_TABLE,
    add,
    count_of,
    keys_at,
    load_tile,
    note_faults,
    power_of_2,
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
)
from anyshape.kernels.launches import quick


@dataclass(frozen=True, slots=True)
class Settings:
    """What the kernel is compiled for. `heads` are parts of `group` heads each, and `parts` of them
    share a key head; a `box` is what one load brings, rows of one page. Sequences of more than
    `few` queries are left out, and with a `limit` there must be none of more. `programs`,
    `min_tiles` and `splits` divide the work. `q_rows` of the ROWS of a product are loaded: 8, 16,
    32 or 64. With `counts`, the counter of the
    launch behind it is set to 0.
    """

    group: int
    parts: int
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
    q_rows: int
    few: int
    limit: int
    block_s: int
    programs: int
    min_tiles: int
    splits: int
    causal: bool
    windowed: bool
    capped: bool
    sinks: bool
    given: bool
    totals: bool
    tail: bool
    faults: bool
    counts: bool
    overlap: bool
    consumer_registers: int
    producer_registers: int


@gluon.jit
def _split_of(queries, keys, window, SET: gl.constexpr):
    """(first tile of keys, tiles, tiles a step); see `triton_plan.split_of`."""
    low = keys * 0
    if SET.windowed:
        low = gl.minimum(gl.maximum(keys - queries - window + 1, 0), keys) // SET.bn
    tiles = gl.maximum((keys + SET.bn - 1) // SET.bn - low, 1)
    size = tiles * 0 + 1
    if SET.splits:
        size = gl.maximum((tiles + SET.splits - 1) // SET.splits, SET.min_tiles)
    return low, tiles, size


@gluon.jit
def _next_part(at, base, begin, stop, s, tiles, size, SET: gl.constexpr):
    """(tile, head, tile of the head, tiles to take, slot); see `triton_plan.next_part`. The slot is
    -1 for all tiles of a head.
    """
    head = (at - base) // tiles
    tile = (at - base) - head * tiles
    taken = gl.minimum(tiles - tile, stop - at)
    position = gl.program_id(0) * 2 + (at > begin).to(gl.int32)
    if SET.splits:
        part = (tile + size - 1) // size
        at += gl.minimum(part * size, tiles) - tile
        tile = part * size
        taken = gl.where(at < stop, gl.minimum(size, tiles - tile), 0)
        position = (s * SET.heads + head) * SET.splits + part
    return at, head, tile, taken, gl.where(taken == tiles, -1, position)


@gluon.jit
def _load_segment(loads, segment, table_at, ring, SET: gl.constexpr):
    """Load a sequence's queries of a head and a range of its keys and values. Returns the slots of
    the rings, and whether a page does not exist.
    """
    q_desc, k_desc, v_desc, q_bufs, k_bufs, v_bufs, bars = loads[0]
    k_steps, v_steps = loads[1][7], loads[1][8]
    full_q, empty_q, full_k, empty_k, full_v, empty_v = bars
    start, keys, head, first, end = segment
    slot, phase, q_slot, q_phase = ring
    CHUNKS: gl.constexpr = SET.size // CHUNK
    mbarrier.wait(empty_q.index(q_slot), q_phase)
    mbarrier.expect(full_q.index(q_slot), CHUNKS * q_desc.block_type.nbytes)
    for c in gl.static_range(CHUNKS):
        tma.async_copy_global_to_shared(
            q_desc,
            [start, head * SET.group, c * CHUNK],
            full_q.index(q_slot),
            q_bufs.index(q_slot * CHUNKS + c),
        )
    q_slot, q_phase = advance(q_slot, q_phase, SET.q_stages)
    key_head = head // SET.parts
    bad = keys < 0
    for j in range(first, end):
        mbarrier.wait(empty_k.index(slot), phase)
        bad_k = load_tile(
            *(k_desc, k_bufs, full_k.index(slot), slot, j, 0, keys, key_head, table_at),
            *(k_steps, SET, CHUNKS),
        )
        mbarrier.wait(empty_v.index(slot), phase)
        bad_v = load_tile(
            *(v_desc, v_bufs, full_v.index(slot), slot, j, 0, keys, key_head, table_at),
            *(v_steps, SET, SET.value_size // CHUNK),
        )
        bad = bad | bad_k | bad_v
        slot, phase = advance(slot, phase, SET.stages)
    return (slot, phase, q_slot, q_phase), bad


@gluon.jit
def _produce(loads, SET: gl.constexpr):
    """Load the queries, keys and values of this program's piece of the work."""
    starts, lengths, sequences, table, counter, channel, numbers, k_steps, v_steps = loads[1]
    out, faults, strides = loads[2]
    rows, capacity, most, table_row, window = numbers
    layout: gl.constexpr = line_layout(gl.num_warps())
    program = gl.program_id(0)
    if SET.overlap:
        gdc_wait()
        gdc_launch_dependents()
    count = count_of(sequences, capacity, SET.given)
    index = gl.arange(0, SET.block_s, layout)
    real = index < count
    all_queries = rows_at(starts, index, real, rows)[1]
    all_keys = keys_at(lengths, index, real, most, True)[1]
    all_tiles = _split_of(all_queries, all_keys, window, SET)[1]
    here = (all_queries > 0) & (all_queries <= SET.few)
    all_tiles = gl.where(here, all_tiles * SET.heads, 0)
    ends = gl.associative_scan(all_tiles, 0, add)
    total = gl.sum(all_tiles, 0)
    bad = total < 0
    piece = (total + SET.programs - 1) // SET.programs
    if not SET.splits:
        piece = gl.maximum(piece, SET.min_tiles)
    begin = program * piece
    stop = gl.minimum(begin + piece, total)
    at = begin
    s, base = sequence_of(at, ends)
    turn = 0
    parity = 1
    ring = (0, 1, 0, 1)
    while at < stop:
        start, queries = rows_at(starts, s, True, rows)
        keys = keys_at(lengths, s, True, most, True)[1]
        if (queries == 0) | (queries > SET.few):
            s += 1
        else:
            low, tiles, size = _split_of(queries, keys, window, SET)
            at, head, tile, taken, position = _next_part(at, base, begin, stop, s, tiles, size, SET)
            if taken > 0:
                first = low + tile
                message = (start, queries, keys, head, first, first + taken, position)
                turn, parity = send(channel, turn, parity, message, 7)
                ring, gone = _load_segment(
                    loads, (start, keys, head, first, first + taken),
                    table + s.to(gl.int64) * table_row, ring, SET,
                )  # fmt: skip
                bad = bad | gone
                at += taken
            if at == base + tiles * SET.heads:
                base = at
                s += 1
    send(channel, turn, parity, (-1, 0, 0, 0, 0, 0, 0), 7)
    if SET.tail:
        end = gl.minimum(gl.maximum(gl.load(starts + count).to(gl.int32), 0), rows)
        zero_tail(out, out, end, rows, strides, layout, SET)
    if SET.faults:
        if program == 0:
            note_faults(faults, starts, lengths, index, real, rows, most, SET.limit)
    if SET.counts:
        if program == 0:
            gl.store(counter, 0)
    if SET.faults:
        if bad:
            gl.atomic_or(faults, PAGE_TABLE)


@gluon.jit
def _store(o, m, l, row, numbers, target, SET: gl.constexpr):
    """Store a whole result, or leave a part of it in its slot."""
    out, slots, sums, sinks, out_token, out_head = target
    start, queries, head, position = numbers
    DV: gl.constexpr = SET.value_size
    o_layout: gl.constexpr = o.type.layout
    side: gl.constexpr = gl.SliceLayout(1, o_layout)
    column = gl.arange(0, DV, gl.SliceLayout(0, o_layout))
    real = row // SET.group < queries
    of = head * SET.group + row % SET.group
    mask = gl.convert_layout(real, side)[:, None]
    if position < 0:
        shrink = gl.full_like(m, 1.0)
        if SET.sinks:
            sink = gl.load(sinks + of, mask=real, other=0.0).to(gl.float32) * LOG2E
            new = gl.maximum(m, sink)
            safe = gl.where(new == float("-inf"), 0.0, new)
            shrink = power_of_2(m - safe)
            l = l * shrink + power_of_2(sink - safe)
        factor = gl.where(l > 0.0, shrink / l, 0.0)
        value = (o * gl.convert_layout(factor, side)[:, None]).to(out.dtype.element_ty)
        token = (start + row // SET.group).to(gl.int64)
        at = gl.convert_layout(token * out_token + of * out_head, side)
        gl.store(out + at[:, None] + column[None, :], value, mask=mask)
    else:
        line = position.to(gl.int64) * (SET.few * SET.group) + row
        at = gl.convert_layout(line * DV, side)
        gl.store(slots + at[:, None] + column[None, :], o, mask=mask)
        gl.store(sums + line * 2, m, mask=real)
        gl.store(sums + line * 2 + 1, l, mask=real)


@gluon.jit
def _consume(work, channel, target, SET: gl.constexpr):
    """Attend and store every segment of this program's piece."""
    row_layout: gl.constexpr = gl.SliceLayout(1, accumulator_layout(gl.num_warps(), SET.bn, 16))
    row = gl.arange(0, ROWS, row_layout)
    slot = 0
    phase = 0
    q_slot = 0
    q_phase = 0
    value, turn, parity = receive_numbers(channel, 0, 0)
    start = number_of(value, 0)
    while start >= 0:
        queries = number_of(value, 1)
        keys = number_of(value, 2)
        head = number_of(value, 3)
        first = number_of(value, 4)
        end = number_of(value, 5)
        position = number_of(value, 6)
        seen = (keys - queries + row // SET.group, keys)
        # tiles that all queries see whole
        middle = first + 1
        if not SET.windowed:
            whole = keys
            if SET.causal:
                whole = gl.maximum(gl.minimum(keys - queries + 1, keys), 0)
            middle = gl.minimum(gl.maximum(whole // SET.bn, first + 1), end)
        o, m, l, slot, phase = attend(
            work, seen, first, middle, end, slot, phase, q_slot, q_phase, 0, SET
        )
        q_slot, q_phase = advance(q_slot, q_phase, SET.q_stages)
        _store(o, m, l, row, (start, queries, head, position), target, SET)
        value, turn, parity = receive_numbers(channel, turn, parity)
        start = number_of(value, 0)


@gluon.jit
def _part(loads, work, channel, target, PART: gl.constexpr, SET: gl.constexpr):
    """What one part of the kernel does: the first multiplies, the second loads."""
    if PART == 0:
        _consume(work, channel, target, SET)
    else:
        _produce(loads, SET)


@quick
@gluon.jit(do_not_specialize=["rows", "capacity", "pages", "most", "window"])
def split_kernel(
    q_desc, k_desc, v_desc, starts, lengths, sequences, table, sinks, out, slots, sums,
    faults, counter, rows, capacity, pages, most, table_row, k_row_page, k_row_head, k_column_head,
    v_row_page, v_row_head, v_column_head, out_token, out_head, factor, soft_cap, window,
    SET: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """See the module."""
    STAGES: gl.constexpr = SET.stages
    Q_STAGES: gl.constexpr = SET.q_stages
    K_CHUNKS: gl.constexpr = SET.size // CHUNK
    V_CHUNKS: gl.constexpr = SET.value_size // CHUNK
    BOXES: gl.constexpr = SET.bn // SET.box
    dtype: gl.constexpr = q_desc.dtype
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    # in units of 8 rows and CHUNK columns. A product has ROWS rows of queries: those behind the
    # `q_rows` that are loaded are whatever comes next, and nobody's.
    K_AT: gl.constexpr = Q_STAGES * K_CHUNKS * SET.q_rows // 8
    V_AT: gl.constexpr = K_AT + STAGES * K_CHUNKS * SET.bn // 8
    UNITS: gl.constexpr = V_AT + STAGES * V_CHUNKS * SET.bn // 8
    units = gl.allocate_shared_memory(dtype, [UNITS, 8, CHUNK], flat)
    q_loads = units.index(0)._reinterpret(  # noqa: SLF001
        dtype, [Q_STAGES * K_CHUNKS] + q_desc.block_type.shape, q_desc.layout
    )
    k_loads = units.index(K_AT)._reinterpret(  # noqa: SLF001
        dtype, [STAGES * K_CHUNKS * BOXES] + k_desc.block_type.shape, k_desc.layout
    )
    v_loads = units.index(V_AT)._reinterpret(  # noqa: SLF001
        dtype, [STAGES * V_CHUNKS * BOXES] + v_desc.block_type.shape, v_desc.layout
    )
    k_bufs = units.index(K_AT)._reinterpret(  # noqa: SLF001
        dtype, [STAGES * K_CHUNKS, SET.bn, CHUNK], flat
    )
    v_bufs = units.index(V_AT)._reinterpret(  # noqa: SLF001
        dtype, [STAGES, SET.bn, SET.value_size], flat
    )
    full_q = gl.allocate_shared_memory(gl.int64, [Q_STAGES, 1], mbarrier.MBarrierLayout())
    empty_q = gl.allocate_shared_memory(gl.int64, [Q_STAGES, 1], mbarrier.MBarrierLayout())
    full_k = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty_k = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full_v = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty_v = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(Q_STAGES):
        mbarrier.init(full_q.index(i), count=1)
        mbarrier.init(empty_q.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full_k.index(i), count=1)
        mbarrier.init(full_v.index(i), count=1)
        mbarrier.init(empty_k.index(i), count=1)
        mbarrier.init(empty_v.index(i), count=1)
    channel = make_channel(1)
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
        (out, faults, (out_token, out_head, 0)),
    )
    work = (q_loads, k_bufs, v_bufs, bars, (factor, soft_cap, window))
    target = (out, slots, sums, sinks, out_token, out_head)
    gl.warp_specialize(
        [(_part, (loads, work, channel, target, part, SET)) for part in (0, 1)],
        [1],
        [SET.producer_registers],
    )
