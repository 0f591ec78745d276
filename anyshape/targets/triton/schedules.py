"""How a GPU walks a kernel: tile sizes, warps, index width, what is known to be divisible.

In: a kernel; at each launch its sizes and pointers. Out: a ``KernelSchedule``, of which there are
few for each kernel: each is compiled when it is first chosen. Sizes choose a schedule and never a
specialization. Rows that fit into one tile are read once; longer ones are walked in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from anyshape.ir.loops import (
    Kernel,
    Load,
    PointerParam,
    Reduce,
    Scan,
    SizeParam,
    Store,
    index_names,
)
from anyshape.symbolic import Dim, Expr, Symbol, substitute, to_python
from anyshape.targets.reduction_phases import analyse, lane

DIVISOR = 16
"""Of addresses in bytes, and of sizes in elements: what the widest loads ask for."""
WIDEST_ROW = 16_384
"""Elements of a row that one tile may hold."""
FLAT_TILE = 1024
LONG_ROW_TILE = 4096
PROGRAMS = 1056
"""Programs that keep a large GPU busy: eight for each of 132 multiprocessors."""
MOST_SHARES = 1056
LARGEST_INT32 = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class KernelSchedule:
    """``block`` cells of the parallel axes and ``row`` elements of the row are one tile (``row`` is
    0 where there are no rows). ``whole``: the tile holds the row. ``divisible``: positions of the
    parameters that are multiples of 16. ``wide``: indices are 64 bits. ``part``: rows are shared
    out among programs; the ``partial`` kernel leaves a total of each share, ``final`` combines
    them."""

    block: int
    row: int = 0
    whole: bool = False
    warps: int = 4
    divisible: tuple[int, ...] = ()
    wide: bool = True
    part: Literal["whole", "partial", "final"] = "whole"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is launched: ``shares`` of a row, ``each`` of so many elements, where it is cut."""

    schedule: KernelSchedule
    tiles: int
    shares: int = 1
    each: int = 0


def may_split(kernel: Kernel) -> bool:
    """Is it one pass over the row, of which a number for each place is left?"""
    phases = analyse(kernel)
    reduces = [n for n, e in enumerate(kernel.elements) if isinstance(e, Reduce)]
    one_pass = all(phases.level[kernel.elements[n].arg] == 0 for n in reduces)  # type: ignore[union-attr]
    scans = any(isinstance(element, Scan) for element in kernel.elements)
    per_row = all(store.per == "row" for store in kernel.stores)
    return bool(reduces) and one_pass and per_row and not scans


def default_schedule(kernel: Kernel) -> KernelSchedule:
    """One that is right for every size."""
    if not kernel.reduction_axes:
        return KernelSchedule(FLAT_TILE)
    return KernelSchedule(1, FLAT_TILE) if walks_along_rows(kernel) else KernelSchedule(64, 16)


def walks_along_rows(kernel: Kernel) -> bool:
    """Do neighbours in memory lie along the row?"""
    phases = analyse(kernel)
    return lane(kernel, phases) in phases.reduction_names


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses the schedule of each launch, from arguments as they are passed.

    ``cells`` and ``row`` compute the number of cells and the length of a row from the arguments;
    ``furthest`` the largest index of an access, where it follows from sizes alone.
    """

    kernel: Kernel
    cells: Callable[..., int]
    row: Callable[..., int]
    furthest: Callable[..., int]
    along_rows: bool
    may_split: bool
    pointers: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, kernel: Kernel) -> Chooser:
        names = [param.name for param in kernel.params]
        return cls(
            kernel,
            _compiled(names, _product(axis.extent for axis in kernel.axes)),
            _compiled(names, _product(axis.extent for axis in kernel.reduction_axes)),
            _compiled(names, f"max({', '.join(_furthest(kernel))}, 0)"),
            bool(kernel.reduction_axes) and walks_along_rows(kernel),
            may_split(kernel),
            tuple(n for n, p in enumerate(kernel.params) if isinstance(p, PointerParam)),
            tuple(n for n, p in enumerate(kernel.params) if isinstance(p, SizeParam)),
        )

    def schedule(self, arguments: Sequence[int]) -> Choice:
        """The schedule, the number of tiles of cells, and of shares of a row."""
        cells, row = self.cells(*arguments), self.row(*arguments)
        aligned = all(arguments[n] % DIVISOR == 0 for n in self.pointers)
        divisible: tuple[int, ...] = ()
        if aligned:
            divisible = (*self.pointers, *(n for n in self.sizes if arguments[n] % DIVISOR == 0))
        largest = max(self.furthest(*arguments), cells, row, *(arguments[n] for n in self.sizes))
        wide = largest > LARGEST_INT32
        block, tile, whole, warps = self._tile(row)
        tiles = -(-cells // block)
        shares = self._shares(row, tiles) if self.may_split else 1
        if shares > 1:
            tile, whole, warps = (LONG_ROW_TILE if self.along_rows else 64), False, 8
            block = 1 if self.along_rows else block
            tiles = -(-cells // block)
        made = KernelSchedule(block, tile, whole, warps, divisible, wide)
        return Choice(made, tiles, shares, -(-row // (tile * shares)) * tile if shares > 1 else 0)

    def _shares(self, row: int, tiles: int) -> int:
        """Into how many shares rows are cut so that every multiprocessor has work."""
        least = LONG_ROW_TILE * 4 if self.along_rows else 256
        return max(1, min(PROGRAMS // max(tiles, 1), row // least, MOST_SHARES))

    def _tile(self, row: int) -> tuple[int, int, bool, int]:
        if not self.kernel.reduction_axes:
            return FLAT_TILE, 0, False, 4
        if not self.along_rows:
            return 64, 16, False, 4
        tile = max(16, 1 << max(row - 1, 0).bit_length())
        if tile > WIDEST_ROW:
            return 1, LONG_ROW_TILE * 2, False, 16
        warps = 4 if tile <= 2048 else 8 if tile <= 8192 else 16
        return max(1, FLAT_TILE // tile), tile, True, warps


def _product(extents: Iterable[Dim]) -> str:
    return "*".join(f"({to_python(extent)})" for extent in extents) or "1"


def _furthest(kernel: Kernel) -> list[str]:
    """The largest index of each access, as Python text; nothing for those that loaded integers
    decide, which are 64 bits anyway."""
    axes = {axis.name: axis.extent for axis in (*kernel.axes, *kernel.reduction_axes)}
    found = ["0"]
    for item in (*kernel.elements, *kernel.stores):
        if isinstance(item, Load | Store) and isinstance(item.index, Expr):
            if any(name[0] == "v" for name in index_names(item)):
                continue
            if not _grows(item.index, axes):
                return [str(LARGEST_INT32 + 1)]
            ends: dict[Symbol, Dim] = {
                s: axes[s.name] - 1 for s in item.index.symbols if s.name in axes
            }
            found.append(to_python(substitute(item.index, ends)))
    return found


def _grows(index: Expr, axes: Mapping[str, Dim]) -> bool:
    """Is the index largest at the last place of each axis, for its form alone?"""
    for monomial, factor in index.terms.items():
        for atom in monomial:
            if not isinstance(atom, Symbol) or (factor < 0 and atom.name in axes):
                return False
    return True


def _compiled(names: Sequence[str], text: str) -> Callable[..., int]:
    made: Callable[..., int] = eval(f"lambda {', '.join(names)}: {text}")
    return made
