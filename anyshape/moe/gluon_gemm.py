"""The grouped product for Hopper, in Gluon: one warp loads tiles by TMA, one or two warpgroups
multiply and store.

Tiles of all groups form one list, whose length and order every part of the kernel works out from
the group sizes on
the device; a persistent program takes every n-th of them, and its loads run ahead across tiles.
The ring of
STAGES tiles is guarded by two barriers a stage, "full" and "empty". Each consumer has its own WM x
WN piece
of a tile; they share what they have in common, and a piece without rows is neither loaded nor
multiplied. With SWAP the weights are the first operand, so that groups
of a few rows fill the tensor cores' 64 rows with weights instead of padding.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from anyshape.moe.gemm_tiles import Tile


@gluon.constexpr_function
def _line_layout(warps):
    return gl.BlockedLayout([1], [32], [warps], [0])


@gluon.constexpr_function
def _accumulator_layout(warps, columns, k_width):
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, columns, k_width])


@gluon.constexpr_function
def _final_layout(swap, mma, warps):
    """The layout in which results are stored: eight weights' rows a thread where those are the
    first operand.
    """
    return gl.BlockedLayout([8, 1], [16, 2], [1, warps], [0, 1]) if swap else mma


@gluon.constexpr_function
def _pick(condition, yes, no):
    return yes if condition else no


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def _plan(
    sizes,
    groups,
    rows,
    tiles_n,
    TILE_M: gl.constexpr,
    BLOCK_G: gl.constexpr,
    INIT_TAIL: gl.constexpr,
    layout: gl.constexpr,
):
    """(sizes [BLOCK_G], past-the-last tile of each group [BLOCK_G], number of tiles); the tail is
    a group of its own.
    """
    index = gl.arange(0, BLOCK_G, layout)
    size = gl.load(sizes + index, mask=index < groups, other=0).to(gl.int32)
    if INIT_TAIL:
        size = gl.where(index == groups, gl.maximum(rows - gl.sum(size, 0), 0), size)
    tiles = (size + TILE_M - 1) // TILE_M * tiles_n
    return size, gl.associative_scan(tiles, 0, _add), gl.sum(tiles, 0)


@gluon.jit
def _locate(
    tile,
    size,
    ends,
    tiles_n,
    TILE_M: gl.constexpr,
    BAND: gl.constexpr,
    BLOCK_G: gl.constexpr,
    layout: gl.constexpr,
):
    """(group, its first row, its rows, tile row, tile column) of a tile: bands of BAND tile rows,
    row by row inside.
    """
    index = gl.arange(0, BLOCK_G, layout)
    before = ends <= tile
    group = gl.sum(before.to(gl.int32), 0)
    start = gl.sum(gl.where(before, size, 0), 0)
    count = gl.sum(gl.where(index == group, size, 0), 0)
    local = tile - gl.max(gl.where(before, ends, 0), 0)
    tiles_m = (count + TILE_M - 1) // TILE_M
    band = local // (BAND * tiles_n)
    width = gl.minimum(tiles_m - band * BAND, BAND)
    local -= band * BAND * tiles_n
    return group, start, count, band * BAND + local % width, local // width


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
):
    """Load the pieces of every tile, `inner` by `inner`, into the ring."""
    x_desc, w_desc, x_bufs, w_bufs, full, empty, sizes, groups, rows, columns, inner = loads
    TILE_M: gl.constexpr = WM * PIECES_M
    layout: gl.constexpr = _line_layout(gl.num_warps())
    tiles_n = (columns + WN * PIECES_N - 1) // (WN * PIECES_N)
    size, ends, total = _plan(sizes, groups, rows, tiles_n, TILE_M, BLOCK_G, INIT_TAIL, layout)
    slot = 0
    phase = 1
    for tile in range(gl.program_id(0), total, gl.num_programs(0)):
        group, start, count, tile_m, tile_n = _locate(
            tile, size, ends, tiles_n, TILE_M, BAND, BLOCK_G, layout
        )
        x_row = start + tile_m * TILE_M
        w_row = group * columns + tile_n * (WN * PIECES_N)
        whole = (PIECES_M == 1) | (tile_m * TILE_M + WM < count)
        if group < groups:
            for k in range(0, inner, BK):
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                w_bytes: gl.constexpr = PIECES_N * w_desc.block_type.nbytes
                x_bytes: gl.constexpr = x_desc.block_type.nbytes
                mbarrier.expect(bar, w_bytes + PIECES_M * x_bytes, pred=whole)
                if PIECES_M > 1:
                    mbarrier.expect(bar, w_bytes + x_bytes, pred=whole == 0)
                for i in gl.static_range(PIECES_N):
                    tma.async_copy_global_to_shared(
                        w_desc, [w_row + i * WN, k], bar, w_bufs.index(slot * PIECES_N + i)
                    )
                for i in gl.static_range(PIECES_M):
                    tma.async_copy_global_to_shared(
                        x_desc,
                        [x_row + i * WM, k],
                        bar,
                        x_bufs.index(slot * PIECES_M + i),
                        pred=whole | (i == 0),
                    )
                wrap = slot == STAGES - 1
                slot = gl.where(wrap, 0, slot + 1)
                phase = gl.where(wrap, phase ^ 1, phase)


@gluon.jit
def _finish(
    acc,
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
    SWAP: gl.constexpr,
    SCALED: gl.constexpr,
    BIASED: gl.constexpr,
    WEIGHTED: gl.constexpr,
    FACTORS: gl.constexpr,
    row_layout: gl.constexpr,
    column_layout: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
):
    """Scales, bias and row weights of an accumulator whose rows begin at `row` of the group,
    columns at `column`.
    """
    r = row + gl.arange(0, WM, row_layout)
    c = column + gl.arange(0, WN, column_layout)
    if SCALED:
        xs = gl.load(x_scales + start + r, mask=r < count, other=0.0)
        ws = gl.load(w_scales + group * columns + c, mask=c < columns, other=0.0)
        if SWAP:
            acc = acc * ws[:, None] * xs[None, :]
        else:
            acc = acc * xs[:, None] * ws[None, :]
    if BIASED:
        b = gl.load(bias + group * stride_bias + c, mask=c < columns, other=0.0).to(gl.float32)
        if SWAP:
            acc = acc + b[:, None]
        else:
            acc = acc + b[None, :]
    if WEIGHTED:
        place = (start + r).to(gl.int64)
        if FACTORS:
            token = gl.load(scatter_indices + place, mask=r < count, other=0).to(gl.int64)
            place = token * weight_token + group.to(gl.int64) * weight_group
        rw = gl.load(row_weights + place, mask=r < count, other=0.0).to(gl.float32)
        if SWAP:
            acc = acc * rw[None, :]
        else:
            acc = acc * rw[:, None]
    return acc


@gluon.jit
def _store(
    value,
    out,
    scatter_indices,
    start,
    row,
    column,
    count,
    columns,
    stride_out,
    SWAP: gl.constexpr,
    SCATTER: gl.constexpr,
    row_layout: gl.constexpr,
    column_layout: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
):
    """Store, or add at `scatter_indices`, the rows and columns of `value` that are there."""
    r = row + gl.arange(0, WM, row_layout)
    c = column + gl.arange(0, WN, column_layout)
    target = (start + r).to(gl.int64)
    if SCATTER:
        target = gl.load(scatter_indices + start + r, mask=r < count, other=0).to(gl.int64)
    if SWAP:
        place = out + target[None, :] * stride_out + c[:, None]
        mask = (r < count)[None, :] & (c < columns)[:, None]
    else:
        place = out + target[:, None] * stride_out + c[None, :]
        mask = (r < count)[:, None] & (c < columns)[None, :]
    if SCATTER:
        gl.atomic_add(place, value, mask=mask, sem="relaxed")
    else:
        gl.store(place, value, mask=mask)


@gluon.jit
def _store_tile(
    value,
    out_desc,
    out_bufs,
    PIECE: gl.constexpr,
    row,
    column,
    WM: gl.constexpr,
    WN: gl.constexpr,
    HALVES: gl.constexpr,
):
    """Hand a whole tile to the copy engine, by way of shared memory, in one piece or in two
    halves.
    """
    tma.store_wait(0)
    if HALVES:
        left, right = value.reshape([WM, 2, WN // 2]).permute((0, 2, 1)).split()
        buf = out_bufs.index(PIECE)
        buf.store(left)
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [row, column], buf)
        tma.store_wait(0)
        buf.store(right)
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [row, column + WN // 2], buf)
    else:
        buf = out_bufs.index(PIECE)
        buf.store(value)
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [row, column], buf)


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
    TMA_STORE: gl.constexpr,
    HALVES: gl.constexpr,
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
    ) = work
    TILE_M: gl.constexpr = WM * PIECES_M
    TILE_N: gl.constexpr = WN * PIECES_N
    PIECE_M: gl.constexpr = PIECE % PIECES_M
    PIECE_N: gl.constexpr = PIECE // PIECES_M
    FIRST: gl.constexpr = _pick(SWAP, WN, WM)
    SECOND: gl.constexpr = _pick(SWAP, WM, WN)
    dtype: gl.constexpr = out.dtype.element_ty
    k_width: gl.constexpr = 256 // x_bufs.dtype.primitive_bitwidth
    mma: gl.constexpr = _accumulator_layout(gl.num_warps(), SECOND, k_width)
    final: gl.constexpr = _final_layout(SWAP, mma, gl.num_warps())
    row_layout: gl.constexpr = gl.SliceLayout(_pick(SWAP, 0, 1), final)
    column_layout: gl.constexpr = gl.SliceLayout(_pick(SWAP, 1, 0), final)
    layout: gl.constexpr = _line_layout(gl.num_warps())
    tiles_n = (columns + TILE_N - 1) // TILE_N
    size, ends, total = _plan(sizes, groups, rows, tiles_n, TILE_M, BLOCK_G, INIT_TAIL, layout)
    slot = 0
    phase = 0
    for tile in range(gl.program_id(0), total, gl.num_programs(0)):
        group, start, count, tile_m, tile_n = _locate(
            tile, size, ends, tiles_n, TILE_M, BAND, BLOCK_G, layout
        )
        row = tile_m * TILE_M + PIECE_M * WM
        column = tile_n * TILE_N + PIECE_N * WN
        acc = gl.zeros([FIRST, SECOND], gl.float32, mma)
        if (group < groups) & (row < count):
            for k in range(0, inner, BK):
                mbarrier.wait(full.index(slot), phase)
                x_buf = x_bufs.index(slot * PIECES_M + PIECE_M)
                w_buf = w_bufs.index(slot * PIECES_N + PIECE_N)
                if SWAP:
                    acc = warpgroup_mma(w_buf, x_buf.permute((1, 0)), acc, is_async=True)
                else:
                    acc = warpgroup_mma(x_buf, w_buf.permute((1, 0)), acc, is_async=True)
                acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
                mbarrier.arrive(empty.index((slot + STAGES - 1) % STAGES), count=1, pred=k > 0)
                wrap = slot == STAGES - 1
                slot = gl.where(wrap, 0, slot + 1)
                phase = gl.where(wrap, phase ^ 1, phase)
            acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
            mbarrier.arrive(empty.index((slot + STAGES - 1) % STAGES), count=1)
            if SWAP:
                value = gl.convert_layout(acc, final)
            else:
                value = acc
            value = _finish(
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
            if TMA_STORE:
                if row + WM <= count:
                    _store_tile(
                        value, out_desc, out_bufs, PIECE, start + row, column, WM, WN, HALVES
                    )
                else:
                    _store(
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
                        row_layout,
                        column_layout,
                        WM,
                        WN,
                    )
            else:
                _store(
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
                    row_layout,
                    column_layout,
                    WM,
                    WN,
                )
        elif group < groups:
            for _ in range(0, inner, BK):
                mbarrier.wait(full.index(slot), phase)
                mbarrier.arrive(empty.index(slot), count=1)
                wrap = slot == STAGES - 1
                slot = gl.where(wrap, 0, slot + 1)
                phase = gl.where(wrap, phase ^ 1, phase)
        elif INIT_TAIL:
            _store(
                gl.zeros([FIRST, SECOND], dtype, final),
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
                WN,
            )
    if TMA_STORE:
        tma.store_wait(0)


@gluon.jit(do_not_specialize=["rows", "groups"])
def grouped_gemm_kernel(
    x_desc,
    w_desc,
    out_desc,
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
    TMA_STORE: gl.constexpr,
    HALVES: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """out = (x @ w.T) group by group; see the module."""
    CONSUMERS: gl.constexpr = PIECES_M * PIECES_N
    x_bufs = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * PIECES_M] + x_desc.block_type.shape, x_desc.layout
    )
    w_bufs = gl.allocate_shared_memory(
        w_desc.dtype, [STAGES * PIECES_N] + w_desc.block_type.shape, w_desc.layout
    )
    if TMA_STORE:
        out_bufs = gl.allocate_shared_memory(
            out_desc.dtype, [CONSUMERS] + out_desc.block_type.shape, out_desc.layout
        )
    else:
        out_bufs = x_bufs
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    fence_async_shared()
    loads = (x_desc, w_desc, x_bufs, w_bufs, full, empty, sizes, groups, rows, columns, inner)
    work = (
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
                        TMA_STORE,
                        HALVES,
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
                    ),
                ),
            ],
            [1],
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
                        TMA_STORE,
                        HALVES,
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
                        TMA_STORE,
                        HALVES,
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
                    ),
                ),
            ],
            [4, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )


GLUON_DTYPES = {
    torch.bfloat16: gl.bfloat16,
    torch.float16: gl.float16,
    torch.float32: gl.float32,
    torch.float8_e4m3fn: gl.float8e4nv,
}
INPUT_DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
REGISTERS = 65536


def aligned(matrix: Tensor) -> bool:
    """Whether the copy engine can read the rows of a matrix."""
    size = matrix.element_size()
    return (
        matrix.stride(-1) == 1
        and matrix.stride(-2) * size % 16 == 0
        and matrix.stride(-2) >= matrix.shape[-1]
        and matrix.data_ptr() % 16 == 0
    )


def fits(x: Tensor, w: Tensor) -> bool:
    """Whether this kernel can take these operands: a Hopper GPU, 8 or 16 bits, rows of weights
    side by side.
    """
    return (
        x.is_cuda
        and torch.cuda.get_device_capability(x.device)[0] == 9
        and x.dtype in INPUT_DTYPES
        and x.shape[1] > 0
        and aligned(x)
        and aligned(w)
        and w.stride(0) == w.shape[1] * w.stride(1)
    )


def descriptor(matrix: Tensor, block: list[int]) -> TensorDescriptor:
    """What the copy engine needs to know of a matrix that is read or written in blocks of this
    shape.
    """
    layout = gl.NVMMASharedLayout.get_default_for(block, GLUON_DTYPES[matrix.dtype])
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), block, layout)


def registers(tile: Tile, groups: int) -> tuple[int, int, int]:
    """(limit a thread, of a second consumer, of the producer): whatever the loads need is taken
    from the products.
    """
    threads = 32 * (tile.warps + 4 * (tile.pieces_m * tile.pieces_n - 1) + 4)
    limit = min(255, REGISTERS // (threads * tile.programs)) // 8 * 8
    return limit, (240 if groups <= 256 else 208), (24 if groups <= 256 else 88)


def launch(
    tile: Tile,
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    out: Tensor,
    scatter_indices: Tensor | None,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    init_tail: bool,
) -> None:
    """Write (or add, with `scatter_indices`) the product of x [M, K] and w [G, N, K] to `out`."""
    rows, inner = x.shape
    groups, columns, _ = w.shape
    factors = row_weights is not None and row_weights.dim() == 2
    tma_store = tile.tma_store and scatter_indices is None and not tile.swap and aligned(out)
    all_groups = groups + (init_tail and scatter_indices is None)
    limit, consumer, producer = registers(tile, all_groups)
    tiles = (triton.cdiv(rows, tile.wm * tile.pieces_m) + all_groups) * triton.cdiv(
        columns, tile.wn * tile.pieces_n
    )
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    x_desc = descriptor(x, [tile.wm, tile.bk])
    grouped_gemm_kernel[(min(tiles, processors * tile.programs),)](
        x_desc,
        descriptor(w.as_strided((groups * columns, inner), (w.stride(1), 1)), [tile.wn, tile.bk]),
        descriptor(out, [tile.wm, tile.wn // (1 + tile.halves)]) if tma_store else x_desc,
        m_sizes,
        out,
        m_sizes if scatter_indices is None else scatter_indices,
        m_sizes if x_scales is None else x_scales,
        m_sizes if w_scales is None else w_scales,
        m_sizes if bias is None else bias,
        m_sizes if row_weights is None else row_weights,
        groups,
        rows,
        columns,
        inner,
        out.stride(0),
        0 if bias is None else bias.stride(0),
        *(row_weights.stride() if factors else (0, 0)),
        PIECES_M=tile.pieces_m,
        PIECES_N=tile.pieces_n,
        WM=tile.wm,
        WN=tile.wn,
        BK=tile.bk,
        STAGES=tile.stages,
        BAND=tile.band,
        BLOCK_G=triton.next_power_of_2(all_groups),
        INIT_TAIL=init_tail and scatter_indices is None,
        SWAP=tile.swap,
        SCALED=x_scales is not None,
        BIASED=bias is not None,
        WEIGHTED=row_weights is not None,
        FACTORS=factors,
        SCATTER=scatter_indices is not None,
        TMA_STORE=tma_store,
        HALVES=tile.halves,
        CONSUMER_REGISTERS=consumer,
        PRODUCER_REGISTERS=producer,
        num_warps=tile.warps,
        maxnreg=limit,
    )
