"""The grouped product on tensor descriptors, in Triton: weights, and rows that need no gather,
come by TMA.

Tiles of all groups form one list, whose length and order every program works out from the group
sizes on the device.
With SWAP the weights are the first operand, so that groups of a few rows fill the tensor cores
with weights
instead of padding. The gated kernel makes gate and up of the same columns side by side and stores
act(gate) * up.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from anyshape.kernels.launches import (
    ceil_div,
    factor_strides,
    given,
    power_of_two,
    processors,
    quick,
)
from anyshape.kernels.overlap import follow, overlap
from anyshape.moe.gemm_tiles import Tall, Tile
from anyshape.moe.triton_epilogue import finish, finish_gated, put

NO_TALL = Tall(0, 0, 0)


@triton.jit
def _add_groups(groups, ends, row_ends, next_row, groups_2, ends_2, row_ends_2, next_row_2):
    return (
        groups + groups_2,
        tl.maximum(ends, ends_2),
        tl.maximum(row_ends, row_ends_2),
        tl.minimum(next_row, next_row_2),
    )


@triton.jit
def _height(count, BM: tl.constexpr, TALL: tl.constexpr):
    """Rows of the tiles of a group of `count` rows: TALL (if not 0) where BM are too few."""
    return tl.where(count > BM, TALL, BM) if TALL else BM


@triton.jit
def plan(
    sizes,
    groups,
    rows,
    tiles_n,
    BM: tl.constexpr,
    BLOCK_G: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    TALL: tl.constexpr = 0,
):
    """(past-the-last row of each group [BLOCK_G], past-the-last tile [BLOCK_G], number of tiles);
    the tail comes behind all groups.
    """
    index = tl.arange(0, BLOCK_G)
    size = tl.load(sizes + index, mask=index < groups, other=0).to(tl.int32)
    tiles = tl.cdiv(size, _height(size, BM, TALL)) * tiles_n
    total = tl.sum(tiles)
    if INIT_TAIL:
        tail = tl.maximum(rows - tl.sum(size), 0)
        total += tl.cdiv(tail, _height(tail, BM, TALL)) * tiles_n
    return tl.cumsum(size), tl.cumsum(tiles), total


@triton.jit
def locate(
    tile,
    row_ends,
    ends,
    groups,
    rows,
    tiles_n,
    BM: tl.constexpr,
    BAND: tl.constexpr,
    TALL: tl.constexpr = 0,
):
    """(group, its first row, its rows, the tile's first row in it, tile column) of a tile: bands of
    BAND tile rows, row by row inside. The tail is group `groups`.
    """
    before = ends <= tile
    group, first, start, end = tl.reduce(
        (
            before.to(tl.int32),
            tl.where(before, ends, 0),
            tl.where(before, row_ends, 0),
            tl.where(before, 2147483647, row_ends),
        ),
        0,
        _add_groups,
    )
    group = tl.minimum(group, groups)
    count = tl.where(group < groups, end, rows) - start
    height = _height(count, BM, TALL)
    local = tile - first
    band = local // (BAND * tiles_n)
    width = tl.minimum(tl.cdiv(count, height) - band * BAND, BAND)
    local -= band * BAND * tiles_n
    return group, start, count, (band * BAND + local % width) * height, local // width


@triton.jit
def _rows(
    x,
    x_desc,
    gather_indices,
    x_row,
    first,
    position,
    row_mask,
    k,
    inner,
    BK: tl.constexpr,
    GATHER: tl.constexpr,
):
    """Elements k to k + BK of a tile's rows: from row `first` on, or of the tokens that
    `gather_indices` names.
    """
    if not GATHER:
        return x_desc.load([first, k])
    token = tl.load(gather_indices + position, mask=row_mask, other=0).to(tl.int64)
    column = k + tl.arange(0, BK)
    mask = row_mask[:, None] & (column < inner)[None, :]
    return tl.load(x + token[:, None] * x_row + column[None, :], mask=mask, other=0.0)


@triton.jit
def _make(
    where,
    descriptors,
    operands,
    SWAP: tl.constexpr,
    GATHER: tl.constexpr,
    SCATTER: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    FACTORS: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Make and store a tile of BM rows and BN columns of the product."""
    group, start, count, top, tile_n = where
    x_desc, w_desc = descriptors
    rows_of_x, indices, others, numbers = operands
    x, x_row, out, stride_out = rows_of_x
    gather_indices, scatter_indices = indices
    groups, rows, columns, inner = numbers
    row = top + tl.arange(0, BM)
    row_mask = (row < count) & (start + row < rows)
    position = (start + row).to(tl.int64)
    w_row = group * columns + tile_n * BN
    if SWAP:
        acc = tl.zeros([BN, BM], tl.float32)
    else:
        acc = tl.zeros([BM, BN], tl.float32)
    steps = tl.cdiv(inner, BK)
    if INIT_TAIL:
        steps = tl.where(group < groups, steps, 0)
    for step in tl.range(0, steps, num_stages=STAGES):
        a = _rows(
            *(x, x_desc, gather_indices, x_row, start + top),
            *(position, row_mask, step * BK, inner, BK, GATHER),
        )
        b = w_desc.load([w_row, step * BK])
        if SWAP:
            acc = tl.dot(b, a.T, acc)
        else:
            acc = tl.dot(a, b.T, acc)
    if SWAP:
        acc = tl.trans(acc)
    column = tile_n * BN + tl.arange(0, BN)
    column_mask = column < columns
    real = column_mask & (group < groups)
    acc = finish(
        *(acc, group, position, row_mask, column, real, columns, others),
        *(gather_indices, scatter_indices, GATHER, SCALED, BIASED, WEIGHTED, FACTORS),
    )
    value = acc.to(out.dtype.element_ty)
    mask = row_mask[:, None] & column_mask[None, :]
    put(value, out, scatter_indices, position, row_mask, column, mask, stride_out, SCATTER)


@quick
@triton.jit(do_not_specialize=["rows", "groups"])
def _grouped(
    x,
    x_desc,
    w_desc,
    tall_x_desc,
    tall_w_desc,
    sizes,
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
    OVERLAP: tl.constexpr,
    SWAP: tl.constexpr,
    GATHER: tl.constexpr,
    SCATTER: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    FACTORS: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BAND: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FLATTEN: tl.constexpr,
    TALL: tl.constexpr,
    TALL_BK: tl.constexpr,
    TALL_STAGES: tl.constexpr,
):
    """Program p makes tiles p, p + programs, ... of the product. Groups of more than BM rows have
    tiles of TALL rows, if there are such.
    """
    follow(OVERLAP)
    tiles_n = tl.cdiv(columns, BN)
    row_ends, ends, total = plan(sizes, groups, rows, tiles_n, BM, BLOCK_G, INIT_TAIL, TALL)
    operands = (
        (x, x_row, out, stride_out),
        (gather_indices, scatter_indices),
        (x_scales, w_scales, bias, row_weights, stride_bias, weight_token, weight_group),
        (groups, rows, columns, inner),
    )
    for tile in tl.range(tl.program_id(0), total, tl.num_programs(0), flatten=FLATTEN):
        where = locate(tile, row_ends, ends, groups, rows, tiles_n, BM, BAND, TALL)
        if where[2] > BM if TALL else False:
            _make(
                *(where, (tall_x_desc, tall_w_desc), operands, SWAP, GATHER, SCATTER, SCALED),
                *(BIASED, WEIGHTED, FACTORS, INIT_TAIL, TALL, BN, TALL_BK, TALL_STAGES),
            )
        else:
            _make(
                *(where, (x_desc, w_desc), operands, SWAP, GATHER, SCATTER, SCALED),
                *(BIASED, WEIGHTED, FACTORS, INIT_TAIL, BM, BN, BK, None),
            )


@triton.jit
def _make_gated(
    where,
    descriptors,
    operands,
    KIND: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    FACTORED: tl.constexpr,
    SWAP: tl.constexpr,
    GATHER: tl.constexpr,
    BIASED: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Make and store act(gate) * up of BM rows and of BN columns of each."""
    group, start, count, top, tile_n = where
    x_desc, w_desc = descriptors
    rows_of_x, others, numbers = operands
    x, x_row, gather_indices, out = rows_of_x
    bias, stride_bias, factors, factor_token, factor_group, alpha, limit = others
    groups, rows, columns, inner = numbers
    row = top + tl.arange(0, BM)
    row_mask = (row < count) & (start + row < rows)
    position = (start + row).to(tl.int64)
    first = group * columns * 2 + tile_n * BN * (2 if INTERLEAVED else 1)
    second = first + (BN if INTERLEAVED else columns)
    if SWAP:
        gate = tl.zeros([BN, BM], tl.float32)
        up = tl.zeros([BN, BM], tl.float32)
    else:
        gate = tl.zeros([BM, BN], tl.float32)
        up = tl.zeros([BM, BN], tl.float32)
    steps = tl.cdiv(inner, BK)
    if INIT_TAIL:
        steps = tl.where(group < groups, steps, 0)
    for step in tl.range(0, steps, num_stages=STAGES):
        a = _rows(
            *(x, x_desc, gather_indices, x_row, start + top),
            *(position, row_mask, step * BK, inner, BK, GATHER),
        )
        b = w_desc.load([first, step * BK])
        c = w_desc.load([second, step * BK])
        if SWAP:
            gate = tl.dot(b, a.T, gate)
            up = tl.dot(c, a.T, up)
        else:
            gate = tl.dot(a, b.T, gate)
            up = tl.dot(a, c.T, up)
    if SWAP:
        gate = tl.trans(gate)
        up = tl.trans(up)
    if FACTORED:
        token = position
        if GATHER:
            token = tl.load(gather_indices + position, mask=row_mask, other=0).to(tl.int64)
        at = factors + token * factor_token + group.to(tl.int64) * factor_group
        factor = tl.load(at, mask=row_mask & (group < groups), other=0.0).to(tl.float32)
        gate *= factor[:, None]
        up *= factor[:, None]
    column = tile_n * BN + tl.arange(0, BN)
    real = (column < columns) & (group < groups)
    value = finish_gated(
        *(gate, up, bias + group * stride_bias, columns, column, real, alpha, limit),
        *(KIND, INTERLEAVED, BIASED, BM, BN),
    )
    if INIT_TAIL:
        value = tl.where(group < groups, value, 0.0)
    mask = row_mask[:, None] & (column < columns)[None, :]
    target = out + position[:, None] * columns + column[None, :]
    tl.store(target, value.to(out.dtype.element_ty), mask=mask)


@quick
@triton.jit(do_not_specialize=["rows", "groups"])
def _gated(
    x,
    x_desc,
    w_desc,
    tall_x_desc,
    tall_w_desc,
    sizes,
    out,
    gather_indices,
    bias,
    factors,
    groups,
    rows,
    columns,
    inner,
    x_row,
    stride_bias,
    factor_token,
    factor_group,
    alpha,
    limit,
    FACTORED: tl.constexpr,
    OVERLAP: tl.constexpr,
    KIND: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    SWAP: tl.constexpr,
    GATHER: tl.constexpr,
    BIASED: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BAND: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FLATTEN: tl.constexpr,
    TALL: tl.constexpr,
    TALL_BK: tl.constexpr,
    TALL_STAGES: tl.constexpr,
):
    """As `_grouped`, for weights whose rows are gates and ups: `columns` of each, all gates first
    or alternating. FACTORED: a row of x counts as itself times its factor for the group.
    """
    follow(OVERLAP)
    tiles_n = tl.cdiv(columns, BN)
    row_ends, ends, total = plan(sizes, groups, rows, tiles_n, BM, BLOCK_G, INIT_TAIL, TALL)
    operands = (
        (x, x_row, gather_indices, out),
        (bias, stride_bias, factors, factor_token, factor_group, alpha, limit),
        (groups, rows, columns, inner),
    )
    for tile in tl.range(tl.program_id(0), total, tl.num_programs(0), flatten=FLATTEN):
        where = locate(tile, row_ends, ends, groups, rows, tiles_n, BM, BAND, TALL)
        if where[2] > BM if TALL else False:
            _make_gated(
                *(where, (tall_x_desc, tall_w_desc), operands, KIND, INTERLEAVED, FACTORED, SWAP),
                *(GATHER, BIASED, INIT_TAIL, TALL, BN, TALL_BK, TALL_STAGES),
            )
        else:
            _make_gated(
                *(where, (x_desc, w_desc), operands, KIND, INTERLEAVED, FACTORED, SWAP),
                *(GATHER, BIASED, INIT_TAIL, BM, BN, BK, None),
            )


def flat(w: Tensor) -> Tensor:
    """w [G, N, K], whose groups lie behind each other, as [G*N, K]."""
    return w.as_strided((w.shape[0] * w.shape[1], w.shape[2]), (w.stride(1), 1))


def constants(tile: Tile, groups: int, gathers: bool) -> dict[str, int | bool]:
    """What both kernels are compiled for besides the operands there are."""
    tall = tile.tall or NO_TALL
    return {
        "TALL": tall.rows,
        "TALL_BK": tall.bk,
        "TALL_STAGES": tall.stages,
        "BLOCK_G": power_of_two(groups),
        "BAND": tile.band,
        "BM": tile.wm,
        "BN": tile.wn,
        "BK": tile.bk,
        "FLATTEN": tile.flatten and not gathers,
        "SWAP": tile.swap,
        "GATHER": gathers,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def _descriptors(x: Tensor, w: Tensor, tile: Tile, gathers: bool) -> tuple[TensorDescriptor, ...]:
    """What the copy engine needs to know of x and w for tiles, and again for tall tiles. The
    weights' stand in for those of x where x is gathered; the first for those of tall tiles where
    there are none.
    """
    shapes = [(tile.wm, tile.bk), *([(tile.tall.rows, tile.tall.bk)] if tile.tall else [])]
    made = []
    for rows, inner in shapes:
        weights = TensorDescriptor.from_tensor(flat(w), [tile.wn, inner])
        made += [weights if gathers else TensorDescriptor.from_tensor(x, [rows, inner]), weights]
    return tuple(made[:2] + made[-2:])


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
    gather_indices: Tensor | None,
    init_tail: bool,
) -> None:
    """Write (or add, with `scatter_indices`) the product of the rows of x and w [G, N, K] to
    `out`.
    """
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    groups, columns, inner = w.shape
    init_tail = init_tail and scatter_indices is None
    all_groups = groups + init_tail
    factors = row_weights is not None and row_weights.dim() == 2
    tiles = (ceil_div(rows, tile.wm) + all_groups) * ceil_div(columns, tile.wn)
    gathers = gather_indices is not None
    _grouped[(min(tiles, processors(x.device) * tile.programs),)](
        x,
        *_descriptors(x, w, tile, gathers),
        m_sizes,
        out,
        *given(m_sizes, gather_indices, scatter_indices, x_scales, w_scales, bias, row_weights),
        *(groups, rows, columns, inner, x.stride(0), out.stride(0)),
        *(0 if bias is None else bias.stride(0), *factor_strides(row_weights)),
        SCATTER=scatter_indices is not None,
        SCALED=x_scales is not None,
        BIASED=bias is not None,
        WEIGHTED=row_weights is not None,
        FACTORS=factors,
        INIT_TAIL=init_tail,
        **constants(tile, groups, gathers),
        **overlap(x, tile.swap and scatter_indices is None),
    )


def launch_gated(
    tile: Tile,
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    out: Tensor,
    bias: Tensor | None,
    gather_indices: Tensor | None,
    row_factors: Tensor | None,
    kind: str,
    alpha: float,
    limit: float,
    interleaved: bool,
    init_tail: bool,
) -> None:
    """Write act(gate) * up [M, F] of the rows of x and w [G, 2*F, K] to the contiguous `out`."""
    rows, columns = out.shape
    groups, _, inner = w.shape
    all_groups = groups + init_tail
    tiles = (ceil_div(rows, tile.wm) + all_groups) * ceil_div(columns, tile.wn)
    gathers = gather_indices is not None
    _gated[(min(tiles, processors(x.device) * tile.programs),)](
        x,
        *_descriptors(x, w, tile, gathers),
        m_sizes,
        out,
        *given(m_sizes, gather_indices, bias, row_factors),
        *(groups, rows, columns, inner, x.stride(0), 0 if bias is None else bias.stride(0)),
        *((0, 0) if row_factors is None else row_factors.stride()),
        *(alpha, limit),
        FACTORED=row_factors is not None,
        KIND=kind,
        INTERLEAVED=interleaved,
        BIASED=bias is not None,
        INIT_TAIL=init_tail,
        **constants(tile, groups, gathers),
        **overlap(x, tile.swap),
    )
