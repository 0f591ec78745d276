"""The grouped product for Hopper, in Gluon: one warp loads tiles by TMA, one or two warpgroups
multiply and store.

Tiles of all groups form one list, whose length and order every part of the kernel works out from
the group sizes on the device; a persistent program takes every n-th of them, and its loads run
ahead across tiles. The ring of STAGES tiles is guarded by two barriers a stage, "full" and "empty".
Each consumer has its own WM x WN piece of a tile; they share what they have in common, and a piece
without rows is neither loaded nor multiplied. With SWAP the weights are the first operand, so that
groups of a few rows fill the tensor cores' 64 rows with weights instead of padding.
"""

from __future__ import annotations

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


@gluon.jit
def _produce(
    loads,
    PIECES_M: gl.constexpr,
    PIECES_N: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
    BK: gl.constexpr,
    STAGES: gl.constexpr,
    BAND: gl.constexpr,
    BLOCK_G: gl.constexpr,
    INIT_TAIL: gl.constexpr,
    GATED: gl.constexpr,
    APART: gl.constexpr,
    GATHER: gl.constexpr,
):
    """Load the pieces of every tile, `inner` by `inner`, into the ring. GATED: half of a tile's
    rows of w are gates and half are ups, which lie `columns` rows APART unless they alternate.
    GATHER: the rows are those of x that `gather_indices` names, copied by all threads.
    """
    (
        x_desc,
        w_desc,
        x_bufs,
        w_bufs,
        full,
        empty,
        sizes,
        x,
        gather_indices,
        groups,
        rows,
        columns,
        inner,
        x_row,
    ) = loads
    TILE_M: gl.constexpr = WM * PIECES_M
    HALF: gl.constexpr = pick(GATED, WN // 2, WN)
    LOADS: gl.constexpr = pick(APART, 2, PIECES_N)
    layout: gl.constexpr = line_layout(gl.num_warps())
    tiles_n = (columns + HALF * PIECES_N - 1) // (HALF * PIECES_N)
    row_ends, ends, total = plan(sizes, groups, rows, tiles_n, TILE_M, BLOCK_G, INIT_TAIL, layout)
    slot = 0
    phase = 1
    for tile in range(gl.program_id(0), total, gl.num_programs(0)):
        group, start, count, tile_m, tile_n = locate(
            tile, row_ends, ends, groups, rows, tiles_n, TILE_M, BAND
        )
        first_row = start + tile_m * TILE_M
        if APART:
            w_row = group * columns * 2 + tile_n * HALF
            step = columns
        else:
            w_row = group * columns * (WN // HALF) + tile_n * (WN * PIECES_N)
            step = columns * 0 + WN
        whole = (PIECES_M == 1) | (tile_m * TILE_M + WM < count)
        if GATHER:
            place = gather_indices + start
            first = row_pointers(x, place, tile_m * TILE_M, count, x_row, WM, BK)
            second = row_pointers(x, place, tile_m * TILE_M + WM, count, x_row, WM, BK)
        if group < groups:
            for k in range(0, inner, BK):
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                w_bytes: gl.constexpr = LOADS * w_desc.block_type.nbytes
                x_bytes: gl.constexpr = x_desc.block_type.nbytes
                if GATHER:
                    mbarrier.expect(bar, w_bytes)
                else:
                    mbarrier.expect(bar, w_bytes + PIECES_M * x_bytes, pred=whole)
                    if PIECES_M > 1:
                        mbarrier.expect(bar, w_bytes + x_bytes, pred=whole == 0)
                for i in gl.static_range(LOADS):
                    tma.async_copy_global_to_shared(
                        w_desc, [w_row + i * step, k], bar, w_bufs.index(slot * LOADS + i)
                    )
                if GATHER:
                    copy_rows(x_bufs.index(slot * PIECES_M), first, k)
                    if PIECES_M > 1:
                        copy_rows(x_bufs.index(slot * PIECES_M + 1), second, k)
                    async_copy.mbarrier_arrive(bar, increment_count=False)
                else:
                    for i in gl.static_range(PIECES_M):
                        tma.async_copy_global_to_shared(
                            x_desc,
                            [first_row + i * WM, k],
                            bar,
                            x_bufs.index(slot * PIECES_M + i),
                            pred=whole | (i == 0),
                        )
                slot, phase = advance(slot, phase, STAGES)


@gluon.jit
def _consume(
    work,
    PIECE: gl.constexpr,
    PIECES_M: gl.constexpr,
    PIECES_N: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
    BK: gl.constexpr,
    STAGES: gl.constexpr,
    BAND: gl.constexpr,
    BLOCK_G: gl.constexpr,
    INIT_TAIL: gl.constexpr,
    SWAP: gl.constexpr,
    SCALED: gl.constexpr,
    BIASED: gl.constexpr,
    WEIGHTED: gl.constexpr,
    FACTORS: gl.constexpr,
    SCATTER: gl.constexpr,
    STAGED: gl.constexpr,
    HALVES: gl.constexpr,
    GATED: gl.constexpr,
    APART: gl.constexpr,
    KIND: gl.constexpr,
    GATHER: gl.constexpr,
):
    """Multiply and store piece PIECE of every tile."""
    (
        out_desc,
        x_bufs,
        w_bufs,
        out_bufs,
        full,
        empty,
        sizes,
        out,
        scatter_indices,
        x_scales,
        w_scales,
        bias,
        row_weights,
        groups,
        rows,
        columns,
        inner,
        stride_out,
        stride_bias,
        weight_token,
        weight_group,
        alpha,
        limit,
    ) = work
    OUT_N: gl.constexpr = pick(GATED, WN // 2, WN)
    TILE_M: gl.constexpr = WM * PIECES_M
    TILE_N: gl.constexpr = OUT_N * PIECES_N
    PIECE_M: gl.constexpr = PIECE % PIECES_M
    PIECE_N: gl.constexpr = PIECE // PIECES_M
    FIRST: gl.constexpr = pick(SWAP, WN, WM)
    SECOND: gl.constexpr = pick(SWAP, WM, WN)
    dtype: gl.constexpr = out.dtype.element_ty
    k_width: gl.constexpr = 256 // x_bufs.dtype.primitive_bitwidth
    mma: gl.constexpr = accumulator_layout(gl.num_warps(), SECOND, k_width)
    final: gl.constexpr = final_layout(SWAP, mma, gl.num_warps())
    row_layout: gl.constexpr = gl.SliceLayout(pick(SWAP, 0, 1), final)
    column_layout: gl.constexpr = gl.SliceLayout(pick(SWAP, 1, 0), final)
    layout: gl.constexpr = line_layout(gl.num_warps())
    tiles_n = (columns + TILE_N - 1) // TILE_N
    row_ends, ends, total = plan(sizes, groups, rows, tiles_n, TILE_M, BLOCK_G, INIT_TAIL, layout)
    slot = 0
    phase = 0
    for tile in range(gl.program_id(0), total, gl.num_programs(0)):
        group, start, count, tile_m, tile_n = locate(
            tile, row_ends, ends, groups, rows, tiles_n, TILE_M, BAND
        )
        row = tile_m * TILE_M + PIECE_M * WM
        column = tile_n * TILE_N + PIECE_N * OUT_N
        acc = gl.zeros([FIRST, SECOND], gl.float32, mma)
        if (group < groups) & (row < count):
            for k in range(0, inner, BK):
                mbarrier.wait(full.index(slot), phase)
                if GATHER:
                    fence_async_shared()
                x_buf = x_bufs.index(slot * PIECES_M + PIECE_M)
                w_buf = w_bufs.index(slot * PIECES_N + PIECE_N)
                if SWAP:
                    acc = warpgroup_mma(w_buf, x_buf.permute((1, 0)), acc, is_async=True)
                else:
                    acc = warpgroup_mma(x_buf, w_buf.permute((1, 0)), acc, is_async=True)
                acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
                mbarrier.arrive(empty.index((slot + STAGES - 1) % STAGES), count=1, pred=k > 0)
                slot, phase = advance(slot, phase, STAGES)
            acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
            mbarrier.arrive(empty.index((slot + STAGES - 1) % STAGES), count=1)
            if GATED:
                value = activate(
                    acc,
                    bias + group * stride_bias,
                    column,
                    columns,
                    alpha,
                    limit,
                    KIND,
                    APART == 0,
                    BIASED,
                    WM,
                    WN,
                ).to(dtype)
            else:
                if SWAP:
                    value = gl.convert_layout(acc, final)
                else:
                    value = acc
                value = finish(
                    value,
                    group,
                    row,
                    column,
                    count,
                    start,
                    scatter_indices,
                    x_scales,
                    w_scales,
                    bias,
                    row_weights,
                    columns,
                    stride_bias,
                    weight_token,
                    weight_group,
                    SWAP,
                    SCALED,
                    BIASED,
                    WEIGHTED,
                    FACTORS,
                    row_layout,
                    column_layout,
                    WM,
                    WN,
                ).to(dtype)
            value_rows: gl.constexpr = gl.SliceLayout(pick(SWAP, 0, 1), value.type.layout)
            value_columns: gl.constexpr = gl.SliceLayout(pick(SWAP, 1, 0), value.type.layout)
            if STAGED:
                store_tile(
                    value,
                    out,
                    scatter_indices,
                    out_desc,
                    out_bufs.index(PIECE),
                    start + row,
                    count - row,
                    column,
                    columns,
                    stride_out,
                    WM,
                    OUT_N,
                    HALVES,
                    SCATTER,
                )
            else:
                store(
                    value,
                    out,
                    scatter_indices,
                    start,
                    row,
                    column,
                    count,
                    columns,
                    stride_out,
                    SWAP,
                    SCATTER,
                    value_rows,
                    value_columns,
                    WM,
                    OUT_N,
                )
        elif group < groups:
            for _ in range(0, inner, BK):
                mbarrier.wait(full.index(slot), phase)
                mbarrier.arrive(empty.index(slot), count=1)
                slot, phase = advance(slot, phase, STAGES)
        elif INIT_TAIL:
            store(
                gl.zeros([pick(SWAP, OUT_N, WM), pick(SWAP, WM, OUT_N)], dtype, final),
                out,
                scatter_indices,
                start,
                row,
                column,
                count,
                columns,
                stride_out,
                SWAP,
                False,
                row_layout,
                column_layout,
                WM,
                OUT_N,
            )
    if STAGED:
        tma.store_wait(0)


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
    PIECES_M: gl.constexpr,
    PIECES_N: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
    BK: gl.constexpr,
    STAGES: gl.constexpr,
    BAND: gl.constexpr,
    BLOCK_G: gl.constexpr,
    INIT_TAIL: gl.constexpr,
    SWAP: gl.constexpr,
    SCALED: gl.constexpr,
    BIASED: gl.constexpr,
    WEIGHTED: gl.constexpr,
    FACTORS: gl.constexpr,
    SCATTER: gl.constexpr,
    STAGED: gl.constexpr,
    HALVES: gl.constexpr,
    GATED: gl.constexpr,
    APART: gl.constexpr,
    KIND: gl.constexpr,
    GATHER: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """out = (x @ w.T) group by group; see the module."""
    CONSUMERS: gl.constexpr = PIECES_M * PIECES_N
    PRODUCER_WARPS: gl.constexpr = pick(GATHER, 4, 1)
    x_bufs = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * PIECES_M] + x_desc.block_type.shape, x_desc.layout
    )
    LOADS: gl.constexpr = pick(APART, 2, PIECES_N)
    w_bufs = gl.allocate_shared_memory(
        w_desc.dtype, [STAGES * LOADS] + w_desc.block_type.shape, w_desc.layout
    )
    if APART:
        w_pieces = w_bufs._reinterpret(w_desc.dtype, [STAGES, WN, BK], w_desc.layout)  # noqa: SLF001
    else:
        w_pieces = w_bufs
    if STAGED:
        out_bufs = gl.allocate_shared_memory(
            out_desc.dtype, [CONSUMERS] + out_desc.block_type.shape, out_desc.layout
        )
    else:
        out_bufs = x_bufs
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1 + 32 * PRODUCER_WARPS * GATHER)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    fence_async_shared()
    loads = (
        x_desc,
        w_desc,
        x_bufs,
        w_bufs,
        full,
        empty,
        sizes,
        x,
        gather_indices,
        groups,
        rows,
        columns,
        inner,
        x_row,
    )
    work = (
        out_desc,
        x_bufs,
        w_pieces,
        out_bufs,
        full,
        empty,
        sizes,
        out,
        scatter_indices,
        x_scales,
        w_scales,
        bias,
        row_weights,
        groups,
        rows,
        columns,
        inner,
        stride_out,
        stride_bias,
        weight_token,
        weight_group,
        alpha,
        limit,
    )
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (
                    _consume,
                    (
                        work,
                        0,
                        PIECES_M,
                        PIECES_N,
                        WM,
                        WN,
                        BK,
                        STAGES,
                        BAND,
                        BLOCK_G,
                        INIT_TAIL,
                        SWAP,
                        SCALED,
                        BIASED,
                        WEIGHTED,
                        FACTORS,
                        SCATTER,
                        STAGED,
                        HALVES,
                        GATED,
                        APART,
                        KIND,
                        GATHER,
                    ),
                ),
                (
                    _produce,
                    (
                        loads,
                        PIECES_M,
                        PIECES_N,
                        WM,
                        WN,
                        BK,
                        STAGES,
                        BAND,
                        BLOCK_G,
                        INIT_TAIL,
                        GATED,
                        APART,
                        GATHER,
                    ),
                ),
            ],
            [PRODUCER_WARPS],
            [PRODUCER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (
                    _consume,
                    (
                        work,
                        0,
                        PIECES_M,
                        PIECES_N,
                        WM,
                        WN,
                        BK,
                        STAGES,
                        BAND,
                        BLOCK_G,
                        INIT_TAIL,
                        SWAP,
                        SCALED,
                        BIASED,
                        WEIGHTED,
                        FACTORS,
                        SCATTER,
                        STAGED,
                        HALVES,
                        GATED,
                        APART,
                        KIND,
                        GATHER,
                    ),
                ),
                (
                    _consume,
                    (
                        work,
                        1,
                        PIECES_M,
                        PIECES_N,
                        WM,
                        WN,
                        BK,
                        STAGES,
                        BAND,
                        BLOCK_G,
                        INIT_TAIL,
                        SWAP,
                        SCALED,
                        BIASED,
                        WEIGHTED,
                        FACTORS,
                        SCATTER,
                        STAGED,
                        HALVES,
                        GATED,
                        APART,
                        KIND,
                        GATHER,
                    ),
                ),
                (
                    _produce,
                    (
                        loads,
                        PIECES_M,
                        PIECES_N,
                        WM,
                        WN,
                        BK,
                        STAGES,
                        BAND,
                        BLOCK_G,
                        INIT_TAIL,
                        GATED,
                        APART,
                        GATHER,
                    ),
                ),
            ],
            [4, PRODUCER_WARPS],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )
