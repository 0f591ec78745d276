"""What the parts of the Hopper kernel have in common: layouts, the list of tiles, the ring.

Tiles of all groups form one list, whose length and order every part of the kernel works out from
the group sizes on the device.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def line_layout(warps):
    return gl.BlockedLayout([1], [32], [warps], [0])


@gluon.constexpr_function
def accumulator_layout(warps, columns, k_width):
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, columns, k_width])


@gluon.constexpr_function
def final_layout(swap, mma, warps):
    """The layout in which results are stored: eight weights' rows a thread where those are the
    first operand.
    """
    return gl.BlockedLayout([8, 1], [16, 2], [1, warps], [0, 1]) if swap else mma


@gluon.constexpr_function
def pick(condition, yes, no):
    return yes if condition else no


@gluon.jit
def advance(slot, phase, STAGES: gl.constexpr):
    """The next place in the ring, and the parity its barriers then have."""
    wrap = slot == STAGES - 1
    return gl.where(wrap, 0, slot + 1), gl.where(wrap, phase ^ 1, phase)


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def _add_groups(groups, ends, row_ends, next_row, groups_2, ends_2, row_ends_2, next_row_2):
    return (
        groups + groups_2,
        gl.maximum(ends, ends_2),
        gl.maximum(row_ends, row_ends_2),
        gl.minimum(next_row, next_row_2),
    )


@gluon.jit
def plan(
    sizes,
    groups,
    rows,
    tiles_n,
    TILE_M: gl.constexpr,
    BLOCK_G: gl.constexpr,
    INIT_TAIL: gl.constexpr,
    layout: gl.constexpr,
):
    """(past-the-last row of each group [BLOCK_G], past-the-last tile [BLOCK_G], number of tiles);
    the tail comes behind all groups.
    """
    index = gl.arange(0, BLOCK_G, layout)
    size = gl.load(sizes + index, mask=index < groups, other=0).to(gl.int32)
    tiles = (size + TILE_M - 1) // TILE_M * tiles_n
    total = gl.sum(tiles, 0)
    if INIT_TAIL:
        tail = gl.maximum(rows - gl.sum(size, 0), 0)
        total += (tail + TILE_M - 1) // TILE_M * tiles_n
    return gl.associative_scan(size, 0, _add), gl.associative_scan(tiles, 0, _add), total


@gluon.jit
def locate(tile, row_ends, ends, groups, rows, tiles_n, TILE_M: gl.constexpr, BAND: gl.constexpr):
    """(group, its first row, its rows, tile row, tile column) of a tile: bands of BAND tile rows,
    row by row inside. The tail is group `groups`.
    """
    before = ends <= tile
    group, first, start, end = gl.reduce(
        (
            before.to(gl.int32),
            gl.where(before, ends, 0),
            gl.where(before, row_ends, 0),
            gl.where(before, 2147483647, row_ends),
        ),
        0,
        _add_groups,
    )
    group = gl.minimum(group, groups)
    count = gl.where(group < groups, end, rows) - start
    local = tile - first
    tiles_m = (count + TILE_M - 1) // TILE_M
    band = local // (BAND * tiles_n)
    width = gl.minimum(tiles_m - band * BAND, BAND)
    local -= band * BAND * tiles_n
    return group, start, count, band * BAND + local % width, local // width
