"""A kernel as a Triton module.

In: a ``Kernel`` and a name. Out: Python text with the ``@triton.jit`` function and ``LAUNCH``, a
table that says how to launch it. Parallel axes are one flat index, rows another; a program takes
tiles of ``XBLOCK x RBLOCK`` cells until none are left, so that work follows the true sizes and one
grid fits all. Sizes are arguments that Triton must not specialize on. A row is kept in registers,
as one tile or several (``pieces``), whose values have names of their own; or each phase over it is
a loop, and what several phases need is loaded again. Where a row is cut into shares each phase is a
kernel of its own. Read on: ``reduction_phases.py``; the same phases are printed as C in
``targets/cpu/c.py``. Of several writes to one element any may be the last, as with eager torch
on a GPU; where the program asks for deterministic algorithms, eager torch runs it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from anyshape.ir.dtypes import DType, bool_, int32
from anyshape.ir.loops import (
    Axis,
    Const,
    Element,
    Kernel,
    Load,
    Op,
    PointerParam,
    Position,
    Read,
    Reduce,
    Scan,
    SizeParam,
    Store,
    element_of,
    index_names,
    operands,
)
from anyshape.symbolic import Dim, Symbol
from anyshape.targets.reduction_phases import Phases, analyse
from anyshape.targets.scalar import triton_scalar
from anyshape.targets.triton.narrow import HIGHEST, LOWEST, narrow_elements, row_start, start_of
from anyshape.targets.triton.prelude import HEADER
from anyshape.targets.triton.schedules import DIVISOR, KernelSchedule, default_schedule
from anyshape.targets.triton.sizes import to_triton

TYPES = {"bool": "int1", "float16": "float16", "bfloat16": "bfloat16"}
_EXTREMES = ("float32", "float64", "int32", "int64")
ATOMICS = {"sum": ("float16", "bfloat16", *_EXTREMES), "max": _EXTREMES, "min": _EXTREMES}
"""The dtypes that Triton combines in memory, by the mode of a write."""
OVERLAP = "OVERLAP"
"""The constant that says whether a kernel begins while the one before it in the stream ends: then it
waits before it touches memory, and the one after it may begin."""
LOW, HIGH = -(1 << 31), (1 << 31) - 1
"""The ends of 32 bits, which stand for those of 64."""


def emit_triton(kernel: Kernel, name: str, schedule: KernelSchedule | None = None) -> str:
    """The module's text. Raises NotImplementedError for what Triton cannot do in order."""
    return _Emitter(kernel, name, schedule or default_schedule(kernel)).text()


def totals(kernel: Kernel) -> tuple[int, ...]:
    """The reductions whose totals the shares of a row leave."""
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
    sizes = {OVERLAP: 0, "XBLOCK": schedule.block}
    if schedule.row:
        sizes["RBLOCK"] = schedule.row
    if schedule.phase is not None:
        sizes["SBLOCK"] = schedule.totals
    return sizes


@dataclass(slots=True, eq=False)
class _Emitter:
    kernel: Kernel
    name: str
    schedule: KernelSchedule
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    opened: set[int | None] = field(default_factory=set)
    piece: int | None = None
    """Which piece of a row is printed, where it has several."""
    start: Dim | None = None
    """Where rows begin in memory, while tiles that lie in them as a whole are printed."""
    phases: Phases = field(init=False)
    columns: frozenset[str] = field(init=False)
    narrow: frozenset[int] = frozenset()
    """64-bit elements that are kept in 32 bits."""

    def text(self) -> str:
        kernel, schedule = self.kernel, self.schedule
        for store in kernel.stores:
            _refuse_atomic(store.mode, kernel.pointer(store.pointer).dtype)
        self.phases = analyse(kernel)
        self.columns = frozenset(axis.name for axis in kernel.axes)
        if not schedule.wide and schedule.phase is None:
            self.narrow = narrow_elements(kernel)
        names = [p.name for p in kernel.params]
        if schedule.phase is not None:
            names += [*map(scratch_name, totals(kernel)), "shares", "each"]
        sizes = [p.name for p in kernel.params if not isinstance(p, PointerParam)]
        self._line(f"as_begin({OVERLAP})")
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
        do.
        """
        kernel = self.kernel
        return {
            "function": self.name,
            "arguments": [p.name for p in kernel.params],
            "constants": block_sizes(self.schedule),
            "num_warps": self.schedule.warps,
            "tiles": [self._dim(axis.extent) for axis in kernel.axes],
        }

    @property
    def _index(self) -> str:
        """The type of indices."""
        return "tl.int64" if self.schedule.wide else "tl.int32"

    # --- loops ---

    def _body(self) -> None:
        kernel = self.kernel
        program, programs = self._part()
        self._flat_extent("xtotal", kernel.axes)
        if kernel.reduction_axes:
            self._flat_extent("rtotal", kernel.reduction_axes)
        self._line("tiles = tl.cdiv(xtotal, XBLOCK)")
        first = f"{program}.to({self._index})"
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
        self.depth -= 1

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
        rows = bool(self.kernel.reduction_axes)
        done: set[int] = set()
        for level in range(self.phases.count):
            self._row_elements(level, done)
            if rows:
                self._row_pass(level, done)
            for store in self.phases.stores(level, "row" if rows else "cell"):
                self._store(store)

    def _one_phase(self, phase: int) -> None:
        """A phase over one share of each row: totals of the phases before are combined from those
        of their shares, and those of this one are left for the phases after it."""
        done: set[int] = set()
        for level in range(phase):
            self._row_elements(level, done)
            self._combine_shares(level, done)
        self._row_elements(phase, done)
        self._row_pass(phase, done)
        for n in self.phases.reduces(phase):
            index = f"tl.program_id(1).to({self._index}) * xtotal + x"
            self._line(f"tl.store({scratch_name(n)} + {index}, a{n}t, mask=xmask)")
        stores = self.phases.stores(phase, "row")
        if stores:
            self._line("xmask = xmask & (tl.program_id(1) == 0)")
        for store in stores:
            self._store(store, always_masked=True)

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

    def _row_elements(self, level: int, done: set[int]) -> None:
        phases = self.phases
        roots = [
            n
            for n in range(len(self.kernel.elements))
            if not phases.in_row(n) and phases.level[n] == level
        ]
        for n in phases.closure(roots, done):
            if not phases.in_row(n) and not isinstance(self.kernel.elements[n], Reduce):
                self._element(n)
                done.add(n)

    def _row_pass(self, level: int, done: set[int]) -> None:
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
        body = phases.closure(roots, done | known)
        for n in body:
            element = kernel.elements[n]
            if isinstance(element, Scan):
                start, kind = _identity(element), _accumulator(element.dtype)
                self._line(f"c{n} = tl.full([XBLOCK, 1], {start}, {kind})")
        if self.schedule.pieces:
            for piece in range(self.schedule.pieces):
                self.piece = piece
                self._cells(body, reduces, stores, f"{piece} * RBLOCK", first=piece == 0)
            self.piece = None
            done |= set(body)
        else:
            self._row_loop(body, reduces, stores)
        for n in reduces:
            self._total(n)
        done |= set(reduces)

    def _row_loop(self, body: list[int], reduces: list[int], stores: list[Store]) -> None:
        for n in reduces:
            start, kind = self._identity(n), self._accumulator(n)
            self._line(f"a{n} = tl.full([XBLOCK, RBLOCK], {start}, {kind})")
        if self.schedule.aligned:
            self._aligned_loops(body, reduces, stores)
            return
        if self.schedule.phase is None:
            self._open("for start in range(0, rtotal, RBLOCK):")
        else:
            self._line(f"first = tl.program_id(1).to({self._index}) * each")
            self._line("stop = tl.minimum(first + each, rtotal)")
            self._open("for start in range(first, stop, RBLOCK):")
        self.opened.discard(None)
        self._cells(body, reduces, stores, "start", first=False)
        self.depth -= 1

    def _aligned_loops(self, body: list[int], reduces: list[int], stores: list[Store]) -> None:
        """A loop over the tiles that lie in the row as a whole, which begin at multiples of 16 in
        memory, and one over the first and the last."""
        begin = row_start(self.kernel, self.phases)
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
        self, body: list[int], reduces: list[int], stores: list[Store], start: str, *, first: bool
    ) -> None:
        """What is done for the cells of one tile."""
        if self.piece not in self.opened:
            self._row_indices(start)
        for n in body:
            self._element(n)
        for n in reduces:
            self._accumulate(n, first)
        for store in stores:
            self._store(store)

    def _row_indices(self, start: str) -> None:
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
        """The totals of whole rows, from those of their shares."""
        reduces = self.phases.reduces(level)
        if not reduces:
            return
        for n in reduces:
            element = self.kernel.elements[n]
            start, kind = _identity(element), _accumulator(element.dtype)
            self._line(f"a{n} = tl.full([XBLOCK, SBLOCK], {start}, {kind})")
        self._open("for start in range(0, shares, SBLOCK):")
        self._line(f"s = (start + tl.arange(0, SBLOCK).to({self._index}))[None, :]")
        self._line("smask = xmask & (s < shares)")
        for n in reduces:
            element = self.kernel.elements[n]
            assert isinstance(element, Reduce)
            index = f"{scratch_name(n)} + (s * xtotal + x)"
            self._line(f"w = tl.load({index}, mask=smask, other={_identity(element)})")
            combined = _combined(element, f"a{n}", "w")
            self._line(f"a{n} = tl.where(smask, {combined}, a{n})")
        self.depth -= 1
        for n in reduces:
            self._total(n)
        done |= set(reduces)

    @property
    def _row_mask(self) -> str:
        """The mask of elements in the row; nothing where all of the tile lies in it."""
        schedule = self.schedule
        full = schedule.pieces and (schedule.even or (self.piece or 0) < schedule.pieces - 1)
        return "" if full or self.start is not None else self._of_piece("rmask")

    @property
    def _cell_mask(self) -> str:
        """The mask of elements along the parallel axes; nothing where a tile has one."""
        return "" if self.schedule.block == 1 else "xmask"

    def _accumulate(self, number: int, first: bool) -> None:
        element = self.kernel.elements[number]
        assert isinstance(element, Reduce)
        total, value = (
            f"a{number}",
            f"{self._value_of(element.arg)}.to({self._accumulator(number)})",
        )
        mask = " & ".join(filter(None, (self._cell_mask, self._row_mask)))
        if first:
            made, other = f"tl.broadcast_to({value}, [XBLOCK, RBLOCK])", self._identity(number)
        else:
            made, other = _combined(element, total, value), total
        self._line(f"{total} = {f'tl.where({mask}, {made}, {other})' if mask else made}")

    def _total(self, number: int) -> None:
        element = self.kernel.elements[number]
        assert isinstance(element, Reduce)
        part, value = f"a{number}", f"v{number}"
        match element.combine:
            case "sum":
                self._line(f"{value} = tl.sum({part}, 1)[:, None]")
            case "prod":
                self._line(f"{value} = tl.reduce({part}, 1, as_times)[:, None]")
            case "max" | "min" if element.dtype.is_floating:
                self._line(f"{value} = tl.reduce({part}, 1, as_{element.combine})[:, None]")
            case "max" | "any":
                self._line(f"{value} = tl.max({part}, 1)[:, None]")
            case "min" | "all":
                self._line(f"{value} = tl.min({part}, 1)[:, None]")
        if self.schedule.phase is not None:
            self._line(f"a{number}t = {value}.to({_accumulator(element.dtype)})")
        if number in self.narrow:
            wide = f"tl.where({value} == {LOW}, {LOWEST}, {value}.to(tl.int64))"
            self._line(f"{value} = tl.where({value} == {HIGH}, {HIGHEST}, {wide})")
        elif element.dtype is bool_:
            self._line(f"{value} = {value} != 0")
        elif not element.dtype.is_floating:
            self._line(f"{value} = {value}.to({_type(element.dtype)})")

    def _accumulator(self, number: int) -> str:
        """The type in which a reduction is done."""
        narrow = number in self.narrow
        return "tl.int32" if narrow else _accumulator(self.kernel.elements[number].dtype)

    def _identity(self, number: int) -> str:
        element = self.kernel.elements[number]
        if number in self.narrow and isinstance(element, Reduce):
            return str(HIGH if element.combine == "min" else LOW)
        return _identity(element)

    def _open(self, head: str) -> None:
        self._line(head)
        self.depth += 1

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # --- names ---

    def _of_piece(self, name: str) -> str:
        """What is of an element of the row has a name for each piece of the row."""
        return name if self.piece is None or self.schedule.pieces == 1 else f"{name}_{self.piece}"

    def _value_of(self, number: int) -> str:
        return self._of_piece(f"v{number}") if self.phases.in_row(number) else f"v{number}"

    def _symbol_name(self, symbol: Symbol) -> str:
        number = element_of(symbol)
        if number is not None:
            return self._value_of(number)
        return (
            self._of_piece(symbol.name)
            if symbol.name in self.phases.reduction_names
            else symbol.name
        )

    # --- elements ---

    def _element(self, number: int) -> None:
        element = self.kernel.elements[number]
        if isinstance(element, Scan):
            self._scan(number, element)
            return
        self._line(f"{self._value_of(number)} = {self._value(number, element)}")

    def _scan(self, number: int, element: Scan) -> None:
        kind, value = _accumulator(element.dtype), self._value_of(element.arg)
        start, mask = _identity(element), self._row_mask
        masked = f"tl.where({mask}, {value}, {start})" if mask else value
        full = f"{masked}.to({kind}) + tl.zeros([XBLOCK, RBLOCK], {kind})"
        made, carried = self._value_of(number), f"c{number}"
        self._line(f"s{number} = {full}")
        match element.combine:
            case "sum":
                self._line(f"{made} = {carried} + tl.cumsum(s{number}, 1)")
                self._line(f"{carried} += tl.sum(s{number}, 1)[:, None]")
            case "prod":
                self._line(f"{made} = {carried} * tl.cumprod(s{number}, 1)")
                self._line(f"{carried} *= tl.reduce(s{number}, 1, as_times)[:, None]")
            case "max" | "min" as kind:
                running = f"tl.associative_scan(s{number}, 1, as_{kind})"
                self._line(f"{made} = as_{kind}({carried}, {running})")
                total = f"tl.reduce(s{number}, 1, as_{kind})[:, None]"
                self._line(f"{carried} = as_{kind}({carried}, {total})")
            case _:
                raise NotImplementedError(f"a running {element.combine}")

    def _value(self, number: int, element: Element) -> str:
        elements = self.kernel.elements
        match element:
            case Const(value=value) if number in self.narrow:
                return f"tl.full([], {min(max(value, LOW), HIGH)}, tl.int32)"
            case Const(value=value, dtype=dtype):
                return f"tl.full([], {_number(value, dtype)}, {_type(dtype)})"
            case Read(param=param, dtype=dtype):
                return f"tl.full([], 0, {_type(dtype)}) + {param}"
            case Position(index=index):
                kind = "tl.int32" if number in self.narrow else "tl.int64"
                return f"(tl.full([], 0, {kind}) + {self._dim(index)})"
            case Load():
                return self._load(number, element)
            case Op(op="cast", args=(arg,), dtype=dtype):
                return _cast(self._value_of(arg), elements[arg].dtype, dtype)
            case Op(op="where", args=(condition, a, b)):
                return f"tl.where({', '.join(map(self._value_of, (condition, a, b)))})"
            case Op(op=op, args=args, dtype=dtype):
                own = elements[args[0]].dtype
                text = triton_scalar(op, own, [*map(self._value_of, args)])
                return text if dtype is bool_ else f"({text}).to({_type(dtype)})"
        raise NotImplementedError(type(element).__name__)

    def _access(
        self, item: Load | Store, always_x: bool = False, always_masked: bool = False
    ) -> tuple[str, str]:
        """(pointer text, mask text) of an access; both have the shape of all axes they vary
        over.
        """
        varies = index_names(item) & (self.columns | self.phases.reduction_names)
        for n in operands(item):
            varies |= self.phases.axes_of[n]
        masks = []
        index = self._dim(item.index)
        if varies & self.columns or always_x:
            masks.append("xmask" if always_masked else self._cell_mask)
            index += " + zero"
        if varies & self.phases.reduction_names:
            masks.append(self._row_mask)
            index += f" + ({self._of_piece('r')} * 0)"
        if item.mask is not None:
            masks.append(self._value_of(item.mask))
        if self.start is not None and start_of(self.phases, item.index) == self.start:
            index = "inside"
        return f"{item.pointer} + ({index})", " & ".join(filter(None, masks))

    def _load(self, number: int, element: Load) -> str:
        pointer, mask = self._access(element)
        if self.kernel.reduction_axes and not self.phases.in_row(number):
            needed = self.phases.needed_in(number)
            turns = "" if self.kernel.reduction_axes[-1] not in needed else "(rtotal > 0)"
            mask = " & ".join(filter(None, (mask, turns)))
        text = f"tl.load({pointer}, mask={mask}, other=0)" if mask else f"tl.load({pointer})"
        return f"({text} != 0)" if element.dtype is bool_ else text

    def _store(self, store: Store, always_masked: bool = False) -> None:
        dtype = self.kernel.pointer(store.pointer).dtype
        pointer, mask = self._access(store, True, always_masked)
        value = f"{self._value_of(store.value)}.to({_type(dtype)})"
        given = f"{pointer}, {value}, mask={mask}" if mask else f"{pointer}, {value}"
        if store.mode == "set":
            self._line(f"tl.store({given})")
        elif store.mode == "sum":
            self._line(f"tl.atomic_add({given})")
        else:
            module = "as_" if dtype.is_floating else "tl."
            self._line(f"{module}atomic_{store.mode}({given})")

    def _dim(self, dim: Dim) -> str:
        return to_triton(dim, self._symbol_name)


def _refuse_atomic(mode: str, dtype: DType) -> None:
    """Raises NotImplementedError for what no atomic operation does."""
    if mode != "set" and dtype.name not in ATOMICS.get(mode, ()):
        raise NotImplementedError(f"{mode} of {dtype.name} written to places that may meet")


def _type(dtype: DType) -> str:
    return f"tl.{TYPES.get(dtype.name, dtype.name)}"


def _accumulator(dtype: DType) -> str:
    return "tl.int32" if dtype is bool_ else _type(dtype)


def _number(value: float, dtype: DType) -> str:
    if dtype is bool_:
        return "1" if value else "0"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _cast(text: str, source: DType, target: DType) -> str:
    if target is bool_:
        return f"({text} != 0)"
    if source.is_floating and target.name == "uint8":
        return f"{text}.to(tl.int64).to(tl.uint8)"
    return f"{text}.to({_type(target)})"


def _identity(element: Reduce | Scan | Element) -> str:
    assert isinstance(element, (Reduce, Scan))
    match element.combine:
        case "sum" | "any":
            return "0"
        case "prod" | "all":
            return "1"
    lowest = element.combine == "max"
    if element.dtype.is_floating:
        return 'float("-inf")' if lowest else 'float("inf")'
    if element.dtype is bool_:
        return "0" if lowest else "1"
    bits = 8 * element.dtype.size_bytes
    low = -(1 << bits - 1) if element.dtype.signed else 0
    return str(low if lowest else (1 << bits - element.dtype.signed) - 1)


def _combined(element: Reduce, a: str, b: str) -> str:
    match element.combine:
        case "sum":
            return f"{a} + {b}"
        case "prod":
            return f"{a} * {b}"
        case "any":
            return f"{a} | {b}"
        case "all":
            return f"{a} & {b}"
    if element.dtype.is_floating:
        return f"as_{element.combine}({a}, {b})"
    return f"tl.{element.combine}imum({a}, {b})"
