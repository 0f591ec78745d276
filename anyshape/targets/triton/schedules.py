"""How a GPU walks a kernel: tile sizes, warps, index width, what is known to be divisible.

In: a kernel; at each launch its sizes and pointers. Out: a ``KernelSchedule``, of which there are
few for each kernel: each is compiled when it is first chosen. Sizes choose a schedule and never a
specialization. Fibers that fit into registers are read once; longer ones are walked in a loop.
Where there are fewer fibers than a GPU has room for, fibers are cut into shares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from anyshape.ir.dtypes import bool_
from anyshape.ir.loops import (
    Kernel,
    Load,
    Op,
    Position,
    Read,
    Reduce,
    Scan,
    SizeParam,
    Store,
    element_of,
    index_names,
)
from anyshape.nouns import frozen, replace
from anyshape.symbolic import Dim, Expr, Symbol, substitute, to_python
from anyshape.targets.reduction_phases import Phases, analyse, lane
from anyshape.targets.triton.narrow import fiber_start
from anyshape.targets.triton.online import online
from anyshape.targets.triton.products import tiled_product

DIVISOR = 16
"""Of addresses in bytes, and of sizes in elements: what the widest loads ask for."""
WIDEST_FIBER, WIDEST_WRITTEN_FIBER = 16_384, 32_768
"""Elements of a fiber that are kept in registers; where each cell is written, a pass more."""
SHORT_FIBER = 1024
"""Fibers of so many elements share tiles, which are powers of two."""
FLAT_TILE = 1024
LARGE_FLAT_TILE, LARGE_FLAT_WARPS, SHORT_BYTES = 2048, 8, 2
"""Of elements of so few bytes where each multiprocessor has several: half as many programs."""
LONG_FIBER_TILE = 4096
COLUMNS_TILE, LARGE_COLUMNS_TILE, NARROW_COLUMNS_TILE = (64, 32), (64, 128), (32, 32)
HALF_COLUMNS_TILE, LONG_COLUMNS_TILE = (64, 64), (32, 64)
"""Cells and elements of a tile where neighbours in memory lie along the cells; of tensors that take
most of the cache or more, cut into shares; of few cells, and of fibers that begin at any address,
whose loads are narrow, so that more programs have to wait for memory at once. Of half the cache,
and there and above of elements of four bytes or more, of which a large tile took twice as long."""
ODD_SHARES, UNROLLED = 2, 2
MULTIPROCESSORS = 132
"""Of a large GPU."""
LONG_COLUMN = 1024
"""Elements of a strided fiber that may be cut."""
SHORT_COLUMN, SHORT_CELLS = 32, 1024
"""Strided fibers of so few elements are kept in registers, in tiles of so many cells."""
LONGEST_TILE = 2048
"""Elements of one of the tiles of a fiber in registers, where the fiber has several."""
LEAST_SHARE = 2048
"""Elements of a fiber that are worth a program of their own; 256 of a strided one, and of a fiber
that is all there is, of so many elements at least, in so many shares at most."""
LONE_FIBER, LONE_SHARE, LONE_SHARES = 4096, 256, 64
LARGE = 1 << 25
"""More elements than this come from memory, not from the cache; of half as many most do."""
MOST_TOTALS = 2048
"""Totals of shares that are combined at a time."""
LARGEST_INT32 = (1 << 31) - 1
LARGEST_GRID = (1 << 31) - 1
WIDEST_TILE = 1 << 17
"""Indices past the end, which are masked, are at most so far past it."""
FLAT_TILES = ((256, 2), (512, 2), (1024, 2), (1024, 4), (2048, 4), (2048, 8))
COLUMNS_TILES = ((64, 16), (64, 32), (64, 64), (128, 32), (32, 32))
MOST_PIECES = 8
"""What else may be measured: tiles and warps."""


@frozen
class KernelSchedule:
    """``block`` cells of the parallel axes and ``fiber`` elements of the fiber are one tile
    (``fiber`` is 0 where there are no fibers). ``pieces``: the fiber lies in so many tiles, which
    are kept in registers, all but the last of them full; 0: phases are loops over the fiber.
    ``even``: the last is full, too. ``aligned``: tiles of a loop begin at multiples of 16 elements
    in memory, wherever the fiber begins. ``divisible``: positions of the parameters that are
    multiples of 16. ``wide``: indices are 64 bits. ``phase``: fibers are shared out among programs,
    and this is one phase over them, for which ``totals`` shares of the phases before are combined
    at a time. ``once``: a share is one tile. ``exact_grid``: there is a program for each tile, so
    that none looks for another. ``unroll``: turns of a loop over a
    fiber whose loads are under way together. ``columns``: a matrix product in tiles of ``block``
    rows and so many columns, ``fiber`` elements of the summed axis at a time."""

    block: int
    fiber: int = 0
    pieces: int = 0
    even: bool = False
    warps: int = 4
    divisible: tuple[int, ...] = ()
    wide: bool = True
    phase: int | None = None
    totals: int = 0
    aligned: bool = False
    unroll: int = 1
    once: bool = False
    exact_grid: bool = False
    columns: int = 0

    def __str__(self) -> str:
        if self.columns:
            tile = f"{self.block} x {self.columns} x {self.fiber}"
            return f"product in tiles of {tile}, {self.warps} warps"
        tile = f"{self.block} x {self.fiber}" if self.fiber else f"{self.block}"
        tiles = f"fibers in {self.pieces} tiles of " if self.pieces > 1 else "tiles of "
        tiles = "aligned tiles of " if self.aligned else tiles
        phase = "" if self.phase is None else f"phase {self.phase} over shares of rows, "
        wide = ", 64-bit indices" if self.wide else ""
        return f"{phase}{tiles}{tile}, {self.warps} warps{wide}"


PRODUCT_TILES = (
    KernelSchedule(64, 64, columns=128, warps=4),
    KernelSchedule(128, 64, columns=64, warps=4),
    KernelSchedule(64, 64, columns=64, warps=4),
    KernelSchedule(16, 128, columns=64, warps=4),
    KernelSchedule(16, 128, columns=32, warps=4),
)
"""Of matrix products, the best of those that are large first."""
LARGE_PRODUCT_TILES = (KernelSchedule(128, 64, columns=128, warps=8),)
"""Best where little is made of the product: measured, and never the rule's."""
FEWEST_TILES = 112


@frozen
class Choice:
    """What is launched: ``shares`` of a fiber, ``each`` of so many elements, where it is cut.
    ``work``: elements of all fibers. ``library``: a library makes the product, and a kernel reads
    it."""

    schedule: KernelSchedule
    tiles: int
    work: int
    shares: int = 1
    each: int = 0
    library: bool = False

    def __str__(self) -> str:
        if self.library:
            return "a library's product, and a kernel"
        return f"{self.schedule}, {self.shares} shares" if self.shares > 1 else str(self.schedule)


@frozen
class ThreadElements:
    """Where in a tile the elements of one thread lie: ``turns`` times ``neighbours`` in the fiber,
    of ``lanes`` threads side by side."""

    turns: int
    lanes: int
    neighbours: int


def thread_elements(kernel: Kernel, schedule: KernelSchedule) -> ThreadElements:
    """As Triton lays out a tile of the fiber that is loaded; where it does otherwise, a reduction
    over these is slower and no less right."""
    if schedule.block > 1:
        return ThreadElements(2, schedule.fiber // 2, 1)
    own = max(schedule.fiber // (32 * schedule.warps), 1)
    sizes = [e.dtype.size_bytes for e in kernel.elements if isinstance(e, Load)]
    widest = DIVISOR // min(sizes, default=DIVISOR)
    vector = min(widest, own) if schedule.divisible or schedule.aligned else 1
    return ThreadElements(own // vector, schedule.fiber // own, vector)


def may_split(kernel: Kernel) -> bool:
    """May shares of a fiber be given to programs that run in any order?"""
    reduces = any(isinstance(element, Reduce) for element in kernel.elements)
    scans = any(isinstance(element, Scan) for element in kernel.elements)
    return reduces and not scans and not kernel.ordered


def passes(kernel: Kernel) -> int:
    """How often the fiber is walked where it is not kept in registers."""
    phases = analyse(online(kernel).kernel)
    return sum(bool(works_in_fiber(phases, level)) for level in range(phases.count))


def works_in_fiber(phases: Phases, level: int) -> bool:
    """Does a phase do anything for each cell of a fiber?"""
    return bool(phases.reduces(level) or phases.stores(level, "cell"))


def default_schedule(kernel: Kernel) -> KernelSchedule:
    """One that is right for every size."""
    if not kernel.reduction_axes:
        return KernelSchedule(FLAT_TILE)
    along = walks_along_fibers(kernel)
    return KernelSchedule(1, FLAT_TILE) if along else KernelSchedule(*COLUMNS_TILE)


def walks_along_fibers(kernel: Kernel) -> bool:
    """Do neighbours in memory lie along the fiber?"""
    phases = analyse(kernel)
    return lane(kernel, phases) in phases.reduction_names


@frozen
class Chooser:
    """Chooses the schedule of each launch, from arguments as they are passed.

    ``cells`` and ``fiber`` compute the number of cells and the length of a fiber from the
    arguments; ``furthest`` the largest index of an access, where it follows from sizes alone.
    ``vector_sizes``: sizes of which it matters whether they are multiples of 16.
    """

    kernel: Kernel
    cells: Callable[..., int]
    fiber: Callable[..., int]
    furthest: Callable[..., int]
    along_fibers: bool
    may_split: bool
    may_align: bool
    passes: int
    is_online: bool
    pointers: tuple[int, ...]
    sizes: tuple[int, ...]
    vector_sizes: tuple[int, ...]
    sides: tuple[Callable[..., int], Callable[..., int]] | None
    """The numbers of rows and of columns of a matrix product."""
    reads_sizes: bool
    """Does it read sizes on the device? Then the grid is made for others."""
    loaded_bytes: tuple[int, int]
    """Of the shortest element that is loaded, and of the longest that is loaded or stored."""

    @classmethod
    def of(cls, kernel: Kernel) -> Chooser:
        names = [param.name for param in kernel.params]
        along_fibers = bool(kernel.reduction_axes) and walks_along_fibers(kernel)
        vector_sizes = _vector_sizes(kernel, along_fibers)
        return cls(
            kernel,
            _compiled(names, _product(axis.extent for axis in kernel.axes)),
            _compiled(names, _product(axis.extent for axis in kernel.reduction_axes)),
            _compiled(names, f"max({', '.join(_furthest(kernel))}, 0)"),
            along_fibers,
            may_split(kernel),
            fiber_start(kernel, analyse(kernel)) is not None,
            passes(kernel),
            bool(online(kernel).sums),
            _of_several_elements(kernel),
            tuple(n for n, p in enumerate(kernel.params) if isinstance(p, SizeParam)),
            tuple(n for n, name in enumerate(names) if name in vector_sizes),
            _sides(kernel, names) if tiled_product(kernel) else None,
            any(isinstance(p, SizeParam) and p.in_memory for p in kernel.params),
            _bytes_of_elements(kernel),
        )

    def schedule(self, arguments: Sequence[int]) -> Choice:
        """The schedule that the rule gives, the number of tiles of cells, and of shares of a
        fiber."""
        if self.sides is not None:
            return self._choice(self._product_tile(arguments), 1, arguments)
        cells, fiber = self.cells(*arguments), self.fiber(*arguments)
        return self._choice(*self._rule(cells, fiber), arguments)

    def _product_tile(self, arguments: Sequence[int]) -> KernelSchedule:
        """The largest tile of which each multiprocessor gets one, nearly."""
        fit = (t for t in PRODUCT_TILES if self._tiles(t, arguments) >= FEWEST_TILES)
        return self._fitted(next(fit, PRODUCT_TILES[-1]), arguments)

    def _fitted(self, tile: KernelSchedule, arguments: Sequence[int]) -> KernelSchedule:
        """No more columns, and no more of the summed axis at a time, than there are."""
        assert self.sides is not None
        columns, summed = self.sides[1](*arguments), self.fiber(*arguments)
        return replace(
            tile,
            columns=min(tile.columns, power_of_two(columns)),
            fiber=min(tile.fiber, power_of_two(summed)),
        )

    def _tiles(self, tile: KernelSchedule, arguments: Sequence[int]) -> int:
        if self.sides is None:
            return -(-self.cells(*arguments) // tile.block) * self.kernel.parts
        rows, columns = (side(*arguments) for side in self.sides)
        return -(-rows // tile.block) * -(-columns // tile.columns)

    def candidates(self, arguments: Sequence[int]) -> tuple[Choice, ...]:
        """That of the rule, and others that do the same."""
        if self.sides is not None:
            tiles = (*PRODUCT_TILES, *LARGE_PRODUCT_TILES)
            fitted = (self._fitted(tile, arguments) for tile in tiles)
            every = dict.fromkeys((self._product_tile(arguments), *fitted))
            return tuple(self._choice(tile, 1, arguments) for tile in every)
        cells, fiber = self.cells(*arguments), self.fiber(*arguments)
        tile, shares = self._rule(cells, fiber)
        others = dict.fromkeys(((tile, shares), *self._others(tile, shares, cells, fiber)))
        return tuple(self._choice(*other, arguments) for other in others)

    def kind(self, arguments: Sequence[int]) -> tuple[object, ...]:
        """What sizes have in common whose candidates are alike: among them the number of cells, to
        a factor of two."""
        if self.sides is not None:
            numbers = (*(side(*arguments) for side in self.sides), self.fiber(*arguments))
            return "product", *(number.bit_length() for number in numbers)
        cells, fiber = self.cells(*arguments), self.fiber(*arguments)
        tile, shares = self._rule(cells, fiber)
        return (
            replace(tile, even=False),
            shares.bit_length(),
            cells.bit_length(),
            fiber.bit_length(),
        )

    def _choice(self, tile: KernelSchedule, shares: int, arguments: Sequence[int]) -> Choice:
        cells, fiber = self.cells(*arguments), self.fiber(*arguments)
        aligned = all(arguments[n] % DIVISOR == 0 for n in self.pointers)
        divisible: tuple[int, ...] = ()
        if aligned:
            divisible = (
                *self.pointers,
                *(n for n in self.vector_sizes if arguments[n] % DIVISOR == 0),
            )
        largest = max(self.furthest(*arguments), cells, fiber, *(arguments[n] for n in self.sizes))
        each = 0
        if shares > 1:
            each = -(-fiber // (tile.fiber * shares)) * tile.fiber
            shares = -(-fiber // each)
            most = power_of_two(min(shares, MOST_TOTALS // tile.block))
            tile = replace(tile, totals=most, once=each == tile.fiber)
        wide = largest > LARGEST_INT32 - WIDEST_TILE
        tiles = self._tiles(tile, arguments)
        in_registers = bool(tile.pieces)  # loops over fibers, and flat tiles, are no faster for it
        exact = in_registers and tiles <= LARGEST_GRID and not self.reads_sizes
        tile = replace(tile, divisible=divisible, wide=wide, exact_grid=exact)
        return Choice(tile, tiles, cells * max(fiber, 1) * self.kernel.parts, shares, each)

    def _rule(self, cells: int, fiber: int) -> tuple[KernelSchedule, int]:
        """A tile, and the number of shares."""
        tile = self._tile(cells, fiber)
        shares = self._shares(cells, fiber, -(-cells // tile.block)) if self.may_split else 1
        if shares <= 1:
            return tile, 1
        if self.along_fibers:
            share = power_of_two(min(fiber // shares, LONG_FIBER_TILE))
            warps = 16 if share == LONG_FIBER_TILE else max(1, min(8, share // 128))
            return KernelSchedule(1, share, warps=warps, unroll=UNROLLED), shares
        if self._is_odd(cells, fiber):
            return tile, shares
        if cells * fiber > LARGE // 4 and self.passes == 1:
            return self._large_columns(cells * fiber, shares)
        return replace(tile, warps=8 if cells * fiber > LARGE else 4), shares

    def _large_columns(self, elements: int, shares: int) -> tuple[KernelSchedule, int]:
        tile, warps, fewer = LARGE_COLUMNS_TILE, 8, max(shares // 2, 2)
        if self.loaded_bytes[0] > SHORT_BYTES:
            tile, warps = LONG_COLUMNS_TILE, 4
        elif elements <= LARGE // 2:
            tile, warps, fewer = HALF_COLUMNS_TILE, 4, shares
        return KernelSchedule(*tile, warps=warps, unroll=UNROLLED), fewer

    def _others(
        self, tile: KernelSchedule, shares: int, cells: int, fiber: int
    ) -> Iterator[tuple[KernelSchedule, int]]:
        if not tile.fiber:
            for block, warps in FLAT_TILES:
                yield replace(tile, block=block, warps=warps), 1
        elif tile.pieces:
            for parts, warps in itertools.product((1, 2, 4), (2, 4, 8, 16)):
                several = self.along_fibers and tile.block == 1
                alone = parts == 1 or (several and tile.pieces * parts <= MOST_PIECES)
                if alone and 64 * warps <= tile.fiber // parts * tile.block <= 2048 * warps:
                    made = replace(tile, fiber=tile.fiber // parts, pieces=tile.pieces * parts)
                    yield replace(made, even=fiber == made.fiber * made.pieces, warps=warps), 1
        elif self.along_fibers:
            for length, warps, more in itertools.product((2048, 4096, 8192), (8, 16), (1, 2, 4)):
                least = fiber // length if shares > 1 else 1
                yield replace(tile, fiber=length, warps=warps), max(1, min(shares * more, least))
        else:
            for (block, length), warps in itertools.product(COLUMNS_TILES, (4, 8)):
                yield replace(tile, block=block, fiber=length, warps=warps), shares

    def _is_odd(self, cells: int, fiber: int) -> bool:
        """Are there many long columns in fibers that begin at any address?"""
        many = self.passes == 1 and cells % DIVISOR and cells * fiber > LARGE
        return bool(many and not self.along_fibers and self.may_split and fiber >= LONG_COLUMN)

    def _shares(self, cells: int, fiber: int, tiles: int) -> int:
        """Into how many shares fibers are cut so that every multiprocessor has work."""
        if tiles == 1 and self.along_fibers and self.passes == 1 and fiber >= LONE_FIBER:
            few = min(fiber // LONE_SHARE, LONE_SHARES)
            return max(few, min(fiber // LEAST_SHARE, MULTIPROCESSORS * 4))
        if self._is_odd(cells, fiber):
            return ODD_SHARES
        programs = MULTIPROCESSORS * (4 if self.along_fibers else 8)
        room = programs // max(tiles, 1)
        shares = min(room, fiber // (LEAST_SHARE if self.along_fibers else 256))
        few = 2 if self.passes == 1 else 8  # a launch for each pass, and fibers are read again
        return shares if room >= few and shares >= 4 else 1

    def _tile(self, cells: int, fiber: int) -> KernelSchedule:
        if not self.kernel.reduction_axes:
            short = self.loaded_bytes[1] <= SHORT_BYTES
            if short and cells > LARGE_FLAT_TILE * LARGE_FLAT_WARPS * MULTIPROCESSORS:
                return KernelSchedule(LARGE_FLAT_TILE, warps=LARGE_FLAT_WARPS)
            few = cells <= FLAT_TILE * MULTIPROCESSORS
            return KernelSchedule(FLAT_TILE // 4, warps=2) if few else KernelSchedule(FLAT_TILE)
        if not self.along_fibers:
            if fiber <= SHORT_COLUMN:
                return short_columns(fiber)
            if self._is_odd(cells, fiber):
                return KernelSchedule(*NARROW_COLUMNS_TILE)
            few = fiber < LONG_COLUMN and cells <= COLUMNS_TILE[0] * MULTIPROCESSORS
            columns = NARROW_COLUMNS_TILE if few else COLUMNS_TILE
            return KernelSchedule(*columns, unroll=UNROLLED)
        writes = any(store.per == "cell" for store in self.kernel.stores)
        if fiber > (WIDEST_WRITTEN_FIBER if writes and fiber % DIVISOR == 0 else WIDEST_FIBER):
            if fiber % DIVISOR and self.may_align:
                return self._aligned_tile()
            if self.is_online and not writes:
                return KernelSchedule(1, 2048 if fiber % DIVISOR else 4096, warps=8)
            return KernelSchedule(1, 2048 if fiber % DIVISOR else 8192, warps=16)
        return fiber_in_registers(fiber, few=cells <= 2 * MULTIPROCESSORS)

    def _aligned_tile(self) -> KernelSchedule:
        """Of long fibers that begin at any address. Where they are read three times fewer of them
        are under way, so that they stay in the cache."""
        if all(store.per == "fiber" for store in self.kernel.stores):
            tile = KernelSchedule(1, 2048, aligned=True, warps=4)
            return tile if self.is_online else replace(tile, fiber=4096, warps=16)
        if self.passes > 2:
            return KernelSchedule(1, 2048, aligned=True, warps=16)
        return KernelSchedule(1, 1024, aligned=True, warps=4)


def _bytes_of_elements(kernel: Kernel) -> tuple[int, int]:
    loaded = [p.dtype.size_bytes for p in kernel.pointers if p.access != "write"]
    return min(loaded, default=0), max((p.dtype.size_bytes for p in kernel.pointers), default=0)


def _sides(kernel: Kernel, names: Sequence[str]) -> tuple[Callable[..., int], Callable[..., int]]:
    rows, columns = (_compiled(names, to_python(axis.extent)) for axis in kernel.axes)
    return rows, columns


def power_of_two(number: int) -> int:
    """The least that is not below the number; 16 at least."""
    return max(16, 1 << max(number - 1, 0).bit_length())


def short_columns(fiber: int) -> KernelSchedule:
    """A tile that holds short strided fibers of many neighbouring cells; of the shortest each
    element is a tile, so that no two threads have parts of one fiber."""
    if fiber <= MOST_PIECES:
        return KernelSchedule(SHORT_CELLS // 2, 1, fiber, True)
    tile = 1 << max(fiber - 1, 0).bit_length()
    return KernelSchedule(max(COLUMNS_TILE[0], SHORT_CELLS // tile), tile, 1, fiber == tile)


def fiber_in_registers(fiber: int, *, few: bool = False) -> KernelSchedule:
    """Tiles that hold a fiber: a power of two, or three or five of a smaller one, so that no more
    than a quarter of them is empty; long tiles are halved. Of a few fibers each gets more
    threads."""
    whole = power_of_two(fiber)
    tile, pieces = whole, 1
    if fiber > SHORT_FIBER:
        if fiber <= whole // 8 * 5:
            tile, pieces = whole // 8, 5
        elif fiber <= whole // 4 * 3:
            tile, pieces = whole // 4, 3
    while tile > LONGEST_TILE and pieces * 2 <= MOST_PIECES:
        tile, pieces = tile // 2, pieces * 2
    warps = 4 if whole <= 8192 else 8 if whole <= WIDEST_FIBER else 32
    if few and 2048 <= whole <= WIDEST_FIBER:
        warps *= 2
    block = max(1, FLAT_TILE // whole)
    return KernelSchedule(block, tile, pieces, fiber == tile * pieces, warps)


def _product(extents: Iterable[Dim]) -> str:
    return "*".join(f"({to_python(extent)})" for extent in extents) or "1"


def _of_several_elements(kernel: Kernel) -> tuple[int, ...]:
    """The positions of pointers of which a kernel takes more than one element. Where one number
    lies widens no load, and it lies anywhere: several may share a buffer."""
    sizes = {param.name for param in kernel.params if isinstance(param, SizeParam)}
    loads = (element for element in kernel.elements if isinstance(element, Load))
    accesses: Iterable[Load | Store] = itertools.chain(loads, kernel.stores)
    several = {access.pointer for access in accesses if index_names(access) - sizes}
    own = len(kernel.pointers) // kernel.parts
    names = [pointer.name for pointer in kernel.pointers]
    several |= {name for n, name in enumerate(names) if names[n % own] in several}
    return tuple(n for n, param in enumerate(kernel.params) if param.name in several)


def _vector_sizes(kernel: Kernel, along_fibers: bool) -> frozenset[str]:
    """The sizes whose multiples of 16 make loads wider: those that addresses or elements are made
    of, and those at which neighbours in memory, or what is loaded of them, end. How many fibers
    there are is neither, where the elements of a fiber lie side by side or each fiber has a
    multiple of 16 of them."""
    sizes = {param.name for param in kernel.params if isinstance(param, SizeParam)}
    if tiled_product(kernel):
        return frozenset(sizes)
    first, inner = kernel.axes[:1], kernel.axes[1:]
    known = math.prod(axis.extent for axis in inner if isinstance(axis.extent, int))
    whole = along_fibers or (bool(inner) and known % DIVISOR == 0)
    ends = (*inner, *kernel.reduction_axes, *(() if whole else first))
    named = {s.name for axis in ends if isinstance(axis.extent, Expr) for s in axis.extent.symbols}
    named.update(*map(index_names, (*kernel.elements, *kernel.stores)), _borders(kernel))
    return frozenset(sizes & named)


def _borders(kernel: Kernel) -> Iterator[str]:
    """What positions on innermost axes are compared with, as where tensors are joined along them: a
    mask that may change anywhere has each element loaded by itself."""
    innermost = {axis.name for axes in (kernel.axes, kernel.reduction_axes) for axis in axes[-1:]}
    for element in kernel.elements:
        if isinstance(element, Op) and element.dtype is bool_:
            sides = [kernel.elements[n] for n in element.args]
            if any(isinstance(e, Position) and index_names(e) & innermost for e in sides):
                yield from (e.param for e in sides if isinstance(e, Read))


def _furthest(kernel: Kernel) -> list[str]:
    """The largest index of each access, as Python text, without what loaded integers add to it:
    they are 64 bits anyway."""
    axes = {axis.name: axis.extent for axis in (*kernel.axes, *kernel.reduction_axes)}
    found = ["0"]
    for item in (*kernel.elements, *kernel.stores):
        if isinstance(item, Load | Store) and isinstance(item.index, Expr):
            loaded = {s: 0 for s in item.index.symbols if element_of(s) is not None}
            index = substitute(item.index, loaded)
            if not isinstance(index, Expr):
                continue
            if not _grows(index, axes):
                return [str(LARGEST_INT32 + 1)]
            ends: dict[Symbol, Dim] = {s: axes[s.name] - 1 for s in index.symbols if s.name in axes}
            found.append(to_python(substitute(index, ends)))
    return found


def _grows(index: Expr, axes: Mapping[str, Dim]) -> bool:
    """Is the index largest at the last element of each axis, for its form alone?"""
    for monomial, factor in index.terms.items():
        for atom in monomial:
            if not isinstance(atom, Symbol) or (factor < 0 and atom.name in axes):
                return False
    return True


def _compiled(names: Sequence[str], text: str) -> Callable[..., int]:
    made: Callable[..., int] = eval(f"lambda {', '.join(names)}: {text}")
    return made
