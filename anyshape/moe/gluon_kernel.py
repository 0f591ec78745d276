"""The grouped product for Hopper, in Gluon: one warp loads tiles by TMA, one to three warpgroups
multiply and store.

Tiles of all groups form one list, whose length and order the loading part works out from the group
sizes on the device. Programs stay, and take the next tile that nobody has taken; loads run ahead
across tiles, and the consumers are sent where each tile is. The ring of STAGES tiles is guarded by
two barriers a stage, "full" and "empty".
Each consumer has its own WM x WN piece of a tile; they share what they have in common, and a piece
without rows is neither loaded nor multiplied. With SWAP the weights are the first operand, so that
groups of a few rows fill the tensor cores' 64 rows with weights instead of padding.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from anyshape.kernels.gluon_parts import (
    accumulator_layout,
    advance,
    line_layout,
    make_channel,
    pick,
    send,
    take,
)
from anyshape.kernels.launches import quick
from anyshape.moe.gemm_tiles import Tile
from anyshape.moe.gluon_epilogue import (
    activate,
    finish,
    split_gates,
    store,
    store_tile,
)
from anyshape.moe.gluon_gather import copy_rows, row_pointers
from anyshape.moe.gluon_tiles import final_layout, locate, plan, receive


@dataclass(frozen=True, slots=True)
class Settings:
    """What a kernel is compiled for: a tile, room for the groups, which operands there are, what
    becomes of the sums, and how many registers each part gets.

    `gated`: half of a tile's rows of w are gates and half are ups, which lie `separate` unless they
    alternate. `gather`: the rows are those of x that `gather_indices` names. `staged`: results
    leave by way of shared memory.
    """

    tile: Tile
    block_g: int
    init_tail: bool
    scaled: bool
    biased: bool
    weighted: bool
    factors: bool
    scatter: bool
    staged: bool
    gated: bool
    separate: bool
    kind: str
    gather: bool
    consumer_registers: int
    producer_registers: int


@gluon.jit
def _expect(loads, bar, live, SET: gl.constexpr):
    """Say how many bytes will come by TMA: weights, and the rows that are not copied by index."""
    x_desc, w_desc, x_bufs, w_bufs, full, empty = loads
    PIECES: gl.constexpr = SET.tile.pieces_m
    w_bytes: gl.constexpr = pick(SET.separate, 2, SET.tile.pieces_n) * w_desc.block_type.nbytes
    x_bytes: gl.constexpr = x_desc.block_type.nbytes
    if SET.gather:
        mbarrier.expect(bar, w_bytes)
    else:
        for i in gl.static_range(PIECES):
            mbarrier.expect(bar, w_bytes + (i + 1) * x_bytes, pred=live == i + 1)


@gluon.jit
def _load_rows(loads, bar, slot, k, row, live, pointers, SET: gl.constexpr):
    """Start copying elements k and on of the rows of all pieces that are live: by index, or by TMA
    from `row` on.
    """
    x_desc, w_desc, x_bufs, w_bufs, full, empty = loads
    PIECES: gl.constexpr = SET.tile.pieces_m
    if SET.gather:
        for i in gl.static_range(PIECES):
            if i < live:
                copy_rows(x_bufs.index(slot * PIECES + i), pointers[i], k)
        async_copy.mbarrier_arrive(bar, increment_count=False)
    else:
        for i in gl.static_range(PIECES):
            position = [row + i * SET.tile.wm, k]
            buffer = x_bufs.index(slot * PIECES + i)
            tma.async_copy_global_to_shared(x_desc, position, bar, buffer, pred=i < live)


@gluon.jit
def _produce(loads, SET: gl.constexpr):
    """Load the pieces of every tile, `inner` by `inner`, into the ring."""
    x_desc, w_desc, x_bufs, w_bufs, full, empty = loads[0]
    sizes, counter, channel, x, gather_indices, groups, rows, columns, inner, x_stride = loads[1]
    WM: gl.constexpr = SET.tile.wm
    WN: gl.constexpr = SET.tile.wn
    BK: gl.constexpr = SET.tile.bk
    PIECES: gl.constexpr = SET.tile.pieces_m
    HALF: gl.constexpr = pick(SET.gated, WN // 2, WN)
    LOADS: gl.constexpr = pick(SET.separate, 2, SET.tile.pieces_n)
    layout: gl.constexpr = line_layout(gl.num_warps())
    tiles_n = (columns + HALF * SET.tile.pieces_n - 1) // (HALF * SET.tile.pieces_n)
    row_ends, ends, total = plan(
        sizes, groups, rows, tiles_n, SET.tile.rows, SET.block_g, SET.init_tail, layout
    )
    slot = 0
    phase = 1
    turn = 0
    parity = 1
    tile = gl.program_id(0)
    while tile < total:
        group, start, count, row, tile_n = locate(tile, row_ends, ends, groups, rows, tiles_n, SET)
        message = (group, start, count, row, tile_n)
        turn, parity = send(channel, turn, parity, message)
        taken = take(counter)
        if SET.separate:
            w_row = group * columns * 2 + tile_n * HALF
            step = columns
        else:
            w_row = group * columns * (WN // HALF) + tile_n * (WN * SET.tile.pieces_n)
            step = columns * 0 + WN
        live = gl.minimum((count - row + WM - 1) // WM, PIECES)
        pointers = ()
        if SET.gather:
            indices = gather_indices + start
            for i in gl.static_range(PIECES):
                of = row_pointers(x, indices, row + i * WM, count, x_stride, WM, BK)
                pointers = pointers + (of,)
        if group < groups:
            for k in range(0, inner, BK):
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                _expect(loads[0], bar, live, SET)
                for i in gl.static_range(LOADS):
                    tma.async_copy_global_to_shared(
                        w_desc, [w_row + i * step, k], bar, w_bufs.index(slot * LOADS + i)
                    )
                _load_rows(loads[0], bar, slot, k, start + row, live, pointers, SET)
                slot, phase = advance(slot, phase, SET.tile.stages)
        tile = gl.sum(taken, 0) + gl.num_programs(0)
    send(channel, turn, parity, (-1, 0, 0, 0, 0))


@gluon.jit
def _multiply(acc, ring, slot, phase, inner, PIECE: gl.constexpr, SET: gl.constexpr):
    """acc plus the product of piece PIECE of a tile, and where in the ring the next tile begins."""
    x_bufs, w_bufs, full, empty = ring
    STAGES: gl.constexpr = SET.tile.stages
    PIECES_M: gl.constexpr = SET.tile.pieces_m
    for k in range(0, inner, SET.tile.bk):
        mbarrier.wait(full.index(slot), phase)
        if SET.gather:
            fence_async_shared()
        x_buf = x_bufs.index(slot * PIECES_M + PIECE % PIECES_M)
        w_buf = w_bufs.index(slot * SET.tile.pieces_n + PIECE // PIECES_M)
        if SET.tile.swap:
            acc = warpgroup_mma(w_buf, x_buf.permute((1, 0)), acc, is_async=True)
        else:
            acc = warpgroup_mma(x_buf, w_buf.permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
        mbarrier.arrive(empty.index((slot + STAGES - 1) % STAGES), count=1, pred=k > 0)
        slot, phase = advance(slot, phase, STAGES)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
    mbarrier.arrive(empty.index((slot + STAGES - 1) % STAGES), count=1)
    return acc, slot, phase


@gluon.jit
def _finish(acc, where, endings, SWAP: gl.constexpr, SET: gl.constexpr):
    """What is stored of sums: act(gate) * up, or the sums scaled, biased and weighted."""
    others, factors, curve = endings
    if SET.gated:
        gate, up = split_gates(acc, SET.separate)
        return activate(gate, up, where, others, curve, SWAP, SET)
    else:
        return finish(acc, where, others, factors, SWAP, SET)


@gluon.jit
def _skip(ring, slot, phase, inner, SET: gl.constexpr):
    """Let a tile's loads pass: this piece has no rows."""
    x_bufs, w_bufs, full, empty = ring
    for _ in range(0, inner, SET.tile.bk):
        mbarrier.wait(full.index(slot), phase)
        mbarrier.arrive(empty.index(slot), count=1)
        slot, phase = advance(slot, phase, SET.tile.stages)
    return slot, phase


@gluon.jit
def _consume(work, PIECE: gl.constexpr, SET: gl.constexpr):
    """Multiply and store piece PIECE of every tile."""
    ring, channel, out_desc, out_bufs, target, endings, numbers = work
    groups, columns, inner = numbers
    WM: gl.constexpr = SET.tile.wm
    WN: gl.constexpr = SET.tile.wn
    SWAP: gl.constexpr = SET.tile.swap
    OUT_N: gl.constexpr = pick(SET.gated, WN // 2, WN)
    TILE_N: gl.constexpr = OUT_N * SET.tile.pieces_n
    FIRST: gl.constexpr = pick(SWAP, WN, WM)
    SECOND: gl.constexpr = pick(SWAP, WM, WN)
    dtype: gl.constexpr = target[0].dtype.element_ty
    k_width: gl.constexpr = 256 // ring[0].dtype.primitive_bitwidth
    mma: gl.constexpr = accumulator_layout(gl.num_warps(), SECOND, k_width)
    final: gl.constexpr = final_layout(SWAP, mma, gl.num_warps())
    slot = 0
    phase = 0
    group, start, count, top, tile_n, turn, parity = receive(channel, 0, 0)
    while group >= 0:
        row = top + PIECE % SET.tile.pieces_m * WM
        column = tile_n * TILE_N + PIECE // SET.tile.pieces_m * OUT_N
        where = (group, start, row, column, count, columns)
        acc = gl.zeros([FIRST, SECOND], gl.float32, mma)
        if (group < groups) & (row < count):
            acc, slot, phase = _multiply(acc, ring, slot, phase, inner, PIECE, SET)
            if SWAP:
                sums = gl.convert_layout(acc, final)
            else:
                sums = acc
            value = _finish(sums, where, endings, SWAP, SET).to(dtype)
            if SET.staged:
                store_tile(value, out_desc, out_bufs.index(PIECE), target, where, SET.scatter)
            else:
                store(value, target, where, SWAP, SET.scatter)
        elif group < groups:
            slot, phase = _skip(ring, slot, phase, inner, SET)
        elif SET.init_tail:
            nothing = gl.zeros([pick(SWAP, OUT_N, WM), pick(SWAP, WM, OUT_N)], dtype, final)
            store(nothing, target, where, SWAP, False)
        group, start, count, top, tile_n, turn, parity = receive(channel, turn, parity)
    if SET.staged:
        tma.store_wait(0)


@gluon.jit
def _part(loads, work, PART: gl.constexpr, SET: gl.constexpr):
    """What one part of the kernel does: the last one loads, the others multiply."""
    CONSUMERS: gl.constexpr = SET.tile.pieces_m * SET.tile.pieces_n
    if PART < CONSUMERS:
        _consume(work, PART, SET)
    else:
        _produce(loads, SET)


@quick
@gluon.jit(do_not_specialize=["rows", "groups"])
def grouped_gemm_kernel(
    x_desc,
    w_desc,
    out_desc,
    sizes,
    counter,
    x,
    out,
    gather_indices,
    scatter_indices,
    x_scales,
    w_scales,
    bias,
    row_weights,
    groups,
    rows,
    columns,
    inner,
    x_row,
    stride_out,
    stride_bias,
    weight_token,
    weight_group,
    alpha,
    limit,
    SET: gl.constexpr,
    num_warps: gl.constexpr,
):
    """out = (x @ w.T) group by group; see the module."""
    STAGES: gl.constexpr = SET.tile.stages
    CONSUMERS: gl.constexpr = SET.tile.pieces_m * SET.tile.pieces_n
    LOADS: gl.constexpr = pick(SET.separate, 2, SET.tile.pieces_n)
    PRODUCER_WARPS: gl.constexpr = pick(SET.gather, 4, 1)
    x_bufs = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * SET.tile.pieces_m] + x_desc.block_type.shape, x_desc.layout
    )
    w_bufs = gl.allocate_shared_memory(
        w_desc.dtype, [STAGES * LOADS] + w_desc.block_type.shape, w_desc.layout
    )
    if SET.separate:
        shape: gl.constexpr = [STAGES, SET.tile.wn, SET.tile.bk]
        w_pieces = w_bufs._reinterpret(w_desc.dtype, shape, w_desc.layout)  # noqa: SLF001
    else:
        w_pieces = w_bufs
    if SET.staged:
        out_bufs = gl.allocate_shared_memory(
            out_desc.dtype, [CONSUMERS] + out_desc.block_type.shape, out_desc.layout
        )
    else:
        out_bufs = x_bufs
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1 + 32 * PRODUCER_WARPS * SET.gather)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    channel = make_channel(CONSUMERS)
    fence_async_shared()
    loads = (
        (x_desc, w_desc, x_bufs, w_bufs, full, empty),
        (sizes, counter, channel, x, gather_indices, groups, rows, columns, inner, x_row),
    )
    endings = (
        (x_scales, w_scales, bias, stride_bias),
        (row_weights, scatter_indices, weight_token, weight_group),
        (alpha, limit),
    )
    ring = (x_bufs, w_pieces, full, empty)
    target = (out, scatter_indices, stride_out)
    numbers = (groups, columns, inner)
    work = (ring, channel, out_desc, out_bufs, target, endings, numbers)
    gl.warp_specialize(
        [(_part, (loads, work, part, SET)) for part in (0, 1, 2, 3)[: CONSUMERS + 1]],
        [4] * (CONSUMERS - 1) + [PRODUCER_WARPS],
        [SET.consumer_registers] * (CONSUMERS - 1) + [SET.producer_registers],
    )
