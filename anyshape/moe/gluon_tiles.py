"""What the parts of the Hopper kernel have in common: layouts, the list of tiles, the ring.

Tiles of all groups form one list, whose length and order every part of the kernel works out from
the group sizes on the device.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from anyshape.kernels.gluon_parts import number_of, receive_numbers


@gluon.constexpr_function
def final_layout(swap, mma, warps):
    """The layout in which results are stored: eight weights' rows a thread where those are the
    first operand.
    """
    return gl.BlockedLayout([8, 1], [16, 2], [1, warps], [0, 1]) if swap else mma


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
    ROWS: gl.constexpr,
    BLOCK_G: gl.constexpr,
    INIT_TAIL: gl.constexpr,
    layout: gl.constexpr,
):
    """(past-the-last row of each group [BLOCK_G], past-the-last tile [BLOCK_G], number of tiles);
    the tail comes behind all groups. A tile has at most ROWS rows.
    """
    index = gl.arange(0, BLOCK_G, layout)
    size = gl.load(sizes + index, mask=index < groups, other=0).to(gl.int32)
    tiles = (size + ROWS - 1) // ROWS * tiles_n
    total = gl.sum(tiles, 0)
    if INIT_TAIL:
        tail = gl.maximum(rows - gl.sum(size, 0), 0)
        total += (tail + ROWS - 1) // ROWS * tiles_n
    return gl.associative_scan(size, 0, _add), gl.associative_scan(tiles, 0, _add), total


@gluon.jit
def locate(tile, row_ends, ends, groups, rows, tiles_n, SET: gl.constexpr):
    """(group, its first row, its rows, the tile's first row in it, tile column) of a tile: bands of
    tile rows, row by row inside. The tail is group `groups`.
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
    tiles_m = (count + SET.tile.rows - 1) // SET.tile.rows
    band = local // (SET.tile.band * tiles_n)
    width = gl.minimum(tiles_m - band * SET.tile.band, SET.tile.band)
    local -= band * SET.tile.band * tiles_n
    row = (band * SET.tile.band + local % width) * SET.tile.rows
    return group, start, count, row, local // width


@gluon.jit
def receive(channel, turn, parity):
    """The next message, and where the one behind it will be."""
    value, turn, parity = receive_numbers(channel, turn, parity)
    group, start, count = number_of(value, 0), number_of(value, 1), number_of(value, 2)
    row, tile_n = number_of(value, 3), number_of(value, 4)
    return group, start, count, row, tile_n, turn, parity
