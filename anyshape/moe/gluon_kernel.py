"""The grouped product for Hopper, in Gluon: one warp loads tiles by TMA, one to three warpgroups
multiply and store.

Tiles of all groups form one list, whose length and order every part of the kernel works out from
the group sizes on the device; a persistent program takes every n-th of them, and its loads run
ahead across tiles. The ring of STAGES tiles is guarded by two barriers a stage, "full" and "empty".
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

from anyshape.moe.gemm_tiles import Tile
from anyshape.moe.gluon_epilogue import activate, finish, store, store_tile
from anyshape.moe.gluon_gather import copy_rows, row_pointers
from anyshape.moe.gluon_tiles import (
    accumulator_layout,
    advance,
    final_layout,
    line_layout,
    locate,
    pick,
    plan,
)
from anyshape.moe.launches import quick


@dataclass(frozen=True, slots=True)
class Settings:
    """What a kernel is compiled for: a tile, room for the groups, which operands there are, what
    becomes of the sums, and how many registers each part gets.

    `gated`: half of a tile's rows of w are gates and half are ups, which lie `apart` unless they
    alternate. `gather`: the rows are those of x that `gather_indices` names. `staged`: results
    leave by way of shared memory, in two `halves` perhaps.
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
    halves: bool
    gated: bool
    apart: bool
    kind: str
    gather: bool
    consumer_registers: int
    producer_registers: int


@gluon.jit
def _copy_pieces(buffers, slot, pointers, live, k, PIECES: gl.constexpr):
    """Start copying elements k and on of the rows of all pieces that are live."""
    for i in gl.static_range(PIECES):
        if i < live:
            copy_rows(buffers.index(slot * PIECES + i), pointers[i], k)


@gluon.jit
def _produce(loads, SET: gl.constexpr):
    """Load the pieces of every tile, `inner` by `inner`, into the ring."""
    x_desc, w_desc, x_bufs, w_bufs, full, empty, sizes, x, gather_indices = loads[0]
    groups, rows, columns, inner, x_row = loads[1]
    WM: gl.constexpr = SET.tile.wm
    WN: gl.constexpr = SET.tile.wn
    BK: gl.constexpr = SET.tile.bk
    PIECES_M: gl.constexpr = SET.tile.pieces_m
    TILE_M: gl.constexpr = WM * PIECES_M
    HALF: gl.constexpr = pick(SET.gated, WN // 2, WN)
    TILE_N: gl.constexpr = HALF * SET.tile.pieces_n
    LOADS: gl.constexpr = pick(SET.apart, 2, SET.tile.pieces_n)
    w_bytes: gl.constexpr = LOADS * w_desc.block_type.nbytes
    x_bytes: gl.constexpr = x_desc.block_type.nbytes
    layout: gl.constexpr = line_layout(gl.num_warps())
    tiles_n = (columns + TILE_N - 1) // TILE_N
    row_ends, ends, total = plan(
        sizes, groups, rows, tiles_n, TILE_M, SET.block_g, SET.init_tail, layout
    )
    slot = 0
    phase = 1
    for tile in range(gl.program_id(0), total, gl.num_programs(0)):
        group, start, count, tile_m, tile_n = locate(
            tile, row_ends, ends, groups, rows, tiles_n, TILE_M, SET.tile.band
        )
        first_row = start + tile_m * TILE_M
        if SET.apart:
            w_row = group * columns * 2 + tile_n * HALF
            step = columns
        else:
            w_row = group * columns * (WN // HALF) + tile_n * (WN * SET.tile.pieces_n)
            step = columns * 0 + WN
        live = gl.minimum((count - tile_m * TILE_M + WM - 1) // WM, PIECES_M)
        pointers = ()
        if SET.gather:
            for i in gl.static_range(PIECES_M):
                row = tile_m * TILE_M + i * WM
                of = row_pointers(x, gather_indices + start, row, count, x_row, WM, BK)
                pointers = pointers + (of,)
        if group < groups:
            for k in range(0, inner, BK):
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                if SET.gather:
                    mbarrier.expect(bar, w_bytes)
                else:
                    for i in gl.static_range(PIECES_M):
                        mbarrier.expect(bar, w_bytes + (i + 1) * x_bytes, pred=live == i + 1)
                for i in gl.static_range(LOADS):
                    tma.async_copy_global_to_shared(
                        w_desc, [w_row + i * step, k], bar, w_bufs.index(slot * LOADS + i)
                    )
                if SET.gather:
                    _copy_pieces(x_bufs, slot, pointers, live, k, PIECES_M)
                    async_copy.mbarrier_arrive(bar, increment_count=False)
                else:
                    for i in gl.static_range(PIECES_M):
                        tma.async_copy_global_to_shared(
                            x_desc,
                            [first_row + i * WM, k],
                            bar,
                            x_bufs.index(slot * PIECES_M + i),
                            pred=i < live,
                        )
                slot, phase = advance(slot, phase, SET.tile.stages)


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
def _consume(work, PIECE: gl.constexpr, SET: gl.constexpr):
    """Multiply and store piece PIECE of every tile."""
    ring, operands, numbers = work
    sizes, out, out_desc, out_bufs, scatter_indices = operands[0]
    x_scales, w_scales, bias, row_weights = operands[1]
    groups, rows, columns, inner, stride_out, stride_bias = numbers[0]
    weight_token, weight_group, alpha, limit = numbers[1]
    WM: gl.constexpr = SET.tile.wm
    WN: gl.constexpr = SET.tile.wn
    SWAP: gl.constexpr = SET.tile.swap
    OUT_N: gl.constexpr = pick(SET.gated, WN // 2, WN)
    TILE_M: gl.constexpr = WM * SET.tile.pieces_m
    TILE_N: gl.constexpr = OUT_N * SET.tile.pieces_n
    FIRST: gl.constexpr = pick(SWAP, WN, WM)
    SECOND: gl.constexpr = pick(SWAP, WM, WN)
    dtype: gl.constexpr = out.dtype.element_ty
    k_width: gl.constexpr = 256 // ring[0].dtype.primitive_bitwidth
    mma: gl.constexpr = accumulator_layout(gl.num_warps(), SECOND, k_width)
    final: gl.constexpr = final_layout(SWAP, mma, gl.num_warps())
    layout: gl.constexpr = line_layout(gl.num_warps())
    tiles_n = (columns + TILE_N - 1) // TILE_N
    row_ends, ends, total = plan(
        sizes, groups, rows, tiles_n, TILE_M, SET.block_g, SET.init_tail, layout
    )
    slot = 0
    phase = 0
    for tile in range(gl.program_id(0), total, gl.num_programs(0)):
        group, start, count, tile_m, tile_n = locate(
            tile, row_ends, ends, groups, rows, tiles_n, TILE_M, SET.tile.band
        )
        row = tile_m * TILE_M + PIECE % SET.tile.pieces_m * WM
        column = tile_n * TILE_N + PIECE // SET.tile.pieces_m * OUT_N
        acc = gl.zeros([FIRST, SECOND], gl.float32, mma)
        place = (out, scatter_indices, start, row, column, count, columns, stride_out)
        if (group < groups) & (row < count):
            acc, slot, phase = _multiply(acc, ring, slot, phase, inner, PIECE, SET)
            if SET.gated:
                biases = bias + group * stride_bias
                value = activate(acc, biases, column, columns, alpha, limit, SET).to(dtype)
            else:
                if SWAP:
                    value = gl.convert_layout(acc, final)
                else:
                    value = acc
                factors = (row_weights, scatter_indices, weight_token, weight_group)
                others = (x_scales, w_scales, bias, stride_bias)
                where = (group, start, row, column, count, columns)
                value = finish(value, where, others, factors, SET).to(dtype)
            if SET.staged:
                store_tile(value, out_desc, out_bufs.index(PIECE), place, WM, OUT_N, SET)
            else:
                store(value, place, SWAP, SET.scatter, WM, OUT_N)
        elif group < groups:
            for _ in range(0, inner, SET.tile.bk):
                mbarrier.wait(ring[2].index(slot), phase)
                mbarrier.arrive(ring[3].index(slot), count=1)
                slot, phase = advance(slot, phase, SET.tile.stages)
        elif SET.init_tail:
            nothing = gl.zeros([pick(SWAP, OUT_N, WM), pick(SWAP, WM, OUT_N)], dtype, final)
            store(nothing, place, SWAP, False, WM, OUT_N)
    if SET.staged:
        tma.store_wait(0)


@gluon.jit
def _part(loads, work, PART: gl.constexpr, SET: gl.constexpr):
    """What one part of the kernel does: the last one loads, the others multiply."""
    if PART < SET.tile.pieces_m * SET.tile.pieces_n:
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
    LOADS: gl.constexpr = pick(SET.apart, 2, SET.tile.pieces_n)
    PRODUCER_WARPS: gl.constexpr = pick(SET.gather, 4, 1)
    x_bufs = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * SET.tile.pieces_m] + x_desc.block_type.shape, x_desc.layout
    )
    w_bufs = gl.allocate_shared_memory(
        w_desc.dtype, [STAGES * LOADS] + w_desc.block_type.shape, w_desc.layout
    )
    if SET.apart:
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
    fence_async_shared()
    loads = (
        (x_desc, w_desc, x_bufs, w_bufs, full, empty, sizes, x, gather_indices),
        (groups, rows, columns, inner, x_row),
    )
    operands = (
        (sizes, out, out_desc, out_bufs, scatter_indices),
        (x_scales, w_scales, bias, row_weights),
    )
    numbers = (
        (groups, rows, columns, inner, stride_out, stride_bias),
        (weight_token, weight_group, alpha, limit),
    )
    work = ((x_bufs, w_pieces, full, empty), operands, numbers)
    gl.warp_specialize(
        [(_part, (loads, work, part, SET)) for part in (0, 1, 2, 3)[: CONSUMERS + 1]],
        [4] * (CONSUMERS - 1) + [PRODUCER_WARPS],
        [SET.consumer_registers] * (CONSUMERS - 1) + [SET.producer_registers],
    )
