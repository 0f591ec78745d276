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
    """(sizes [BLOCK_G], past-the-last tile of each group [BLOCK_G], number of tiles); the tail is
    a group of its own.
    """
    index = gl.arange(0, BLOCK_G, layout)
    size = gl.load(sizes + index, mask=index < groups, other=0).to(gl.int32)
    if INIT_TAIL:
        size = gl.where(index == groups, gl.maximum(rows - gl.sum(size, 0), 0), size)
    tiles = (size + TILE_M - 1) // TILE_M * tiles_n
    return size, gl.associative_scan(tiles, 0, _add), gl.sum(tiles, 0)


@gluon.jit
def locate(
    tile,
    size,
    ends,
    tiles_n,
    TILE_M: gl.constexpr,
    BAND: gl.constexpr,
    BLOCK_G: gl.constexpr,
    layout: gl.constexpr,
):
    """(group, its first row, its rows, tile row, tile column) of a tile: bands of BAND tile rows,
    row by row inside.
    """
    index = gl.arange(0, BLOCK_G, layout)
    before = ends <= tile
    group = gl.sum(before.to(gl.int32), 0)
    start = gl.sum(gl.where(before, size, 0), 0)
    count = gl.sum(gl.where(index == group, size, 0), 0)
    local = tile - gl.max(gl.where(before, ends, 0), 0)
    tiles_m = (count + TILE_M - 1) // TILE_M
    band = local // (BAND * tiles_n)
    width = gl.minimum(tiles_m - band * BAND, BAND)
    local -= band * BAND * tiles_n
    return group, start, count, band * BAND + local % width, local // width
