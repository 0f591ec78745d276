"""A kernel as a Triton module.

In: a ``Kernel`` and a name. Out: Python text with the ``@triton.jit`` function and ``LAUNCH``, a
table that says how to launch it. Parallel axes are one flat index, fibers another; a program takes
a tile of ``XBLOCK x RBLOCK`` cells, or tiles until none are left, so that work follows the true
sizes and any grid will do. Sizes are arguments that Triton must not specialize on. A fiber is kept
in registers, as one tile or several (``pieces``), whose values have names of their own; or each
phase over it is a loop, and what several phases need is loaded again, or read back from where it
was written. Where a fiber is cut into shares each phase is a kernel of its own. Read on:
``reduction_phases.py``; the same phases are printed as C in ``targets/cpu/c.py``. Of several writes
to one element any may be the last, as with eager torch on a GPU; where the program asks for
deterministic algorithms, eager torch runs it."""

from __future__ import annotations

from collections.abc import Sequence

from anyshape.ir.dtypes import DType, bool_, float32, int32
from anyshape.ir.loops import (
    Axis,
    Kernel,
    Load,
    Op,
    PointerParam,
    Reduce,
    Scan,
    SizeParam,
    Store,
    operands,
)
from anyshape.nouns import mutable
from anyshape.targets.reduction_phases import analyse
from anyshape.targets.triton.elements import HIGH, LOW, ElementPrinter
from anyshape.targets.triton.narrow import HIGHEST, LOWEST, fiber_start, narrow_elements
from anyshape.targets.triton.online import online
from anyshape.targets.triton.prelude import HEADER
from anyshape.targets.triton.product_kernel import ProductPrinter
from anyshape.targets.triton.read_back import read_back
from anyshape.targets.triton.schedules import (
    DIVISOR,
    KernelSchedule,
    default_schedule,
    thread_elements,
    works_in_fiber,
)
from anyshape.targets.triton.texts import (
    CAPABILITY,
    accumulator,
    combined_text,
    identity,
    refuse_atomic,
    type_text,
)


def emit_triton(kernel: Kernel, name: str, schedule: KernelSchedule | None = None) -> str:
    """The module's text. Raises NotImplementedError for what Triton cannot do in order."""
    if schedule is not None and schedule.columns:
        printer = ProductPrinter(kernel, name, schedule)
        return printer.text(block_sizes(schedule), f"as_begin({CAPABILITY})")
    return _Emitter(kernel, name, schedule or default_schedule(kernel)).text()


def totals(kernel: Kernel) -> tuple[int, ...]:
    """The reductions whose totals the shares of a fiber leave."""
    return tuple(n for n, e in enumerate(kernel.elements) if isinstance(e, Reduce))


def scratch_name(number: int) -> str:
    """The parameter with the memory of a reduction's shares: [shares, cells]."""
    return f"w{number}"


def total_dtype(kernel: Kernel, number: int) -> DType:
    """In which dtype the shares of a reduction are kept."""
    dtype = kernel.elements[number].dtype
    return int32 if dtype is bool_ else dtype


def block_sizes(schedule: KernelSchedule) -> dict[str, int]:
    """The constants of the function, by name."""
    sizes = {CAPABILITY: 0, "XBLOCK": schedule.block}
    if schedule.fiber:
        sizes["RBLOCK"] = schedule.fiber
    if schedule.columns:
        sizes["YBLOCK"] = schedule.columns
    if schedule.phase is not None:
        sizes["SBLOCK"] = schedule.totals
    return sizes


@mutable(eq=False)
class _Emitter(ElementPrinter):
    def text(self) -> str:
        schedule = self.schedule
        if not schedule.wide and schedule.phase is None:
            self.narrow = narrow_elements(self.kernel)
        if not schedule.pieces:
            found = online(self.kernel)
            self.kernel, self.sums, self.firsts = found.kernel, found.sums, found.firsts
        kernel = self.kernel
        for store in kernel.stores:
            refuse_atomic(store.mode, kernel.pointer(store.pointer).dtype)
        self.phases = analyse(kernel)
        self.columns = frozenset(axis.name for axis in kernel.axes)
        names = [p.name for p in kernel.params]
        if schedule.phase is not None:
            names += [*map(scratch_name, totals(kernel)), "shares", "each"]
        sizes = [p.name for p in kernel.params if not isinstance(p, PointerParam)]
        self._line(f"as_begin({CAPABILITY})")
        for param in kernel.params:
            if isinstance(param, SizeParam) and param.in_memory:
                self._line(f"{param.name} = tl.load({param.name})")
        self._body()
        blocks = [f"{name}: tl.constexpr" for name in block_sizes(schedule)]
        arguments = ", ".join(names + blocks)
        head = f"@triton.jit(do_not_specialize={sizes!r})\ndef {self.name}({arguments}):"
        body = "\n".join(self.lines)
        return f"{HEADER}\n\n{head}\n{body}\n\n\nLAUNCH = {self._launch()!r}\n"

    def _launch(self) -> dict[str, object]:
        """How to launch: the function, its arguments in order, tile sizes, warps; any grid will
        do, where it need not be ``exact``."""
        kernel = self.kernel
        return {
            "function": self.name,
            "arguments": [p.name for p in kernel.params],
            "constants": block_sizes(self.schedule),
            "num_warps": self.schedule.warps,
            "exact": self.schedule.exact_grid,
        }

    # --- loops ---

    def _body(self) -> None:
        kernel = self.kernel
        program, programs = self._part()
        self._flat_extent("xtotal", kernel.axes)
        if kernel.reduction_axes:
            self._flat_extent("rtotal", kernel.reduction_axes)
        first = f"{program}.to({self._index})"
        if self.schedule.exact_grid:
            self._line(f"tile = {first}")
        else:
            self._line("tiles = tl.cdiv(xtotal, XBLOCK)")
            self._open(f"for tile in range({first}, tiles, {programs}):")
        columns = "[:, None]" if kernel.reduction_axes else ""
        self._line(f"x = (tl.arange(0, XBLOCK).to({self._index}) + tile * XBLOCK){columns}")
        self._line("xmask = x < xtotal")
        self._line("zero = x * 0")
        self._decode("x", kernel.axes)
        if self.schedule.phase is None:
            self._all_phases()
        else:
            self._one_phase(self.schedule.phase)

    def _part(self) -> tuple[str, str]:
        """Which program this is of how many; of several kernels, whose pointers are taken then."""
        kernel, parts = self.kernel, self.kernel.parts
        if parts == 1:
            return "tl.program_id(0)", "tl.num_programs(0)"
        self._line(f"part = tl.program_id(0) % {parts}")
        own = len(kernel.pointers) // parts
        for number, pointer in enumerate(kernel.pointers[own:], own):
            first = kernel.pointers[number % own].name
            self._line(f"{first} = tl.where(part == {number // own}, {pointer.name}, {first})")
        return f"(tl.program_id(0) // {parts})", f"(tl.num_programs(0) // {parts})"

    def _all_phases(self) -> None:
        fibers = bool(self.kernel.reduction_axes)
        done: set[int] = set()
        for level in range(self.phases.count):
            self._fiber_elements(level, done)
            if fibers:
                self._fiber_pass(level, done)
            for store in self.phases.stores(level, "fiber" if fibers else "cell"):
                self._store(store)

    def _one_phase(self, phase: int) -> None:
        """A phase over one share of each fiber: totals of the phases before are combined from those
        of their shares, and those of this one are left for the phases after it."""
        done: set[int] = set()
        if self.schedule.once and works_in_fiber(self.phases, phase):
            self._load_share(phase, done)
        for level in range(phase):
            self._fiber_elements(level, done)
            self._combine_shares(level, done)
        self._fiber_elements(phase, done)
        self._fiber_pass(phase, done)
        for n in self.phases.reduces(phase):
            index = f"tl.program_id(1).to({self._index}) * xtotal + x"
            self._line(f"tl.store({scratch_name(n)} + {index}, a{n}t, mask=xmask)")
        stores = self.phases.stores(phase, "fiber")
        if stores:
            self._line("xmask = xmask & (tl.program_id(1) == 0)")
        for store in stores:
            self._store(store, always_masked=True)

    def _load_share(self, phase: int, done: set[int]) -> None:
        """What the phase loads at indices that it knows, while totals are on their way."""
        phases = self.phases
        self._share_bounds()
        self._fiber_indices("first")
        roots = phases.reduced_by(phases.reduces(phase))
        roots += [n for store in phases.stores(phase, "cell") for n in operands(store)]
        for n in phases.closure(roots, done):
            element = self.kernel.elements[n]
            if isinstance(element, Load) and phases.in_fiber(n) and not operands(element):
                self._element(n)
                done.add(n)

    def _share_bounds(self) -> None:
        self._line(f"first = tl.program_id(1).to({self._index}) * each")
        self._line("stop = tl.minimum(first + each, rtotal)")

    def _flat_extent(self, name: str, axes: tuple[Axis, ...]) -> None:
        self._line(f"{name} = tl.full([], 1, {self._index})")
        for axis in axes:
            self._line(f"{name} *= {self._dim(axis.extent)}")

    def _decode(self, flat: str, axes: tuple[Axis, ...]) -> None:
        """The axes' indices from the flat one."""
        if not axes:
            return
        rest, end = flat, self._of_piece("")
        for axis in reversed(axes[1:]):
            extent = f"({self._dim(axis.extent)})"
            self._line(f"{axis.name}{end} = {rest} % {extent}")
            self._line(f"{flat}_{axis.name} = {rest} // {extent}")
            rest = f"{flat}_{axis.name}"
        self._line(f"{axes[0].name}{end} = {rest}")

    def _fiber_elements(self, level: int, done: set[int]) -> None:
        phases = self.phases
        roots = [
            n
            for n in range(len(self.kernel.elements))
            if not phases.in_fiber(n) and phases.level[n] == level
        ]
        for n in phases.closure(roots, done):
            if not phases.in_fiber(n) and not isinstance(self.kernel.elements[n], Reduce):
                self._element(n)
                done.add(n)

    def _fiber_pass(self, level: int, done: set[int]) -> None:
        kernel, phases = self.kernel, self.phases
        reduces, stores = phases.reduces(level), phases.stores(level, "cell")
        roots = phases.reduced_by(reduces)
        roots += [n for s in stores for n in operands(s)]
        if not roots:
            return
        known = {
            n
            for n, e in enumerate(kernel.elements)
            if isinstance(e, Reduce) and phases.level[n] <= level
        }
        self.again = {}
        if not self.schedule.pieces and self.schedule.phase is None:
            self.again = read_back(kernel, phases, level, roots, done | known)
        if self.again:
            self._line("tl.debug_barrier()")  # what other threads have written is there
        body = self._made(roots, done | known)
        for n in body:
            element = kernel.elements[n]
            if isinstance(element, Scan):
                start, kind = identity(element), accumulator(element.dtype)
                self._line(f"c{n} = tl.full([XBLOCK, 1], {start}, {kind})")
        if self.schedule.pieces:
            for piece in range(self.schedule.pieces):
                self.piece = piece
                self._cells(body, reduces, stores, f"{piece} * RBLOCK", first=piece == 0)
            self.piece = None
            done |= set(body)
        else:
            self._fiber_loop(body, reduces, stores)
        for n in reduces:
            self._total(n)
        done |= set(reduces)

    def _made(self, roots: Sequence[int], known: set[int]) -> Sequence[int]:
        """What a phase makes, operands first, with what it reads back in the place of what that is
        made of."""
        phases, again = self.phases, self.again
        made = phases.closure(roots, known | again.keys())
        reads = {*roots, *(read for n in made for read in phases.read[n])}
        return (*(n for n in again if n in reads and n not in known), *made)

    def _fiber_loop(self, body: Sequence[int], reduces: list[int], stores: list[Store]) -> None:
        once = self.schedule.phase is not None and self.schedule.once
        for n in reduces:
            start, kind = self._identity(n), self._accumulator(n)
            combined = n in self.sums or n in self.sums.values()
            lanes = thread_elements(self.kernel, self.schedule).lanes if combined else "RBLOCK"
            if not once or combined or n in self.firsts or n in self.firsts.values():
                self._line(f"a{n} = tl.full([XBLOCK, {lanes}], {start}, {kind})")
        if once:
            self._cells(body, reduces, stores, "first", first=True)
            return
        if self.schedule.aligned:
            self._aligned_loops(body, reduces, stores)
            return
        if self.schedule.phase is None and self.schedule.block == 1:
            self._whole_tiles_first(body, reduces, stores)
            return
        if self.schedule.phase is None:
            self._open(f"for start in {self._turns('0', 'rtotal')}:")
        else:
            self._share_bounds()
            self._open(f"for start in {self._turns('first', 'stop')}:")
        self.opened.discard(None)
        self._cells(body, reduces, stores, "start", first=False)
        self.depth -= 1

    def _whole_tiles_first(
        self, body: Sequence[int], reduces: list[int], stores: list[Store]
    ) -> None:
        """A loop over tiles that lie in the fiber as a whole, whose elements have no mask, and one
        that turns once at most."""
        self._line("whole = rtotal // RBLOCK * RBLOCK")
        for self.whole, first, stop in ((True, "0", "whole"), (False, "whole", "rtotal")):
            turns = self._turns(first, stop) if self.whole else f"range({first}, {stop}, RBLOCK)"
            self._open(f"for start in {turns}:")
            self.opened.discard(None)
            self._cells(body, reduces, stores, "start", first=False)
            self.depth -= 1

    def _turns(self, first: str, stop: str) -> str:
        if self.schedule.unroll == 1:
            return f"range({first}, {stop}, RBLOCK)"
        return f"tl.range({first}, {stop}, RBLOCK, loop_unroll_factor={self.schedule.unroll})"

    def _aligned_loops(self, body: Sequence[int], reduces: list[int], stores: list[Store]) -> None:
        """A loop over the tiles that lie in the fiber as a whole, which begin at multiples of 16 in
        memory, and one over the first and the last."""
        begin = fiber_start(self.kernel, self.phases)
        assert begin is not None and self.schedule.block == 1
        self._line(f"begin = tl.sum(tl.sum({self._dim(begin)} + zero, 1), 0)  # one number")
        self._line(f"before = begin & {DIVISOR - 1}")
        self._line("count = tl.cdiv(rtotal + before, RBLOCK)")
        for inside in (True, False):
            turns = "1, count - 1" if inside else "0, tl.minimum(count, 2)"
            self._open(f"for turn in range({turns}):")
            self.start, start = begin if inside else None, "turn"
            if not inside:
                start = "(turn * (count - 1))"
            self.opened.discard(None)
            self._cells(body, reduces, stores, f"{start} * RBLOCK - before", first=False)
            self.start = None
            self.depth -= 1

    def _cells(
        self,
        body: Sequence[int],
        reduces: list[int],
        stores: list[Store],
        start: str,
        *,
        first: bool,
    ) -> None:
        """What is done for the cells of one tile."""
        if self.piece not in self.opened:
            self._fiber_indices(start)
        for n in body:
            self._element(n)
        for n in reduces:
            self._accumulate(n, first)
        for store in stores:
            self._store(store)

    def _fiber_indices(self, start: str) -> None:
        self.opened.add(self.piece)
        r, mask = self._of_piece("r"), self._of_piece("rmask")
        self._line(f"{r} = {start} + tl.arange(0, RBLOCK).to({self._index})[None, :]")
        self._line(f"{mask} = {r} < {'rtotal' if self.schedule.phase is None else 'stop'}")
        if self.schedule.aligned:
            self._line(f"{mask} = {mask} & ({r} >= 0)")
        if self.start is not None:
            self._line(f"first = tl.multiple_of(begin - before + turn * RBLOCK, {DIVISOR})")
            self._line(f"inside = first + tl.arange(0, RBLOCK).to({self._index})[None, :]")
        self._decode(r, self.kernel.reduction_axes)

    def _combine_shares(self, level: int, done: set[int]) -> None:
        """The totals of whole fibers, from those of their shares."""
        reduces = self.phases.reduces(level)
        if not reduces:
            return
        self._combine_in_turns(reduces)
        for n in reduces:
            self._total(n)
        done |= set(reduces)

    def _totals_of_shares(self, number: int) -> str:
        address = f"{scratch_name(number)} + (s * xtotal + x)"
        return f"tl.load({address}, mask=smask, other={self._identity(number)})"

    def _combine_in_turns(self, reduces: list[int]) -> None:
        """A loop although one turn is usual: loads of few elements outside of loops are done anew
        in each layout that Triton wants them in, by each thread all of them."""
        for n in reduces:
            start, kind = self._identity(n), accumulator(self.kernel.elements[n].dtype)
            self._line(f"a{n} = tl.full([XBLOCK, SBLOCK], {start}, {kind})")
        self._open("for start in range(0, shares, SBLOCK):")
        self._line(f"s = (start + tl.arange(0, SBLOCK).to({self._index}))[None, :]")
        self._line("smask = xmask & (s < shares)")
        for n in reduces:
            element = self.kernel.elements[n]
            assert isinstance(element, Reduce)
            self._line(f"w{n}s = {self._totals_of_shares(n)}")
            if n in self.sums:
                self._combine("as_online_joined", n, f"w{self.sums[n]}s", f"w{n}s")
            elif n in self.firsts:
                self._first(n, f"w{self.firsts[n]}s", f"w{n}s")
            elif n not in (*self.sums.values(), *self.firsts.values()):
                combined = combined_text(element, f"a{n}", f"w{n}s")
                self._line(f"a{n} = tl.where(smask, {combined}, a{n})")
        self.depth -= 1

    def _accumulate(self, number: int, first: bool) -> None:
        element = self.kernel.elements[number]
        assert isinstance(element, Reduce)
        total, value = (
            f"a{number}",
            f"{self._value_of(element.arg)}.to({self._accumulator(number)})",
        )
        mask = " & ".join(filter(None, (self._cell_mask, self._fiber_mask)))
        if number in (*self.sums.values(), *self.firsts.values()):
            return  # with its sum, or position
        if number in self.firsts:
            extreme = self.kernel.elements[self.firsts[number]]
            assert isinstance(extreme, Reduce)
            x = self._value_of(extreme.arg)
            if mask:
                x = f"tl.where({mask}, {x}, {identity(extreme)})"
                value = f"tl.where({mask}, {value}, {self._identity(number)})"
            # the first tile that is aligned comes after those that lie in the fiber as a whole
            in_order = not self.schedule.aligned or self.start is not None
            self._first(number, x, value, in_order=in_order)
            return
        if number in self.sums:
            given = f'tl.where({mask}, {value}, float("-inf"))' if mask else value
            given = f"tl.broadcast_to({given}, [XBLOCK, RBLOCK])"
            own = thread_elements(self.kernel, self.schedule)
            self._combine("as_online", number, given, str(own.turns), str(own.neighbours))
            return
        if first:
            made, other = f"tl.broadcast_to({value}, [XBLOCK, RBLOCK])", self._identity(number)
        elif factors := self._factors(element):
            made, other = f"tl.fma({factors}, {total})", total
        else:
            made, other = combined_text(element, total, value), total
        self._line(f"{total} = {f'tl.where({mask}, {made}, {other})' if mask else made}")

    def _factors(self, element: Reduce) -> str:
        """The two texts of what is summed, if that is a product of float32: rounded once with the
        sum."""
        summed = self.kernel.elements[element.arg]
        product = isinstance(summed, Op) and summed.op == "mul" and summed.dtype is float32
        if element.combine != "sum" or element.dtype is not float32 or not product:
            return ""
        return ", ".join(map(self._value_of, operands(summed)))

    def _combine(self, function: str, number: int, *given: str) -> None:
        """A maximum and its sum take in elements, or totals of shares: maxima and sums."""
        both = f"a{self.sums[number]}, a{number}"
        self._line(f"{both} = {function}({both}, {', '.join(given)})")

    def _first(self, number: int, x: str, at: str, *, in_order: bool = True) -> None:
        """An extreme and its position take in elements, or totals of shares, and where they lie:
        behind all that were taken in before, or not."""
        extreme = self.firsts[number]
        element, both = self.kernel.elements[extreme], f"a{extreme}, a{number}"
        assert isinstance(element, Reduce)
        self._line(f"{both} = as_first_{element.combine}({both}, {x}, {at}, {in_order:d})")

    def _online_total(self, number: int) -> None:
        highest = self.sums[number]
        both = f"v{highest}, v{number}"
        self._line(f"{both} = as_online_total(a{highest}, a{number})")
        if self.schedule.phase is not None:
            self._line(f"a{highest}t, a{number}t = {both}")
        self._line(f"{both} = as_online_result({both}, rtotal)")

    def _total(self, number: int) -> None:
        if number in self.sums.values():
            return
        if number in self.sums:
            self._online_total(number)
            return
        element = self.kernel.elements[number]
        assert isinstance(element, Reduce)
        part, value = f"a{number}", f"v{number}"
        if number in self.firsts:
            given = f"a{self.firsts[number]}, v{self.firsts[number]}, {part}"
            self._line(f"{value} = as_first_total({given}, {self._identity(number)})")
        else:
            self._line(f"{value} = {self._combined(element, part)}")
        if self.schedule.phase is not None:
            self._line(f"a{number}t = {value}.to({accumulator(element.dtype)})")
        if number in self.narrow:
            wide = f"tl.where({value} == {LOW}, {LOWEST}, {value}.to(tl.int64))"
            self._line(f"{value} = tl.where({value} == {HIGH}, {HIGHEST}, {wide})")
        elif element.dtype is bool_:
            self._line(f"{value} = {value} != 0")
        elif not element.dtype.is_floating:
            self._line(f"{value} = {value}.to({type_text(element.dtype)})")

    def _combined(self, element: Reduce, part: str) -> str:
        """The total of what the threads have."""
        match element.combine:
            case "sum":
                return f"tl.sum({part}, 1)[:, None]"
            case "prod":
                return f"tl.reduce({part}, 1, as_times)[:, None]"
            case "max" | "min" if element.dtype.is_floating:
                return f"tl.reduce({part}, 1, as_{element.combine})[:, None]"
            case "max" | "any":
                return f"tl.max({part}, 1)[:, None]"
        return f"tl.min({part}, 1)[:, None]"
