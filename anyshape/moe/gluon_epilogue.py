"""What the Hopper kernel does with its sums: scales, bias, weights or activation, and stores."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from anyshape.kernels.gluon_parts import pick


@gluon.jit
def beside(where, columns):
    """An address that many columns on."""
    group, start, row, column, count, all_columns = where
    return group, start, row, column + columns, count, all_columns


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
def split_gates(acc, SEPARATE: gl.constexpr):
    """(gate, up) of sums whose columns are all gates and then all ups, or both in turn."""
    WM: gl.constexpr = acc.shape[0]
    HALF: gl.constexpr = acc.shape[1] // 2
    if SEPARATE:
        return acc.reshape([WM, 2, HALF]).permute((0, 2, 1)).split()
    else:
        return acc.reshape([WM, HALF, 2]).split()


@gluon.jit
def activate(gate, up, where, others, curve, SWAP: gl.constexpr, SET: gl.constexpr):
    """act(gate) * up of sums, with their biases; [columns, rows] if SWAP."""
    group, start, row, column, count, columns = where
    x_scales, w_scales, bias, stride_bias = others
    alpha, limit = curve
    KIND: gl.constexpr = SET.kind
    if SET.biased:
        N: gl.constexpr = gate.shape[pick(SWAP, 0, 1)]
        c = column + gl.arange(0, N, columns_of(gate.type.layout, SWAP))
        first = bias + group * stride_bias + pick(SET.separate, 1, 2) * c
        if SET.separate:
            second = first + columns
        else:
            second = first + 1
        added = gl.load(first, mask=c < columns, other=0.0).to(gl.float32)
        gate = gate + along_columns(added, SWAP)
        added = gl.load(second, mask=c < columns, other=0.0).to(gl.float32)
        up = up + along_columns(added, SWAP)
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
def finish(acc, where, others, factors, SWAP: gl.constexpr, SET: gl.constexpr):
    """Scales, bias and row weights of an accumulator whose rows begin at `row` of the group,
    columns at `column`; [columns, rows] if SWAP.
    """
    group, start, row, column, count, columns = where
    x_scales, w_scales, bias, stride_bias = others
    row_weights, scatter_indices, weight_token, weight_group = factors
    r = row + gl.arange(0, acc.shape[pick(SWAP, 1, 0)], rows_of(acc.type.layout, SWAP))
    c = column + gl.arange(0, acc.shape[pick(SWAP, 0, 1)], columns_of(acc.type.layout, SWAP))
    if SET.scaled:
        xs = gl.load(x_scales + start + r, mask=r < count, other=0.0)
        ws = gl.load(w_scales + group * columns + c, mask=c < columns, other=0.0)
        acc = acc * along_rows(xs, SWAP) * along_columns(ws, SWAP)
    if SET.biased:
        b = gl.load(bias + group * stride_bias + c, mask=c < columns, other=0.0).to(gl.float32)
        acc = acc + along_columns(b, SWAP)
    if SET.weighted:
        position = (start + r).to(gl.int64)
        if SET.factors:
            token = gl.load(scatter_indices + position, mask=r < count, other=0).to(gl.int64)
            position = token * weight_token + group.to(gl.int64) * weight_group
        rw = gl.load(row_weights + position, mask=r < count, other=0.0).to(gl.float32)
        acc = acc * along_rows(rw, SWAP)
    return acc


@gluon.jit
def store(
    value,
    target,
    where,
    SWAP: gl.constexpr,
    SCATTER: gl.constexpr,
):
    """Store, or add at `scatter_indices`, the rows and columns of `value` that are there."""
    out, scatter_indices, stride_out = target
    group, start, row, column, count, columns = where
    r = row + gl.arange(0, value.shape[pick(SWAP, 1, 0)], rows_of(value.type.layout, SWAP))
    c = column + gl.arange(0, value.shape[pick(SWAP, 0, 1)], columns_of(value.type.layout, SWAP))
    to = (start + r).to(gl.int64)
    if SCATTER:
        to = gl.load(scatter_indices + start + r, mask=r < count, other=0).to(gl.int64)
    at = out + along_rows(to, SWAP) * stride_out + along_columns(c, SWAP)
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
def _store_lines(buffer, target, where, SCATTER: gl.constexpr):
    """Write the rows in `buffer` in lines of 16 bytes a thread, or add them to their tokens."""
    out, scatter_indices, stride_out = target
    group, start, row, column, count, columns = where
    layout: gl.constexpr = line_layout(buffer.shape[1], gl.num_warps())
    lines = buffer.load(layout)
    r = row + gl.arange(0, buffer.shape[0], gl.SliceLayout(1, layout))
    c = column + gl.arange(0, buffer.shape[1], gl.SliceLayout(0, layout))
    to = (start + r).to(gl.int64)
    if SCATTER:
        to = gl.load(scatter_indices + to, mask=r < count, other=0).to(gl.int64)
    at = out + to[:, None] * (stride_out // 8 * 8) + c[None, :]
    at = gl.max_contiguous(gl.multiple_of(at, [1, 16]), [1, 8])
    mask = (r < count)[:, None] & (c < columns // 8 * 8)[None, :]
    if SCATTER:
        gl.atomic_add(at, lines, mask=mask, sem="relaxed")
    else:
        gl.store(at, lines, mask=mask)


@gluon.jit
def store_tile(
    value, out_desc, buffer, target, where, SCATTER: gl.constexpr, LAST: gl.constexpr = True
):
    """Write or add the rows of a tile that are there, by way of shared memory, as many columns at a
    time as `buffer` has: by the copy engine if all rows are there and nothing is added.
    """
    group, start, row, column, count, columns = where
    WM: gl.constexpr = value.shape[0]
    WN: gl.constexpr = value.shape[1]
    if WN > buffer.shape[1]:
        left, right = value.reshape([WM, 2, WN // 2]).permute((0, 2, 1)).split()
        store_tile(left, out_desc, buffer, target, where, SCATTER, False)
        store_tile(right, out_desc, buffer, target, beside(where, WN // 2), SCATTER, LAST)
    else:
        tma.store_wait(0)
        buffer.store(value)
        if (count - row >= WM) & (SCATTER == 0) & LAST:
            fence_async_shared()
            tma.async_copy_shared_to_global(out_desc, [start + row, column], buffer)
        else:
            _store_lines(buffer, target, where, SCATTER)
