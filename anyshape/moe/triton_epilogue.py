"""What the Triton kernels of the grouped product do with their sums: scales, bias and row weights,
or gates and ups; and how rows are stored, or added to their tokens.

A tile's `position` is where its rows lie among all rows, `row_mask` which of them there are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyshape.moe.triton_activation import gated


@triton.jit
def finish(
    acc,
    group,
    position,
    row_mask,
    column,
    real,
    columns,
    others,
    gather_indices,
    scatter_indices,
    GATHER: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    FACTORS: tl.constexpr,
):
    """(acc * scales + bias) * row weights of a tile. GATHER: a row's scale is that of the row of x
    that it is. FACTORS: its weight is that of its token for the group.
    """
    x_scales, w_scales, bias, row_weights, stride_bias, weight_token, weight_group = others
    if SCALED:
        source = position
        if GATHER:
            source = tl.load(gather_indices + position, mask=row_mask, other=0).to(tl.int64)
        a_scale = tl.load(x_scales + source, mask=row_mask, other=0.0)
        b_scale = tl.load(w_scales + group * columns + column, mask=real, other=0.0)
        acc = acc * a_scale[:, None] * b_scale[None, :]
    if BIASED:
        added = tl.load(bias + group * stride_bias + column, mask=real, other=0.0)
        acc += added.to(tl.float32)[None, :]
    if WEIGHTED:
        at = position
        if FACTORS:
            token = tl.load(scatter_indices + position, mask=row_mask, other=0).to(tl.int64)
            at = token * weight_token + group.to(tl.int64) * weight_group
        weight = tl.load(row_weights + at, mask=row_mask, other=0.0)
        acc *= weight.to(tl.float32)[:, None]
    return acc


@triton.jit
def put(
    value, out, scatter_indices, position, row_mask, column, mask, stride_out, SCATTER: tl.constexpr
):
    """Store a tile's rows, or add them to those that `scatter_indices` names."""
    if SCATTER:
        token = tl.load(scatter_indices + position, mask=row_mask, other=0).to(tl.int64)
        target = out + token[:, None] * stride_out + column[None, :]
        tl.atomic_add(target, value, mask=mask, sem="relaxed")
    else:
        tl.store(out + position[:, None] * stride_out + column[None, :], value, mask=mask)


@triton.jit
def finish_gated(
    gate,
    up,
    biases,
    columns,
    column,
    real,
    alpha,
    limit,
    KIND: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BIASED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """act(gate) * up [BM, BN] of two halves of a tile, which have gates and ups in turn if
    INTERLEAVED. `biases` points at the group's.
    """
    if INTERLEAVED:
        both = tl.reshape(tl.permute(tl.join(gate, up), (0, 2, 1)), [BM, BN, 2])
        gate, up = tl.split(both)
    if BIASED:
        first = biases + (column * 2 if INTERLEAVED else column)
        second = first + (1 if INTERLEAVED else columns)
        gate += tl.load(first, mask=real, other=0.0).to(tl.float32)[None, :]
        up += tl.load(second, mask=real, other=0.0).to(tl.float32)[None, :]
    return gated(gate, up, alpha, limit, KIND)
