"""The grouped product: the Hopper kernel where it fits, and a Triton kernel for everything else.

The Triton kernel takes any sizes, strides and dtypes, and rows gathered by index. As in the Hopper
kernel, tiles of all
groups form one list that every program works out from the group sizes on the device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import (
    ceil_div,
    factor_strides,
    given,
    power_of_two,
    processors,
    quick,
)
from anyshape.moe import gluon_gemm, tma_gemm
from anyshape.moe.gemm_tiles import (
    GATED_GATHER_TILES,
    GATED_TILES,
    SIMPLE_TILES,
    TILES,
    choose_tile,
)
from anyshape.moe.reference import group_of_rows
from anyshape.moe.tma_gemm import locate, plan
from anyshape.moe.triton_activation import silu_mul
from anyshape.moe.triton_epilogue import finish, put
from anyshape.moe.triton_gather import gather_mul

BAND = tl.constexpr(8)


@quick
@triton.jit(do_not_specialize=["rows", "groups"])
def _grouped_gemm(
    x,
    w,
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
    x_inner,
    w_group,
    w_row,
    w_inner,
    stride_out,
    stride_bias,
    weight_token,
    weight_group,
    GATHER: tl.constexpr,
    SCATTER: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    FACTORS: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Program p makes tiles p, p + programs, ...; the tail to be zeroed is a group of its own."""
    row_ends, ends, total = plan(sizes, groups, rows, tl.cdiv(columns, BN), BM, BLOCK_G, INIT_TAIL)
    for tile in range(tl.program_id(0), total, tl.num_programs(0)):
        group, start, count, top, tile_n = locate(
            tile, row_ends, ends, groups, rows, tl.cdiv(columns, BN), BM, BAND
        )
        row = top + tl.arange(0, BM)
        column = tile_n * BN + tl.arange(0, BN)
        row_mask = (row < count) & (start + row < rows)
        column_mask = column < columns
        position = (start + row).to(tl.int64)
        acc = tl.zeros([BM, BN], tl.float32)
        if group < groups:
            source = position
            if GATHER:
                source = tl.load(gather_indices + position, mask=row_mask, other=0).to(tl.int64)
            k = tl.arange(0, BK)
            x_tile = x + source[:, None] * x_row + k[None, :] * x_inner
            w_tile = w + group.to(tl.int64) * w_group + column.to(tl.int64)[None, :] * w_row
            w_tile += k[:, None] * w_inner
            for first in range(0, inner, BK):
                left = inner - first
                a = tl.load(x_tile, mask=row_mask[:, None] & (k < left)[None, :], other=0.0)
                b = tl.load(w_tile, mask=(k < left)[:, None] & column_mask[None, :], other=0.0)
                acc = tl.dot(a, b, acc, input_precision=PRECISION)
                x_tile += BK * x_inner
                w_tile += BK * w_inner
            others = (
                x_scales,
                w_scales,
                bias,
                row_weights,
                stride_bias,
                weight_token,
                weight_group,
            )
            acc = finish(
                *(acc, group, position, row_mask, column, column_mask, columns, others),
                *(gather_indices, scatter_indices, GATHER, SCALED, BIASED, WEIGHTED, FACTORS),
            )
        value = acc.to(out.dtype.element_ty)
        mask = row_mask[:, None] & column_mask[None, :]
        put(value, out, scatter_indices, position, row_mask, column, mask, stride_out, SCATTER)


def blocks(rows: int, groups: int, bits: int) -> tuple[int, int, int]:
    """(rows, columns, inner) of a tile of the Triton kernel."""
    average = rows / groups
    block_m = 16 if average <= 16 else 32 if average <= 32 else 64 if average <= 64 else 128
    return block_m, 64 if bits == 32 else 128, {8: 128, 16: 64, 32: 32}[bits]


def _launch(
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
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    groups, columns, inner = w.shape
    bits = 8 * x.element_size()
    block_m, block_n, block_k = blocks(rows, groups, bits)
    init_tail = init_tail and scatter_indices is None
    factors = row_weights is not None and row_weights.dim() == 2
    tiles = (ceil_div(rows, block_m) + groups + init_tail) * ceil_div(columns, block_n)
    _grouped_gemm[(min(tiles, 2 * processors(x.device)),)](
        x,
        w,
        m_sizes,
        out,
        *given(m_sizes, gather_indices, scatter_indices, x_scales, w_scales, bias, row_weights),
        *(groups, rows, columns, inner, *x.stride(), *w.stride(), out.stride(0)),
        *(0 if bias is None else bias.stride(0), *factor_strides(row_weights)),
        GATHER=gather_indices is not None,
        SCATTER=scatter_indices is not None,
        SCALED=x_scales is not None,
        BIASED=bias is not None,
        WEIGHTED=row_weights is not None,
        FACTORS=factors,
        INIT_TAIL=init_tail,
        PRECISION="tf32x3" if x.dtype == torch.float32 else "tf32",
        BLOCK_G=power_of_two(groups),
        BM=block_m,
        BN=block_n,
        BK=block_k,
        num_warps=8 if block_m >= 128 else 4,
        num_stages=3 if block_m >= 128 else 4,
    )


def _multiply(
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
    """Run the kernel that fits; vectors are made contiguous first."""
    scatter_indices, x_scales, w_scales = (
        None if value is None else value.contiguous()
        for value in (scatter_indices, x_scales, w_scales)
    )
    bias = None if bias is None else bias if bias.stride(1) == 1 else bias.contiguous()
    if row_weights is not None and row_weights.dim() == 1:
        row_weights = row_weights.contiguous()
    gather = None if gather_indices is None else gather_indices.contiguous()
    dense = (scatter_indices, x_scales, w_scales)
    arguments = (x, w, m_sizes.contiguous(), out, *dense, bias, row_weights)
    if not gluon_gemm.fits(x, w):
        _launch(*arguments, gather, init_tail)
        return
    rows = x.shape[0] if gather is None else gather.shape[0]
    table = TILES if gather is None and scatter_indices is None else SIMPLE_TILES
    shape = (8 * x.element_size(), rows, w.shape[0], x.shape[1])
    lines = scatter_indices is None or gluon_gemm.in_lines(out)
    tile = choose_tile(table, *shape, specialized=gather is None and lines)
    if tile.specialized:
        gluon_gemm.launch(tile, *arguments, init_tail)
    else:
        tma_gemm.launch(tile, *arguments, gather, init_tail)


def grouped_gemm_gated(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    bias: Tensor | None,
    gather_indices: Tensor | None,
    row_factors: Tensor | None,
    kind: str,
    alpha: float,
    limit: float,
    interleaved: bool,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.grouped_gemm_gated`."""
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    half = w.shape[1] // 2
    if rows == 0 or half == 0:
        return x.new_empty(rows, half)
    if not gluon_gemm.fits(x, w) or x.element_size() != 2:
        if row_factors is not None:
            every = torch.arange(rows, device=x.device)
            index = every if gather_indices is None else gather_indices
            x = gather_mul(x, index, group_of_rows(m_sizes, rows), row_factors, None, init_tail)
            gather_indices = None
        both = grouped_gemm(
            *(x, w, m_sizes, None, None, bias, None, gather_indices, x.dtype, init_tail)
        )
        gate, up = (both[:, ::2], both[:, 1::2]) if interleaved else both.split(half, 1)
        return silu_mul(gate, up, None, kind, alpha, limit, init_tail)
    out = torch.empty(rows, half, dtype=x.dtype, device=x.device)
    bias = None if bias is None else bias if bias.stride(1) == 1 else bias.contiguous()
    gather = None if gather_indices is None else gather_indices.contiguous()
    table = GATED_TILES if gather is None and row_factors is None else GATED_GATHER_TILES
    ready = row_factors is None and (gather is None or gluon_gemm.can_gather(x, interleaved))
    tile = choose_tile(table, 16, rows, w.shape[0], x.shape[1], specialized=ready)
    if tile.specialized:
        gate = gluon_gemm.Gate(kind, alpha, limit, interleaved)
        nothing = (None, None, None, bias, None, init_tail, gate, gather)
        gluon_gemm.launch(tile, x, w, m_sizes.contiguous(), out, *nothing)
        return out
    tma_gemm.launch_gated(
        *(tile, x, w, m_sizes.contiguous(), out, bias, gather, row_factors),
        *(kind, alpha, limit, interleaved, init_tail),
    )
    return out


def grouped_gemm(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    gather_indices: Tensor | None,
    out_dtype: torch.dtype,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.grouped_gemm`."""
    rows = x.shape[0] if gather_indices is None else gather_indices.shape[0]
    out = torch.empty(rows, w.shape[1], dtype=out_dtype, device=x.device)
    if out.numel() > 0:
        _multiply(
            *(x, w, m_sizes, out, None, x_scales, w_scales),
            *(bias, row_weights, gather_indices, init_tail),
        )
    return out


def grouped_gemm_scatter(
    x: Tensor,
    w: Tensor,
    m_sizes: Tensor,
    scatter_indices: Tensor,
    scatter_out: Tensor,
    x_scales: Tensor | None,
    w_scales: Tensor | None,
    bias: Tensor | None,
    row_weights: Tensor | None,
    gather_indices: Tensor | None,
) -> None:
    """See `anyshape.moe.grouped_gemm`."""
    unit = scatter_out.stride(1) == 1 or scatter_out.shape[1] <= 1
    target = scatter_out if unit else scatter_out.contiguous()
    if scatter_indices.numel() > 0 and target.numel() > 0:
        _multiply(
            *(x, w, m_sizes, target, scatter_indices, x_scales, w_scales),
            *(bias, row_weights, gather_indices, False),
        )
    if target is not scatter_out:
        scatter_out.copy_(target)
    torch.autograd.graph.increment_version(scatter_out)
