"""Which tiles the grouped product uses for which shapes: a table, measured on an H200 (benchmarks/moe_kernels.py).

A shape's class is what the host knows: bits of an element and rows a group on average. Group sizes stay on the device.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of pieces_m x pieces_n pieces, each [wm rows of x, wn rows of w], and how it is loaded and stored."""

    pieces_m: int = 1
    pieces_n: int = 2
    wm: int = 128
    wn: int = 128
    bk: int = 64
    stages: int = 4
    band: int = 8
    swap: bool = False
    tma_store: bool = False
    warps: int = 4
    programs: int = 1
    flatten: bool = False


# (bits of an element, most rows a group on average, tile)
TILES: tuple[tuple[int, float, Tile], ...] = (
    (16, 12, Tile(1, 1, 16, 128, 128, 6, swap=True)),
    (16, 48, Tile(1, 1, 32, 128, 128, 5, swap=True)),
    (16, 96, Tile(1, 2, 64, 128, 64, 5)),
    (16, float("inf"), Tile(1, 2, 128, 128, 64, 4)),
    (8, 12, Tile(1, 1, 16, 128, 256, 6, swap=True)),
    (8, 48, Tile(1, 1, 32, 128, 256, 5, swap=True)),
    (8, 96, Tile(1, 2, 64, 128, 128, 5)),
    (8, float("inf"), Tile(1, 2, 128, 128, 128, 4)),
)


def choose_tile(bits: int, rows: int, groups: int) -> Tile:
    """The first tile of the table that is made for this many rows a group."""
    average = rows / groups
    return next(tile for size, most, tile in TILES if size == bits and average <= most)
