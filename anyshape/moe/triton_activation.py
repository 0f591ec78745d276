"""Gated activations, plain or quantized by row, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from anyshape.kernels.launches import ceil_div, power_of_two, quick
from anyshape.moe.triton_gather import FP8, row_blocks
from anyshape.moe.triton_rows import count_arguments, count_rows, largest_of, row_scale


@triton.jit
def tanh(x):
    """tanh by way of the sigmoid, exact at both ends."""
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def gated(gate, up, alpha, limit, KIND: tl.constexpr):
    """act(gate) * up in float32; the kinds are those of `anyshape.moe.silu_mul`."""
    if KIND == "silu":
        return gate * tl.sigmoid(gate) * up
    if KIND == "gelu":
        return 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476)) * up
    if KIND == "gelu_tanh":
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        return 0.5 * gate * (1.0 + tanh(inner)) * up
    gate = tl.minimum(gate, limit, propagate_nan=tl.PropagateNan.ALL)
    up = tl.minimum(up, limit, propagate_nan=tl.PropagateNan.ALL)
    up = tl.maximum(up, -limit, propagate_nan=tl.PropagateNan.ALL)
    return gate * tl.sigmoid(alpha * gate) * (up + 1.0)


@quick
@triton.jit
def _silu_mul(
    gate,
    up,
    out,
    valid,
    rows,
    columns,
    gate_row,
    gate_column,
    up_row,
    up_column,
    alpha,
    limit,
    KIND: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, j) makes block j of row i."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    if row < count_rows(valid, rows, VALUES, BLOCK_V):
        first = tl.load(gate + row * gate_row + column * gate_column, mask=mask).to(tl.float32)
        second = tl.load(up + row * up_row + column * up_column, mask=mask).to(tl.float32)
        value = gated(first, second, alpha, limit, KIND)
        tl.store(out + row * columns + column, value.to(out.dtype.element_ty), mask=mask)
    elif INIT_TAIL:
        zero = tl.zeros([BLOCK], tl.float32).to(out.dtype.element_ty)
        tl.store(out + row * columns + column, zero, mask=mask)


@quick
@triton.jit
def _silu_mul_quantize(
    gate,
    up,
    out,
    out_scales,
    valid,
    rows,
    columns,
    gate_row,
    gate_column,
    up_row,
    up_column,
    alpha,
    limit,
    KIND: tl.constexpr,
    INIT_TAIL: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Program i makes row i: its largest value first, then its fp8 values; the row stays in
    registers.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    gate += row * gate_row + column * gate_column
    up += row * up_row + column * up_column
    out += row * columns + column
    if row < count_rows(valid, rows, VALUES, BLOCK_V):
        largest = 0.0
        values = ()
        for block in tl.static_range(BLOCKS):
            start = block * BLOCK
            mask = start + column < columns
            first = tl.load(gate + start * gate_column, mask=mask, other=0.0).to(tl.float32)
            second = tl.load(up + start * up_column, mask=mask, other=0.0).to(tl.float32)
            value = tl.where(mask, gated(first, second, alpha, limit, KIND), 0.0)
            largest = tl.maximum(largest, largest_of(value))
            values = values + (value,)
        multiplier, back = row_scale(largest)
        for block in tl.static_range(BLOCKS):
            value = (values[block] * multiplier).to(out.dtype.element_ty)
            tl.store(out + block * BLOCK, value, mask=block * BLOCK + column < columns)
        tl.store(out_scales + row, back)
    elif INIT_TAIL:
        zero = tl.zeros([BLOCK], tl.float32).to(out.dtype.element_ty)
        for start in range(0, columns, BLOCK):
            tl.store(out + start, zero, mask=start + column < columns)
        tl.store(out_scales + row, 0.0)


def silu_mul(
    gate: Tensor,
    up: Tensor,
    valid: Tensor | None,
    kind: str,
    alpha: float,
    limit: float,
    init_tail: bool,
) -> Tensor:
    """See `anyshape.moe.silu_mul`."""
    rows, columns = gate.shape
    out = torch.empty(rows, columns, dtype=gate.dtype, device=gate.device)
    if out.numel() == 0:
        return out
    block = min(1024, power_of_two(max(columns, 16)))
    counts, values, block_v = count_arguments(valid, gate)
    _silu_mul[(rows, ceil_div(columns, block))](
        *(gate, up, out, counts, rows, columns, *gate.stride(), *up.stride(), alpha, limit),
        KIND=kind,
        INIT_TAIL=init_tail,
        VALUES=values,
        BLOCK_V=block_v,
        BLOCK=block,
    )
    return out


def silu_mul_quantize(
    gate: Tensor,
    up: Tensor,
    valid: Tensor | None,
    kind: str,
    alpha: float,
    limit: float,
    init_tail: bool,
) -> tuple[Tensor, Tensor]:
    """See `anyshape.moe.silu_mul_quantize`."""
    rows, columns = gate.shape
    out = torch.empty(rows, columns, dtype=FP8, device=gate.device)
    scales = torch.empty(rows, dtype=torch.float32, device=gate.device)
    if rows == 0:
        return out, scales
    block, blocks = row_blocks(columns)
    counts, values, block_v = count_arguments(valid, gate)
    _silu_mul_quantize[(rows,)](
        *(gate, up, out, scales, counts, rows, columns),
        *(*gate.stride(), *up.stride(), alpha, limit),
        KIND=kind,
        INIT_TAIL=init_tail,
        VALUES=values,
        BLOCK_V=block_v,
        BLOCK=block,
        BLOCKS=blocks,
        num_warps=max(1, min(16, block // 512)),
    )
    return out, scales
