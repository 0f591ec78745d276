"""What the parts of the Hopper kernel have in common: layouts, the list of tiles, the ring.

Tiles of all groups form one list, whose length and order every part of the kernel works out from
the group sizes on the device.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

# numbers that say where a tile is: six, and two that are not used
PLACE = gl.constexpr(8)


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
    MOST: gl.constexpr,
    BLOCK_G: gl.constexpr,
    INIT_TAIL: gl.constexpr,
    layout: gl.constexpr,
):
    """(past-the-last row of each group [BLOCK_G], past-the-last tile [BLOCK_G], number of tiles);
    the tail comes behind all groups. A tile has at most MOST rows.
    """
    index = gl.arange(0, BLOCK_G, layout)
    size = gl.load(sizes + index, mask=index < groups, other=0).to(gl.int32)
    tiles = (size + MOST - 1) // MOST * tiles_n
    total = gl.sum(tiles, 0)
    if INIT_TAIL:
        tail = gl.maximum(rows - gl.sum(size, 0), 0)
        total += (tail + MOST - 1) // MOST * tiles_n
    return gl.associative_scan(size, 0, _add), gl.associative_scan(tiles, 0, _add), total


@gluon.jit
def locate(tile, row_ends, ends, groups, rows, tiles_n, SET: gl.constexpr):
    """(group, its first row, its rows, the tile's first row in it, whether the tile has `extra`
    rows, tile column) of a tile: bands of tile rows, row by row inside. The tail is group `groups`.
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
    tiles_m = (count + SET.tile.most - 1) // SET.tile.most
    band = local // (SET.tile.band * tiles_n)
    width = gl.minimum(tiles_m - band * SET.tile.band, SET.tile.band)
    local -= band * SET.tile.band * tiles_n
    tile_m = band * SET.tile.band + local % width
    if SET.tile.extra:
        longer = (
            gl.maximum(count - tiles_m * SET.tile.rows + SET.tile.extra - 1, 0) // SET.tile.extra
        )
    else:
        longer = tiles_m * 0
    row = tile_m * SET.tile.rows + gl.minimum(tile_m, longer) * SET.tile.extra
    return group, start, count, row, tile_m < longer, local // width


@gluon.jit
def take(counter):
    """Count one more tile as taken; how many had been is the sum of what is returned, and nobody
    waits for the answer before it is summed. (One number would be waited for at once, to be handed
    to all threads; so would an address that is the same for all lanes.)
    """
    layout: gl.constexpr = line_layout(gl.num_warps())
    THREADS: gl.constexpr = 32 * gl.num_warps()
    lane = gl.arange(0, THREADS, layout)
    one = gl.full([THREADS], 1, gl.int32, layout)
    taken = gl.atomic_add(counter + lane, one, mask=lane == 0, sem="relaxed")
    return gl.where(lane == 0, taken, 0)


@gluon.constexpr_function
def place_layout(warps):
    """Every thread has all the numbers of a place."""
    return gl.BlockedLayout([PLACE], [32], [warps], [0])


@gluon.jit
def make_told(LISTENERS: gl.constexpr):
    """Room for the places of two tiles: (numbers, "full" and "empty" barriers)."""
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    numbers = gl.allocate_shared_memory(gl.int32, [2, PLACE], layout)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=LISTENERS)
    return numbers, full, empty


@gluon.jit
def tell(told, turn, parity, place):
    """Tell the other parts where the next tile is: six numbers."""
    numbers, full, empty = told
    mbarrier.wait(empty.index(turn), parity)
    layout: gl.constexpr = place_layout(gl.num_warps())
    index = gl.arange(0, PLACE, layout)
    value = gl.zeros([PLACE], gl.int32, layout)
    for i in gl.static_range(6):
        value = gl.where(index == i, place[i], value)
    numbers.index(turn).store(value)
    mbarrier.arrive(full.index(turn), count=1)
    return advance(turn, parity, 2)


@gluon.jit
def _nth(value, I: gl.constexpr):
    index = gl.arange(0, PLACE, value.type.layout)
    return gl.sum(gl.where(index == I, value, 0), 0)


@gluon.jit
def hear(told, turn, parity):
    """The next place that was told, and where to listen for the one behind it."""
    numbers, full, empty = told
    mbarrier.wait(full.index(turn), parity)
    value = numbers.index(turn).load(place_layout(gl.num_warps()))
    mbarrier.arrive(empty.index(turn), count=1)
    turn, parity = advance(turn, parity, 2)
    group, start, count = _nth(value, 0), _nth(value, 1), _nth(value, 2)
    row, longer, tile_n = _nth(value, 3), _nth(value, 4), _nth(value, 5)
    return group, start, count, row, longer > 0, tile_n, turn, parity
