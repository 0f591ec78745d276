"""A kernel as a Triton module.

In: a ``Kernel`` and a name. Out: Python text with the ``@triton.jit`` function and ``LAUNCH``, a
table that says how to launch it. Parallel axes are one flat index, rows another; a program takes
tiles of ``XBLOCK x RBLOCK`` cells until none are left, so that work follows the true sizes and one
grid fits all. Sizes are arguments that Triton must not specialize on. Phases over a row are loops;
what several need is loaded again. Read on: ``reduction_phases.py``; the same phases are printed as
C in ``targets/cpu/c.py``. Of several writes to one place any may be the last, as with eager torch
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
    Store,
    index_names,
    operands,
)
from anyshape.symbolic import Dim, Symbol
from anyshape.targets.reduction_phases import Phases, analyse
from anyshape.targets.scalar import triton_scalar
from anyshape.targets.triton.schedules import KernelSchedule, default_schedule
from anyshape.targets.triton.sizes import to_triton

HEADER = """import triton
import triton.language as tl


@triton.jit
def as_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def as_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def as_times(a, b):
    return a * b


@triton.jit
def as_tanh(x):
    a = tl.abs(x)
    s = x * x
    r = tl.fma(tl.full([], 1.57394409e-2, x.dtype), s, tl.full([], -5.23025580e-2, x.dtype))
    r = tl.fma(r, s, tl.full([], 1.33152470e-1, x.dtype))
    r = tl.fma(r, s, tl.full([], -3.33327681e-1, x.dtype))
    small = tl.fma(r * s, x, x)
    big = 1.0 - tl.fdiv(tl.full([], 2.0, x.dtype), tl.exp(a + a) + 1.0)
    return tl.where(a <= 0.55, small, tl.where(x < 0, -big, big))


@triton.jit
def as_expm1(x):
    u = tl.exp(x)
    return tl.where(u == 1.0, x, tl.where(u - 1.0 == -1.0, -1.0, (u - 1.0) * x / tl.log(u)))


@triton.jit
def as_log1p(x):
    u = 1.0 + x
    big = tl.abs(u) == float("inf")
    return tl.where(u == 1.0, x, tl.where(big, tl.log(u), tl.log(u) * x / (u - 1.0)))


@triton.jit
def as_round(x):
    f = tl.floor(x)
    d = x - f
    odd = f - 2.0 * tl.floor(f * 0.5) != 0.0
    return tl.where((d > 0.5) | ((d == 0.5) & odd), f + 1.0, f)


@triton.jit
def as_mod(a, b):
    r = tl.extra.cuda.libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def as_int_divide(a, b):
    safe = tl.where(b == 0, 1, b)
    return tl.where(b == 0, 0, a // safe)


@triton.jit
def as_int_remainder(a, b):
    safe = tl.where(b == 0, 1, b)
    return tl.where(b == 0, 0, a % safe)


@triton.jit
def as_int_floordiv(a, b):
    r = as_int_remainder(a, b)
    return as_int_divide(a, b) - tl.where((r != 0) & ((r < 0) != (b < 0)), 1, 0)


@triton.jit
def as_int_mod(a, b):
    r = as_int_remainder(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
"""

TYPES = {"bool": "int1", "float16": "float16", "bfloat16": "bfloat16"}
X, R = "x", "r"


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
    return {"XBLOCK": schedule.block} | ({"RBLOCK": schedule.row} if schedule.row else {})


@dataclass(slots=True, eq=False)
class _Emitter:
    kernel: Kernel
    name: str
    schedule: KernelSchedule
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    opened: set[str] = field(default_factory=set)
    phases: Phases = field(init=False)
    columns: frozenset[str] = field(init=False)
    totals: tuple[int, ...] = field(init=False)

    def text(self) -> str:
        kernel = self.kernel
        if any(store.mode == "prod" for store in kernel.stores):
            raise NotImplementedError("products written to places that may meet")
        self.phases = analyse(kernel)
        self.totals = totals(kernel) if self.schedule.part != "whole" else ()
        self.columns = frozenset(axis.name for axis in kernel.axes)
        names = [p.name for p in kernel.params]
        if self.schedule.part != "whole":
            names += [*map(scratch_name, totals(kernel)), "shares", "each"]
        sizes = [p.name for p in kernel.params if not isinstance(p, PointerParam)]
        self._body()
        blocks = ["XBLOCK: tl.constexpr"] + ["RBLOCK: tl.constexpr"] * bool(kernel.reduction_axes)
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
        self._flat_extent("xtotal", kernel.axes)
        if kernel.reduction_axes:
            self._flat_extent("rtotal", kernel.reduction_axes)
        self._line("tiles = tl.cdiv(xtotal, XBLOCK)")
        first = f"tl.program_id(0).to({self._index})"
        self._open(f"for tile in range({first}, tiles, tl.num_programs(0)):")
        columns = "[:, None]" if kernel.reduction_axes else ""
        self._line(f"x = (tl.arange(0, XBLOCK).to({self._index}) + tile * XBLOCK){columns}")
        self._line("xmask = x < xtotal")
        self._line("zero = x * 0")
        self._decode("x", kernel.axes)
        done: set[int] = set()
        if self.schedule.part == "partial":
            self._row_elements(0, done)
            self._row_pass(0, done)
            for n in self.totals:
                place = f"tl.program_id(1).to({self._index}) * xtotal + x"
                self._line(f"tl.store({scratch_name(n)} + {place}, a{n}t, mask=xmask)")
            self.depth -= 1
            return
        for level in range(self.phases.count):
            if self.schedule.part == "final" and level == 0:
                self._combine_shares(done)
            self._row_elements(level, done)
            if kernel.reduction_axes and self.schedule.part != "final":
                self._row_pass(level, done)
            for store in self.phases.stores(level, "row" if kernel.reduction_axes else "cell"):
                self._store(store)
        self.depth -= 1

    def _flat_extent(self, name: str, axes: tuple[Axis, ...]) -> None:
        self._line(f"{name} = tl.full([], 1, {self._index})")
        for axis in axes:
            self._line(f"{name} *= {self._dim(axis.extent)}")

    def _decode(self, flat: str, axes: tuple[Axis, ...]) -> None:
        """The axes' indices from the flat one."""
        if not axes:
            return
        rest = flat
        for axis in reversed(axes[1:]):
            extent = f"({self._dim(axis.extent)})"
            self._line(f"{axis.name} = {rest} % {extent}")
            self._line(f"{rest}_{axis.name} = {rest} // {extent}")
            rest = f"{rest}_{axis.name}"
        self._line(f"{axes[0].name} = {rest}")

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
        for n in reduces:
            element = kernel.elements[n]
            start, kind = _identity(element), _accumulator(element.dtype)
            self._line(f"a{n} = tl.full([XBLOCK, RBLOCK], {start}, {kind})")
        for n in body:
            element = kernel.elements[n]
            if isinstance(element, Scan):
                start, kind = _identity(element), _accumulator(element.dtype)
                self._line(f"c{n} = tl.full([XBLOCK, 1], {start}, {kind})")
        if self.schedule.whole:
            if "r" not in self.opened:
                self._row_indices("0")
        elif self.schedule.part == "partial":
            self._line(f"first = tl.program_id(1).to({self._index}) * each")
            self._line("stop = tl.minimum(first + each, rtotal)")
            self._open("for start in range(first, stop, RBLOCK):")
            self._row_indices("start")
        else:
            self._open("for start in range(0, rtotal, RBLOCK):")
            self._row_indices("start")
        for n in body:
            self._element(n)
        for n in reduces:
            self._accumulate(n)
        for store in stores:
            self._store(store)
        if self.schedule.whole:
            done |= set(body)
        else:
            self.depth -= 1
        for n in reduces:
            self._total(n)
        done |= set(reduces)

    def _row_indices(self, start: str) -> None:
        self.opened.add("r")
        self._line(f"r = ({start} + tl.arange(0, RBLOCK).to({self._index}))[None, :]")
        self._line(f"rmask = r < {'stop' if self.schedule.part == 'partial' else 'rtotal'}")
        self._decode("r", self.kernel.reduction_axes)

    def _combine_shares(self, done: set[int]) -> None:
        """The totals of all rows, from those of their shares."""
        for n in self.totals:
            element = self.kernel.elements[n]
            start, kind = _identity(element), _accumulator(element.dtype)
            self._line(f"a{n} = tl.full([XBLOCK, RBLOCK], {start}, {kind})")
        self._open("for start in range(0, shares, RBLOCK):")
        self._line(f"s = (start + tl.arange(0, RBLOCK).to({self._index}))[None, :]")
        self._line("rmask = s < shares")
        for n in self.totals:
            element = self.kernel.elements[n]
            assert isinstance(element, Reduce)
            place = f"{scratch_name(n)} + (s * xtotal + x)"
            self._line(f"w = tl.load({place}, mask=xmask & rmask, other={_identity(element)})")
            combined = _combined(element, f"a{n}", "w")
            self._line(f"a{n} = tl.where(xmask & rmask, {combined}, a{n})")
        self.depth -= 1
        for n in self.totals:
            self._total(n)
        done |= set(self.totals)

    def _accumulate(self, number: int) -> None:
        element = self.kernel.elements[number]
        assert isinstance(element, Reduce)
        value = f"v{element.arg}"
        if element.dtype is bool_:
            value = f"{value}.to(tl.int32)"
        combined = _combined(element, f"a{number}", value)
        self._line(f"a{number} = tl.where(xmask & rmask, {combined}, a{number})")

    def _total(self, number: int) -> None:
        element = self.kernel.elements[number]
        assert isinstance(element, Reduce)
        part, value = f"a{number}", f"v{number}"
        match element.combine:
            case "sum":
                self._line(f"{value} = tl.sum({part}, 1)[:, None]")
            case "prod":
                self._line(f"{value} = tl.reduce({part}, 1, as_times)[:, None]")
            case "max" | "any":
                self._line(f"{value} = tl.max({part}, 1)[:, None]")
            case "min" | "all":
                self._line(f"{value} = tl.min({part}, 1)[:, None]")
        if element.combine in ("max", "min") and element.dtype.is_floating:
            self._line(f"n{number}n = tl.max(({part} != {part}).to(tl.int32), 1)[:, None]")
            self._line(f'{value} = tl.where(n{number}n > 0, float("nan"), {value})')
        if self.schedule.part == "partial":
            self._line(f"a{number}t = {value}.to({_accumulator(element.dtype)})")
        if element.dtype is bool_:
            self._line(f"{value} = {value} != 0")
        elif not element.dtype.is_floating:
            self._line(f"{value} = {value}.to({_type(element.dtype)})")

    def _open(self, head: str) -> None:
        self._line(head)
        self.depth += 1

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # --- elements ---

    def _element(self, number: int) -> None:
        element = self.kernel.elements[number]
        if isinstance(element, Scan):
            self._scan(number, element)
            return
        self._line(f"v{number} = {self._value(number, element)}")

    def _scan(self, number: int, element: Scan) -> None:
        kind, value = _accumulator(element.dtype), f"v{element.arg}"
        start = _identity(element)
        full = f"tl.where(rmask, {value}, {start}).to({kind}) + tl.zeros([XBLOCK, RBLOCK], {kind})"
        if element.combine == "sum":
            self._line(f"s{number} = {full}")
            self._line(f"v{number} = c{number} + tl.cumsum(s{number}, 1)")
            self._line(f"c{number} += tl.sum(s{number}, 1)[:, None]")
        elif element.combine == "prod":
            self._line(f"s{number} = {full}")
            self._line(f"v{number} = c{number} * tl.cumprod(s{number}, 1)")
            self._line(f"c{number} *= tl.reduce(s{number}, 1, as_times)[:, None]")
        else:
            raise NotImplementedError(f"a running {element.combine}")

    def _value(self, number: int, element: Element) -> str:
        elements = self.kernel.elements
        match element:
            case Const(value=value, dtype=dtype):
                return f"tl.full([], {_number(value, dtype)}, {_type(dtype)})"
            case Read(param=param, dtype=dtype):
                return f"tl.full([], 0, {_type(dtype)}) + {param}"
            case Position(index=index):
                return f"(tl.full([], 0, tl.int64) + {self._dim(index)})"
            case Load():
                return self._load(number, element)
            case Op(op="cast", args=(arg,), dtype=dtype):
                return _cast(f"v{arg}", elements[arg].dtype, dtype)
            case Op(op="where", args=(condition, a, b)):
                return f"tl.where(v{condition}, v{a}, v{b})"
            case Op(op=op, args=args, dtype=dtype):
                own = elements[args[0]].dtype
                text = triton_scalar(op, own, [f"v{a}" for a in args])
                if op == "tanh" and own.name == "float64":
                    raise NotImplementedError("tanh of float64 in Triton")
                return text if dtype is bool_ else f"({text}).to({_type(dtype)})"
        raise NotImplementedError(type(element).__name__)

    def _place(self, item: Load | Store, always_x: bool = False) -> tuple[str, str]:
        """(pointer text, mask text) of an access; both have the shape of all axes they vary
        over.
        """
        varies = index_names(item) & (self.columns | self.phases.reduction_names)
        for n in operands(item):
            varies |= self.phases.axes_of[n]
        masks = []
        index = self._dim(item.index)
        if varies & self.columns or always_x:
            masks.append("xmask")
            index += " + zero"
        if varies & self.phases.reduction_names:
            masks.append("rmask")
            index += " + (r * 0)"
        if item.mask is not None:
            masks.append(f"v{item.mask}")
        return f"{item.pointer} + ({index})", " & ".join(masks)

    def _load(self, number: int, element: Load) -> str:
        pointer, mask = self._place(element)
        if self.kernel.reduction_axes and not self.phases.in_row(number):
            needed = self.phases.needed_in(number)
            turns = "" if self.kernel.reduction_axes[-1] not in needed else "(rtotal > 0)"
            mask = " & ".join(filter(None, (mask, turns)))
        text = f"tl.load({pointer}, mask={mask}, other=0)" if mask else f"tl.load({pointer})"
        return f"({text} != 0)" if element.dtype is bool_ else text

    def _store(self, store: Store) -> None:
        dtype = self.kernel.pointer(store.pointer).dtype
        pointer, mask = self._place(store, always_x=True)
        value = f"v{store.value}.to({_type(dtype)})"
        if store.mode == "set":
            self._line(f"tl.store({pointer}, {value}, mask={mask})")
        else:
            atomic = {"sum": "add", "max": "max", "min": "min"}[store.mode]
            self._line(f"tl.atomic_{atomic}({pointer}, {value}, mask={mask})")

    def _dim(self, dim: Dim) -> str:
        return to_triton(dim, _symbol_name)


def _symbol_name(symbol: Symbol) -> str:
    return symbol.name


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
