"""Rows by index for the Hopper kernel: all threads of the loading warpgroup copy 16 bytes each."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@gluon.constexpr_function
def copy_layout(columns, warps):
    """Eight elements a thread, one row behind the other."""
    return gl.BlockedLayout([1, 8], [256 // columns, columns // 8], [warps, 1], [1, 0])


@gluon.jit
def row_pointers(x, indices, row, count, x_row, WM: gl.constexpr, BK: gl.constexpr):
    """(where elements 0 to BK of WM rows of x are, which of them there are [WM, BK]): row i is
    x[indices[row + i]] as long as row + i < count.
    """
    layout: gl.constexpr = copy_layout(BK, gl.num_warps())
    r = row + gl.arange(0, WM, gl.SliceLayout(1, layout))
    token = gl.load(indices + r, mask=r < count, other=0).to(gl.int64)
    column = gl.arange(0, BK, gl.SliceLayout(0, layout))
    there = gl.expand_dims(r < count, 1) & gl.expand_dims(column >= 0, 0)
    return x + token[:, None] * (x_row // 8 * 8) + column[None, :], there


@gluon.jit
def copy_rows(buffer, pointers, k):
    """Start copying elements k and on of the rows to `buffer`; zeros where there is no row."""
    position = gl.max_contiguous(gl.multiple_of(pointers[0] + k, [1, 16]), [1, 8])
    async_copy.async_copy_global_to_shared(buffer, position, mask=pointers[1])
