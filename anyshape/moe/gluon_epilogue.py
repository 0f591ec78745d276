"""What the Hopper kernel does with its sums: scales, bias, weights or activation, and stores."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma


@gluon.jit
def act(gate, up, alpha, limit, KIND: gl.constexpr):
    """act(gate) * up; the kinds are those of `anyshape.moe.silu_mul`."""
    if KIND == "silu":
        return gate / (1.0 + gl.exp(-gate)) * up
    elif KIND == "gelu":
        return 0.5 * gate * (1.0 + gl.erf(gate * 0.7071067811865476)) * up
    elif KIND == "gelu_tanh":
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        return gate / (1.0 + gl.exp(-inner)) * up
    else:
        gate = gl.where(gate > limit, limit, gate)
        up = gl.where(up > limit, limit, up)
        up = gl.where(up < -limit, -limit, up)
        return gate / (1.0 + gl.exp(-alpha * gate)) * (up + 1.0)


@gluon.jit
def activate(
    acc,
    bias,
    column,
    columns,
    alpha,
    limit,
    KIND: gl.constexpr,
    INTERLEAVED: gl.constexpr,
    BIASED: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
):
    """act(gate) * up [WM, WN // 2] of sums [WM, WN], which are WN // 2 columns of gate and then of
    up from `column` on, or both in turn. `bias` points at the group's.
    """
    if INTERLEAVED:
        gate, up = acc.reshape([WM, WN // 2, 2]).split()
    else:
        gate, up = acc.reshape([WM, 2, WN // 2]).permute((0, 2, 1)).split()
    if BIASED:
        c = column + gl.arange(0, WN // 2, gl.SliceLayout(0, gate.type.layout))
        if INTERLEAVED:
            first = bias + c * 2
            second = first + 1
        else:
            first = bias + c
            second = first + columns
        added = gl.load(first, mask=c < columns, other=0.0).to(gl.float32)
        gate = gate + added[None, :]
        added = gl.load(second, mask=c < columns, other=0.0).to(gl.float32)
        up = up + added[None, :]
    return act(gate, up, alpha, limit, KIND)


@gluon.jit
def finish(
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
def store(
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


@gluon.constexpr_function
def line_layout(columns, warps):
    """Rows of `columns`, eight elements a thread."""
    across = min(32, columns // 8)
    return gl.BlockedLayout([1, 8], [32 // across, across], [warps, 1], [1, 0])


@gluon.jit
def store_part(
    value,
    out,
    scatter_indices,
    out_desc,
    buffer,
    row,
    count,
    column,
    columns,
    stride_out,
    SCATTER: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
):
    """Write `count` rows of a part of a tile, by way of shared memory: by the copy engine if all
    WM are there, or in lines of 16 bytes a thread, which are added at `scatter_indices` if SCATTER.
    """
    tma.store_wait(0)
    buffer.store(value)
    if (count >= WM) & (SCATTER == 0):
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [row, column], buffer)
    else:
        layout: gl.constexpr = line_layout(WN, gl.num_warps())
        lines = buffer.load(layout)
        r = gl.arange(0, WM, gl.SliceLayout(1, layout))
        c = column + gl.arange(0, WN, gl.SliceLayout(0, layout))
        target = (row + r).to(gl.int64)
        if SCATTER:
            target = gl.load(scatter_indices + target, mask=r < count, other=0).to(gl.int64)
        place = out + target[:, None] * (stride_out // 8 * 8) + c[None, :]
        place = gl.max_contiguous(gl.multiple_of(place, [1, 16]), [1, 8])
        mask = (r < count)[:, None] & (c < columns // 8 * 8)[None, :]
        if SCATTER:
            gl.atomic_add(place, lines, mask=mask, sem="relaxed")
        else:
            gl.store(place, lines, mask=mask)


@gluon.jit
def store_tile(
    value,
    out,
    scatter_indices,
    out_desc,
    buffer,
    row,
    count,
    column,
    columns,
    stride_out,
    WM: gl.constexpr,
    WN: gl.constexpr,
    HALVES: gl.constexpr,
    SCATTER: gl.constexpr,
):
    """Write or add the first `count` rows of a tile, in one piece or in two halves."""
    place = (out, scatter_indices, out_desc, buffer, row, count)
    if HALVES:
        left, right = value.reshape([WM, 2, WN // 2]).permute((0, 2, 1)).split()
        store_part(left, *place, column, columns, stride_out, SCATTER, WM, WN // 2)
        store_part(right, *place, column + WN // 2, columns, stride_out, SCATTER, WM, WN // 2)
    else:
        store_part(value, *place, column, columns, stride_out, SCATTER, WM, WN)
