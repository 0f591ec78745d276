"""Gather with scaling and quantization, and scatter-add, in Triton: rows are moved 16 bytes a
thread.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import ceil_div, power_of_two, quick
from anyshape.kernels.overlap import follow, overlap
from anyshape.moe.triton_rows import count_arguments, count_rows, largest_of, row_scale

FP8 = torch.float8_e4m3fn
ENOUGH_PROGRAMS = 1024
QUANTIZE_BLOCK = 2048
KEPT_BLOCK, KEPT_BLOCK_A_WARP = 1024, 256
# With so many rows, and no more than there are tokens, it pays to count each token's rows first:
# adding without atomics is a fifth faster.
COUNTED_ROWS = 4096
# (integers of a dtype's size, the bits of its infinity)
BIT_PATTERNS = {
    torch.bfloat16: (tl.int16, 0x7F80),
    torch.float16: (tl.int16, 0x7C00),
    torch.float32: (tl.int32, 0x7F800000),
}


def unit_rows(x: Tensor) -> Tensor:
    """`x` itself when the elements of a row lie side by side, else a copy of which that is true."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def column_blocks(rows: int, columns: int) -> tuple[int, int, int]:
    """(block, blocks a program, programs a row): a program takes a whole row once there are many
    rows.
    """
    block = min(1024, power_of_two(max(columns, 16)))
    blocks = ceil_div(columns, block)
    if rows >= ENOUGH_PROGRAMS and blocks <= 16:
        return block, blocks, 1
    return block, 1, blocks


@quick
@triton.jit
def _gather_mul(
    x,
    token_indices,
    expert_indices,
    scales,
    out,
    valid,
    rows,
    columns,
    stride_x,
    stride_t,
    stride_e,
    OVERLAP: tl.constexpr,
    SCALED: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Program (i, j) makes BLOCKS blocks of row i."""
    follow(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    count = count_rows(valid, rows, VALUES, BLOCK_V)
    start = tl.program_id(1) * BLOCKS * BLOCK
    if row < count:
        token = tl.load(token_indices + row).to(tl.int64)
        if SCALED:
            expert = tl.load(expert_indices + row).to(tl.int64)
            scale = tl.load(scales + token * stride_t + expert * stride_e).to(tl.float32)
        for block in tl.static_range(BLOCKS):
            column = start + block * BLOCK + tl.arange(0, BLOCK)
            mask = None if EVEN else column < columns
            value = tl.load(x + token * stride_x + column, mask=mask)
            if SCALED:
                value = value.to(tl.float32) * scale
            tl.store(out + row * columns + column, value.to(out.dtype.element_ty), mask=mask)
    elif INIT_TAIL:
        for block in tl.static_range(BLOCKS):
            column = start + block * BLOCK + tl.arange(0, BLOCK)
            zero = tl.zeros([BLOCK], tl.float32).to(out.dtype.element_ty)
            tl.store(out + row * columns + column, zero, mask=column < columns)


def gather_mul(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None,
    scales: Tensor | None,
    valid: Tensor | None,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.gather_mul`."""
    x = unit_rows(x)
    rows, columns = token_indices.shape[0], x.shape[1]
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    block, blocks, programs = column_blocks(rows, columns)
    valid, values, block_v = count_arguments(valid, token_indices)
    _gather_mul[(rows, programs)](
        x,
        token_indices.contiguous(),
        token_indices if expert_indices is None else expert_indices.contiguous(),
        x if scales is None else scales,
        out,
        valid,
        rows,
        columns,
        x.stride(0),
        *((0, 0) if scales is None else scales.stride()),
        SCALED=scales is not None,
        INIT_TAIL=init_tail,
        VALUES=values,
        BLOCK_V=block_v,
        BLOCK=block,
        BLOCKS=blocks,
        EVEN=columns % (block * blocks) == 0,
        **overlap(x),
    )
    return out


@quick
@triton.jit
def _gather_mul_quantize(
    x,
    token_indices,
    expert_indices,
    scales,
    out,
    out_scales,
    valid,
    rows,
    columns,
    stride_x,
    stride_t,
    stride_e,
    SCALED: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
    INTEGER: tl.constexpr,
    INFINITY: tl.constexpr,
):
    """Program i makes row i, which stays in registers: its largest value first, then fp8 values.
    The largest is found among bit patterns, which order as absolute values do, NaN above
    infinity.
    """
    row = tl.program_id(0).to(tl.int64)
    count = count_rows(valid, rows, VALUES, BLOCK_V)
    column = tl.arange(0, BLOCK)
    if row < count:
        token = tl.load(token_indices + row).to(tl.int64)
        scale = 1.0
        if SCALED:
            expert = tl.load(expert_indices + row).to(tl.int64)
            scale = tl.load(scales + token * stride_t + expert * stride_e).to(tl.float32)
        source = x + token * stride_x + column
        target = out + row * columns + column
        values = ()
        SIGNLESS: tl.constexpr = 2 ** (INTEGER.primitive_bitwidth - 1) - 1
        bits = tl.zeros([BLOCK], INTEGER)
        for block in tl.static_range(BLOCKS):
            mask = None if EVEN else block * BLOCK + column < columns
            other = None if EVEN else 0.0
            value = tl.load(source + block * BLOCK, mask=mask, other=other)
            bits = tl.maximum(bits, value.to(INTEGER, bitcast=True) & SIGNLESS)
            values = values + (value,)
        top = tl.max(bits, 0)
        if top > INFINITY:
            largest = 0.0
            for block in tl.static_range(BLOCKS):
                largest = tl.maximum(largest, largest_of(values[block].to(tl.float32) * scale))
        else:
            found = top.to(INTEGER).to(x.dtype.element_ty, bitcast=True).to(tl.float32)
            found = tl.abs(found * scale)
            largest = tl.where(found == found, found, 0.0)
        multiplier, back = row_scale(largest)
        for block in tl.static_range(BLOCKS):
            mask = None if EVEN else block * BLOCK + column < columns
            value = values[block].to(tl.float32) * scale * multiplier
            tl.store(target + block * BLOCK, value.to(out.dtype.element_ty), mask=mask)
        tl.store(out_scales + row, back)
    elif INIT_TAIL:
        zero = tl.zeros([BLOCK], tl.float32).to(out.dtype.element_ty)
        for start in range(0, columns, BLOCK):
            mask = start + column < columns
            tl.store(out + row * columns + start + column, zero, mask=mask)
        tl.store(out_scales + row, 0.0)


def row_blocks(columns: int) -> tuple[int, int]:
    """(block, blocks) of a program that keeps a whole row in at most 4 blocks."""
    block = min(QUANTIZE_BLOCK, power_of_two(max(columns, 16)))
    block = max(block, power_of_two(ceil_div(columns, 4)))
    return block, max(1, ceil_div(columns, block))


def gather_mul_quantize(
    x: Tensor,
    token_indices: Tensor,
    expert_indices: Tensor | None,
    scales: Tensor | None,
    valid: Tensor | None,
    init_tail: bool,
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.gather_mul_quantize`."""
    x = unit_rows(x)
    rows, columns = token_indices.shape[0], x.shape[1]
    out = torch.empty(rows, columns, dtype=FP8, device=x.device)
    out_scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows == 0:
        return out, out_scales
    block = min(KEPT_BLOCK, power_of_two(max(columns, 16)))
    block = max(block, power_of_two(ceil_div(columns, 8)))
    blocks = max(1, ceil_div(columns, block))
    integer, infinity = BIT_PATTERNS[x.dtype]
    valid, values, block_v = count_arguments(valid, token_indices)
    _gather_mul_quantize[(rows,)](
        x,
        token_indices.contiguous(),
        token_indices if expert_indices is None else expert_indices.contiguous(),
        x if scales is None else scales,
        out,
        out_scales,
        valid,
        rows,
        columns,
        x.stride(0),
        *((0, 0) if scales is None else scales.stride()),
        SCALED=scales is not None,
        INIT_TAIL=init_tail,
        VALUES=values,
        BLOCK_V=block_v,
        BLOCK=block,
        BLOCKS=blocks,
        EVEN=columns == block * blocks,
        INTEGER=integer,
        INFINITY=infinity,
        num_warps=max(1, min(16, block // KEPT_BLOCK_A_WARP)),
    )
    return out, out_scales


@quick
@triton.jit
def _count_tokens(
    token_indices,
    numbers,
    valid,
    rows,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """numbers[t], zero before: how many rows token t has."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < count_rows(valid, rows, VALUES, BLOCK_V)
    token = tl.load(token_indices + row, mask=mask, other=0).to(tl.int64)
    tl.atomic_add(numbers + token, 1, mask=mask, sem="relaxed")


@quick
@triton.jit
def _scatter_add(
    out,
    source,
    token_indices,
    token_rows,
    valid,
    rows,
    columns,
    stride_out,
    stride_source,
    stride_rank,
    rank_experts,
    PADDED: tl.constexpr,
    UNIQUE: tl.constexpr,
    COUNTED: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Program (i, j) adds BLOCKS blocks of row i. PADDED: `valid` are the experts' counts, which
    say whose copy counts. Where a token has no other row (UNIQUE, or COUNTED and its number is 1)
    nothing need be atomic.
    """
    row = tl.program_id(0).to(tl.int64)
    count = count_rows(valid, rows, VALUES, BLOCK_V)
    if row < count:
        if PADDED:
            index = tl.arange(0, BLOCK_V)
            numbers = tl.load(valid + index, mask=index < VALUES, other=0).to(tl.int32)
            ends = tl.cumsum(numbers)
            expert = tl.sum(((ends <= row) & (index < VALUES)).to(tl.int32))
            source += (expert // rank_experts).to(tl.int64) * stride_rank
        token = tl.load(token_indices + row).to(tl.int64)
        alone = UNIQUE
        if COUNTED:
            alone = tl.load(token_rows + token) == 1
        for block in tl.static_range(BLOCKS):
            column = (tl.program_id(1) * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
            mask = None if EVEN else column < columns
            value = tl.load(source + row * stride_source + column, mask=mask)
            value = value.to(out.dtype.element_ty)
            target = out + token * stride_out + column
            if alone:
                total = tl.load(target, mask=mask).to(tl.float32) + value.to(tl.float32)
                tl.store(target, total.to(out.dtype.element_ty), mask=mask)
            else:
                tl.atomic_add(target, value, mask=mask, sem="relaxed")


def _added(
    out: Tensor,
    source: Tensor,
    token_indices: Tensor,
    valid: Tensor | None,
    ranks: int,
    unique: bool,
) -> None:
    """Add the rows of `source` ([M, D], or [ranks, M, D] when `ranks` is not 0)."""
    source = unit_rows(source)
    target = unit_rows(out)
    rows, columns = source.shape[-2:]
    if rows > 0 and columns > 0 and out.shape[0] > 0:
        block, blocks, programs = column_blocks(rows, columns)
        counts, values, block_v = count_arguments(valid, token_indices)
        token_indices = token_indices.contiguous()
        counted = not unique and ranks == 0 and COUNTED_ROWS <= rows <= out.shape[0]
        numbers = token_indices
        if counted:
            numbers = torch.zeros(out.shape[0], dtype=torch.int32, device=out.device)
            _count_tokens[(ceil_div(rows, 256),)](
                *(token_indices, numbers, counts, rows),
                VALUES=values,
                BLOCK_V=block_v,
                BLOCK=256,
            )
        _scatter_add[(rows, programs)](
            target,
            source,
            token_indices,
            numbers,
            counts,
            rows,
            columns,
            target.stride(0),
            source.stride(-2),
            source.stride(0),
            max(1, values // max(1, ranks)),
            PADDED=ranks > 0,
            UNIQUE=unique,
            COUNTED=counted,
            VALUES=values,
            BLOCK_V=block_v,
            BLOCK=block,
            BLOCKS=blocks,
            EVEN=columns % (block * blocks) == 0,
        )
    if target is not out:
        out.copy_(target)
    torch.autograd.graph.increment_version(out)


def scatter_add(
    out: Tensor, rows: Tensor, token_indices: Tensor, valid: Tensor | None, unique: bool
) -> None:
    """See `anyshape.moe.scatter_add`."""
    _added(out, rows, token_indices, valid, 0, unique)


def scatter_add_padded(
    out: Tensor, rows: Tensor, token_counts: Tensor, token_indices: Tensor
) -> None:
    """See `anyshape.moe.scatter_add_padded`."""
    if token_counts.numel() > 0:
        _added(out, rows, token_indices, token_counts, rows.shape[0], False)
