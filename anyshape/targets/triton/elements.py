"""One element of a kernel as Triton: its value, its names, what it loads and stores.

In: a kernel, its phases, a schedule. Out: lines, which ``kernel.py`` prints loops around.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anyshape.ir.dtypes import DType, bfloat16, bool_, float32
from anyshape.ir.loops import (
    Const,
    Element,
    Kernel,
    Load,
    Moment,
    Op,
    Position,
    Read,
    Reduce,
    Scan,
    Store,
    element_of,
    index_names,
    operands,
)
from anyshape.nouns import mutable
from anyshape.symbolic import Dim, Symbol
from anyshape.targets.reduction_phases import Phases
from anyshape.targets.scalar import triton_scalar
from anyshape.targets.triton.narrow import start_of
from anyshape.targets.triton.online import LOWEST as ONLINE_LOWEST
from anyshape.targets.triton.schedules import (
    KernelSchedule,
)
from anyshape.targets.triton.sizes import nested_operands, to_triton
from anyshape.targets.triton.texts import (
    CAPABILITY,
    accumulator,
    cast_text,
    identity,
    number_text,
    type_text,
)

LOW, HIGH = -(1 << 31), (1 << 31) - 1
"""The ends of 32 bits, which stand for those of 64."""
OF_BFLOAT16 = ("add", "sub", "mul", "neg")
"""What GPUs do in bfloat16 themselves, as exactly as in float32 and rounded."""


def _is_cast(element: Element) -> bool:
    return isinstance(element, Op) and element.op == "cast"


@mutable(eq=False)
class ElementPrinter:
    """Prints elements of the piece of a fiber, or of the tile, that its fields say."""

    kernel: Kernel
    name: str
    schedule: KernelSchedule
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    opened: set[int | None] = field(default_factory=set)
    piece: int | None = None
    """Which piece of a fiber is printed, where it has several."""
    start: Dim | None = None
    """Where fibers begin in memory, while tiles that lie in them as a whole are printed."""
    whole: bool = False
    """Are tiles printed that lie in the fiber as a whole?"""
    phases: Phases = field(init=False)
    columns: frozenset[str] = field(init=False)
    narrow: frozenset[int] = frozenset()
    """64-bit elements that are kept in 32 bits."""
    sums: Mapping[int, int] = field(default_factory=dict)
    """Sums of exponentials that are done with their maximum."""
    firsts: Mapping[int, int] = field(default_factory=dict)
    """Positions of extremes that are found with them."""
    again: Mapping[int, Load] = field(default_factory=dict)
    """Elements that the phase loads, as a phase before has stored them."""

    @property
    def _index(self) -> str:
        """The type of indices."""
        return "tl.int64" if self.schedule.wide else "tl.int32"

    @property
    def _fiber_mask(self) -> str:
        """The mask of elements in the fiber; nothing where all of the tile lies in it."""
        schedule = self.schedule
        full = schedule.pieces and (schedule.even or (self.piece or 0) < schedule.pieces - 1)
        inside = full or self.whole or self.start is not None
        return "" if inside else self._of_piece("rmask")

    @property
    def _cell_mask(self) -> str:
        """The mask of elements along the parallel axes; nothing where a tile has one."""
        return "" if self.schedule.block == 1 else "xmask"

    def _accumulator(self, number: int) -> str:
        """The type in which a reduction is done."""
        narrow = number in self.narrow
        return "tl.int32" if narrow else accumulator(self.kernel.elements[number].dtype)

    def _identity(self, number: int) -> str:
        element = self.kernel.elements[number]
        if number in self.narrow and isinstance(element, Reduce):
            return str(HIGH if element.combine == "min" else LOW)
        if number in self.sums.values():
            return ONLINE_LOWEST[element.dtype.name]
        return identity(element)

    def _open(self, head: str) -> None:
        self._line(head)
        self.depth += 1

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # --- names ---

    def _of_piece(self, name: str) -> str:
        """What is of an element of the fiber has a name for each piece of the fiber."""
        return name if self.piece is None or self.schedule.pieces == 1 else f"{name}_{self.piece}"

    def _value_of(self, number: int) -> str:
        return self._of_piece(f"v{number}") if self.phases.in_fiber(number) else f"v{number}"

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
        element = self.again.get(number, self.kernel.elements[number])
        if isinstance(element, Scan):
            self._scan(number, element)
            return
        self._line(f"{self._value_of(number)} = {self._value(number, element)}")

    def _scan(self, number: int, element: Scan) -> None:
        kind, value = accumulator(element.dtype), self._value_of(element.arg)
        start, mask = identity(element), self._fiber_mask
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
                return f"tl.full([], {number_text(value, dtype)}, {type_text(dtype)})"
            case Read(param=param, dtype=dtype):
                return f"tl.full([], 0, {type_text(dtype)}) + {param}"
            case Position(index=index):
                kind = "tl.int32" if number in self.narrow else "tl.int64"
                return f"(tl.full([], 0, {kind}) + {self._dim(index)})"
            case Load():
                return self._load(number, element)
            case Moment():  # the order of another device's kernels
                return self._value_of(element.usual)
            case Op(op="cast", args=(arg,), dtype=dtype):
                rounded = self._rounded(arg)
                if dtype is float32 and rounded is not None:
                    return f"as_rounded({self._value_of(rounded)}, {CAPABILITY})"
                return cast_text(self._number_of(arg, dtype), elements[arg].dtype, dtype)
            case Op(op="where", args=(condition, a, b)):
                return f"tl.where({', '.join(map(self._value_of, (condition, a, b)))})"
            case Op(op=op, args=args, dtype=dtype):
                own = elements[args[0]].dtype
                text = triton_scalar(op, own, [*map(self._value_of, args)])
                return text if dtype is bool_ else f"({text}).to({type_text(dtype)})"
        raise NotImplementedError(type(element).__name__)

    def _number_of(self, number: int, target: DType) -> str:
        """The element, which is converted: LLVM must not see through what may become a bfloat16."""
        source, value = self.kernel.elements[number].dtype, self._value_of(number)
        hidden = source.signed and source.category == "int" and target.is_floating
        if hidden and any(e.dtype is bfloat16 for e in self.kernel.elements):
            return f"as_number({value}, {CAPABILITY})"
        return value

    def _rounded(self, number: int) -> int | None:
        """The float32 of which this element is the bfloat16; none where one instruction makes the
        bfloat16 of others, which LLVM sees if nothing stands in between."""
        element = self.kernel.elements[number]
        if not _is_cast(element) or element.dtype is not bfloat16 or number in self.again:
            return None
        (wide,) = operands(element)
        made = self.kernel.elements[wide]
        narrow = isinstance(made, Op) and made.op in OF_BFLOAT16
        if narrow and all(self._is_bfloat16(n) for n in operands(made)):
            return None
        return wide if made.dtype is float32 else None

    def _is_bfloat16(self, number: int) -> bool:
        """Whether a float32 was a bfloat16."""
        element, elements = self.kernel.elements[number], self.kernel.elements
        return _is_cast(element) and elements[operands(element)[0]].dtype is bfloat16

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
            masks.append(self._fiber_mask)
            index += f" + ({self._of_piece('r')} * 0)"
        if item.mask is not None:
            masks.append(self._value_of(item.mask))
        if self.start is not None and start_of(self.phases, item.index) == self.start:
            index = "inside"
        return f"{item.pointer} + ({index})", " & ".join(filter(None, masks))

    def _load(self, number: int, element: Load) -> str:
        pointer, mask = self._access(element)
        if self.kernel.reduction_axes and not self.phases.in_fiber(number):
            needed = self.phases.needed_in(number)
            turns = "" if self.kernel.reduction_axes[-1] not in needed else "(rtotal > 0)"
            mask = " & ".join(filter(None, (mask, turns)))
        text = f"tl.load({pointer}, mask={mask}, other=0)" if mask else f"tl.load({pointer})"
        return f"({text} != 0)" if element.dtype is bool_ else text

    def _store(self, store: Store, always_masked: bool = False) -> None:
        dtype = self.kernel.pointer(store.pointer).dtype
        pointer, mask = self._access(store, True, always_masked)
        value = f"{self._value_of(store.value)}.to({type_text(dtype)})"
        given = f"{pointer}, {value}, mask={mask}" if mask else f"{pointer}, {value}"
        if store.mode == "set":
            self._line(f"tl.store({given})")
        elif store.mode == "sum":
            self._line(f"tl.atomic_add({given})")
        else:
            module = "as_" if dtype.is_floating else "tl."
            self._line(f"{module}atomic_{store.mode}({given})")

    def _dim(self, dim: Dim) -> str:
        """Its text. What a division divides has a line of its own where it holds divisions: theirs
        repeats it, and they lie deep in one another where fibers are shifted by reshapes."""
        computed: dict[Dim, str] = {}
        for inner in nested_operands(dim):
            name = f"q{len(self.lines)}"
            self._line(f"{name} = {to_triton(inner, self._symbol_name, computed=computed)}")
            computed[inner] = name
        return to_triton(dim, self._symbol_name, computed=computed)
