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
def activate(acc, bias, column, columns, alpha, limit, SET: gl.constexpr):
    """act(gate) * up [WM, WN // 2] of sums [WM, WN], which are WN // 2 columns of gate and then of
    up from `column` on, or both in turn. `bias` points at the group's.
    """
    WM: gl.constexpr = SET.tile.wm
    HALF: gl.constexpr = SET.tile.wn // 2
    KIND: gl.constexpr = SET.kind
    if SET.apart:
        gate, up = acc.reshape([WM, 2, HALF]).permute((0, 2, 1)).split()
    else:
        gate, up = acc.reshape([WM, HALF, 2]).split()
    if SET.biased:
        c = column + gl.arange(0, HALF, gl.SliceLayout(0, gate.type.layout))
        if SET.apart:
            first = bias + c
            second = first + columns
        else:
            first = bias + c * 2
            second = first + 1
        added = gl.load(first, mask=c < columns, other=0.0).to(gl.float32)
        gate = gate + added[None, :]
        added = gl.load(second, mask=c < columns, other=0.0).to(gl.float32)
        up = up + added[None, :]
    return act(gate, up, alpha, limit, KIND)


@gluon.constexpr_function
def rows_of(layout, swap):
    """The layout of what there is one of a row of x."""
    return gl.SliceLayout(0 if swap else 1, layout)


@gluon.constexpr_function
def columns_of(layout, swap):
    """The layout of what there is one of a column of the product."""
    return gl.SliceLayout(1 if swap else 0, layout)


@gluon.jit
def along_rows(value, SWAP: gl.constexpr):
    """A number for each row, against a tile [columns, rows] if SWAP and else [rows, columns]."""
    return gl.expand_dims(value, 0 if SWAP else 1)


@gluon.jit
def along_columns(value, SWAP: gl.constexpr):
    """A number for each column, as `along_rows`."""
    return gl.expand_dims(value, 1 if SWAP else 0)


@gluon.jit
def finish(acc, where, others, factors, SET: gl.constexpr):
    """Scales, bias and row weights of an accumulator whose rows begin at `row` of the group,
    columns at `column`.
    """
    group, start, row, column, count, columns = where
    x_scales, w_scales, bias, stride_bias = others
    row_weights, scatter_indices, weight_token, weight_group = factors
    SWAP: gl.constexpr = SET.tile.swap
    r = row + gl.arange(0, SET.tile.wm, rows_of(acc.type.layout, SWAP))
    c = column + gl.arange(0, SET.tile.wn, columns_of(acc.type.layout, SWAP))
    if SET.scaled:
        xs = gl.load(x_scales + start + r, mask=r < count, other=0.0)
        ws = gl.load(w_scales + group * columns + c, mask=c < columns, other=0.0)
        acc = acc * along_rows(xs, SWAP) * along_columns(ws, SWAP)
    if SET.biased:
        b = gl.load(bias + group * stride_bias + c, mask=c < columns, other=0.0).to(gl.float32)
        acc = acc + along_columns(b, SWAP)
    if SET.weighted:
        place = (start + r).to(gl.int64)
        if SET.factors:
            token = gl.load(scatter_indices + place, mask=r < count, other=0).to(gl.int64)
            place = token * weight_token + group.to(gl.int64) * weight_group
        rw = gl.load(row_weights + place, mask=r < count, other=0.0).to(gl.float32)
        acc = acc * along_rows(rw, SWAP)
    return acc


@gluon.jit
def store(
    value,
    place,
    SWAP: gl.constexpr,
    SCATTER: gl.constexpr,
    WM: gl.constexpr,
    WN: gl.constexpr,
):
    """Store, or add at `scatter_indices`, the rows and columns of `value` that are there."""
    out, scatter_indices, start, row, column, count, columns, stride_out = place
    r = row + gl.arange(0, WM, rows_of(value.type.layout, SWAP))
    c = column + gl.arange(0, WN, columns_of(value.type.layout, SWAP))
    target = (start + r).to(gl.int64)
    if SCATTER:
        target = gl.load(scatter_indices + start + r, mask=r < count, other=0).to(gl.int64)
    at = out + along_rows(target, SWAP) * stride_out + along_columns(c, SWAP)
    mask = along_rows(r < count, SWAP) & along_columns(c < columns, SWAP)
    if SCATTER:
        gl.atomic_add(at, value, mask=mask, sem="relaxed")
    else:
        gl.store(at, value, mask=mask)


@gluon.constexpr_function
def line_layout(columns, warps):
    """Rows of `columns`, eight elements a thread."""
    across = min(32, columns // 8)
    return gl.BlockedLayout([1, 8], [32 // across, across], [warps, 1], [1, 0])


@gluon.jit
def store_part(
    value, out_desc, buffer, place, SCATTER: gl.constexpr, WM: gl.constexpr, WN: gl.constexpr
):
    """Write the rows of a part of a tile, by way of shared memory: by the copy engine if all
    WM are there, or in lines of 16 bytes a thread, which are added at `scatter_indices` if SCATTER.
    """
    out, scatter_indices, start, first, column, end, columns, stride_out = place
    row = start + first
    count = end - first
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
        at = out + target[:, None] * (stride_out // 8 * 8) + c[None, :]
        at = gl.max_contiguous(gl.multiple_of(at, [1, 16]), [1, 8])
        mask = (r < count)[:, None] & (c < columns // 8 * 8)[None, :]
        if SCATTER:
            gl.atomic_add(at, lines, mask=mask, sem="relaxed")
        else:
            gl.store(at, lines, mask=mask)


@gluon.jit
def store_tile(
    value, out_desc, buffer, place, WM: gl.constexpr, WN: gl.constexpr, SET: gl.constexpr
):
    """Write or add the rows of a tile that are there, in one piece or in two halves."""
    if SET.halves:
        out, scatter_indices, start, row, column, count, columns, stride_out = place
        left, right = value.reshape([WM, 2, WN // 2]).permute((0, 2, 1)).split()
        store_part(left, out_desc, buffer, place, SET.scatter, WM, WN // 2)
        other = (out, scatter_indices, start, row, column + WN // 2, count, columns, stride_out)
        store_part(right, out_desc, buffer, other, SET.scatter, WM, WN // 2)
    else:
        store_part(value, out_desc, buffer, place, SET.scatter, WM, WN)
