"""Which tiles the grouped product uses for which shapes: a table, measured on an H200
(benchmarks/moe_kernels.py).

A shape's class is what the host knows: bits of an element, rows a group on average, length of a
row. Group sizes stay on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tall:
    """Tiles of groups that have more rows than a tile: so many rows, elements of a row at once, and
    stages.
    """

    rows: int
    bk: int
    stages: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of pieces_m x pieces_n pieces, each [wm rows of x, wn rows of w], and how it is loaded
    and stored. `band` tile rows of a group are worked on together, so that they share readings of
    the group's weights.

    Results are staged in shared memory, `store_n` columns at a time.

    `specialized` says which kernel: the one in Gluon, whose loads have a warp of their own and
    whose pieces have a warpgroup each, or the one in Triton, which has one piece, and may `flatten`
    its loops over tiles and `bk`, or have tall tiles.
    """

    pieces_m: int = 1
    pieces_n: int = 1
    wm: int = 128
    wn: int = 256
    bk: int = 64
    stages: int = 4
    band: int = 8
    swap: bool = False
    staged: bool = False
    store_n: int = 256
    warps: int = 4
    programs: int = 1
    flatten: bool = False
    specialized: bool = False
    tall: Tall | None = None

    @property
    def rows(self) -> int:
        """Rows of x that all pieces of a tile have together."""
        return self.wm * self.pieces_m


@dataclass(frozen=True, slots=True)
class Shapes:
    """A class of shapes: so many bits, at most so many rows a group on average, and elements a
    row; and its tile.
    """

    bits: int
    rows: float
    inner: float
    tile: Tile


ANY = float("inf")
FEW_ROWS = Tile(1, 1, 16, 128, 128, 3, swap=True, programs=2, tall=Tall(64, 64, 4))
TWO_CONSUMERS = Tile(2, 1, 64, 256, 64, 4, staged=True, store_n=128, specialized=True)
# up to 192 rows, so that a group of 128 to 192 rows has one tile and reads its weights once
THREE_CONSUMERS = Tile(3, 1, 64, 128, 64, 5, staged=True, store_n=64, specialized=True)
TWO_PROGRAMS = Tile(1, 1, 128, 128, 64, 3, programs=2, flatten=True)


def _with_eight_bits(table: tuple[Shapes, ...]) -> tuple[Shapes, ...]:
    """The classes for 16 bits, and the same for 8, twice as many elements of a row at once."""
    eight = (replace(one, bits=8, tile=_of_bytes(one.tile)) for one in table)
    return (*table, *eight)


def _of_bytes(tile: Tile) -> Tile:
    """The same tile for elements of half the size."""
    tall = tile.tall and replace(tile.tall, bk=2 * tile.tall.bk)
    return replace(tile, bk=2 * tile.bk, tall=tall)


SOME_ROWS = (
    Shapes(16, 12, ANY, FEW_ROWS),
    Shapes(16, 24, ANY, Tile(1, 1, 32, 128, 128, 4, swap=True, flatten=True)),
    Shapes(16, 64, ANY, Tile(1, 1, 64, 128, 128, 4, flatten=True)),
    Shapes(16, 96, ANY, TWO_PROGRAMS),
    Shapes(16, 180, ANY, THREE_CONSUMERS),
)
TILES = _with_eight_bits((*SOME_ROWS, Shapes(16, ANY, ANY, TWO_CONSUMERS)))
# rows that are gathered, or added to their tokens
SIMPLE_TILES = _with_eight_bits(
    (
        *SOME_ROWS,
        Shapes(16, 320, ANY, TWO_CONSUMERS),
        Shapes(16, ANY, ANY, TWO_PROGRAMS),
    )
)
# `wn` columns of gate and of up each, or half as many if `specialized`
SOME_GATED_ROWS = (
    Shapes(16, 12, ANY, replace(FEW_ROWS, wn=64)),
    Shapes(16, 40, ANY, Tile(1, 1, 32, 64, 128, 4, swap=True, flatten=True)),
)
GATED_TILES = (
    *SOME_GATED_ROWS,
    Shapes(16, 96, ANY, TWO_CONSUMERS),
    Shapes(16, 180, ANY, THREE_CONSUMERS),
    Shapes(16, ANY, ANY, TWO_CONSUMERS),
)
# the same where rows are gathered by index
GATED_GATHER_TILES = (
    *SOME_GATED_ROWS,
    Shapes(16, 96, 4096, TWO_CONSUMERS),
    Shapes(16, 180, ANY, THREE_CONSUMERS),
    Shapes(16, 320, 4096, TWO_CONSUMERS),
    Shapes(16, ANY, ANY, Tile(1, 1, 128, 128, 64, 4, warps=8)),
)


def choose_tile(
    table: tuple[Shapes, ...],
    bits: int,
    rows: int,
    groups: int,
    inner: int,
    specialized: bool = True,
) -> Tile:
    """The tile of the first class of the table that has room for this shape; one for the kernel in
    Triton if not `specialized`.
    """
    average = rows / groups
    return next(
        shapes.tile
        for shapes in table
        if shapes.bits == bits
        and average <= shapes.rows
        and inner <= shapes.inner
        and (specialized or not shapes.tile.specialized)
    )
