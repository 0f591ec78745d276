"""What one cell of a kernel is in C: lines that compute elements and store them.

In: a kernel whose loops someone else opens. Out: lines of text, kept in ``lines`` with their depth.
Elements may be read from memory where an earlier loop has put them (``kept`` fibers, turned
``tiles``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from anyshape.ir.dtypes import DType, bool_
from anyshape.ir.loops import (
    Const,
    Element,
    Kernel,
    Load,
    Moment,
    Op,
    PointerParam,
    Position,
    Read,
    ScalarParam,
    Scan,
    SizeParam,
    Store,
)
from anyshape.nouns import mutable
from anyshape.symbolic import Dim, Expr, Monomial, Symbol
from anyshape.targets.cpu.c_texts import (
    C_TYPES,
    HALF,
    STORAGE,
    c_cast,
    c_combine,
    c_number,
)
from anyshape.targets.cpu.sizes import to_c
from anyshape.targets.reduction_phases import Phases
from anyshape.targets.scalar import C_SUFFIXES, c_scalar


@mutable(eq=False)
class CellPrinter:
    """Prints elements and stores; a subclass prints the loops around them."""

    kernel: Kernel
    name: str
    phases: Phases
    parameters: str  # as `declared`
    sums: dict[Expr, str]  # the texts of sums and products, the same for all printers of a kernel
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    elements: list[Element] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)
    tiles: dict[int, str] = field(default_factory=dict)
    loaded: dict[int, str] = field(default_factory=dict)  # float16 of a vector, as float32
    stored: dict[Store, str] = field(default_factory=dict)  # what will be float16, as float32
    partial: str = ""  # the axis of the last vector of a fiber, where lanes need not be cells
    running: list[str] = field(default_factory=list)  # the axis of each open loop, "" of none
    indices: dict[str, str] = field(default_factory=dict)  # of axes that are not their variables

    def _open(self, head: str, axis: str = "") -> None:
        """Opens a block; ``axis`` says whose loop it is, in whose body the axis is not empty."""
        self.lines.append(f"{'  ' * self.depth}{head} {{" if head else "  " * self.depth + "{")
        self.depth += 1
        self.running.append(axis)

    def _loop(self, name: str, start: str, end: str) -> None:
        self._open(f"for (i64 {name} = {start}; {name} < {end}; {name}++)", name)

    def _close(self, count: int) -> None:
        for _ in range(count):
            self.depth -= 1
            self.running.pop()
            self.lines.append("  " * self.depth + "}")

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    # --- elements ---

    def _dim(self, dim: Dim) -> str:
        if isinstance(dim, int) or dim.depth:  # which loops are open decides nothing of a sum
            return to_c(dim, _symbol_name, not_zero=self._is_turned)
        text = self.sums.get(dim)
        if text is None:
            text = self.sums[dim] = to_c(dim, _symbol_name)
        return text

    def _is_turned(self, divisor: Dim) -> bool:
        """Is it a product of extents of loops that are open here, whose bodies run only where these
        are not 0?"""
        axes = (*self.kernel.axes, *self.kernel.reduction_axes)
        extents = [axis.extent for axis in axes if axis.name in self.running]
        factors = _factors(divisor)
        if factors is None:
            return divisor in extents
        return {atom for extent in extents for atom in _factors(extent) or ()}.issuperset(factors)

    def _emit_elements(self, numbers: Sequence[int], keep: Sequence[int] = ()) -> None:
        for n in numbers:
            element = self.elements[n]
            kind = C_TYPES[element.dtype.name]
            if isinstance(element, Scan):
                self._line(f"c{n} = {c_combine(element, f'c{n}', f'v{element.arg}')};")
                self._line(f"const {kind} v{n} = c{n};")
                continue
            if n in self.kept and n not in keep:
                self._line(
                    f"const {kind} v{n} = {self.kept[n]}[{self.kernel.reduction_axes[0].name}];"
                )
                continue
            self._line(f"const {kind} v{n} = {self._value(n, element)};")
            if n in keep:
                kept = self._result(f"v{n}", "0")
                self._line(f"{self.kept[n]}[{self.kernel.reduction_axes[0].name}] = {kept};")

    def _value(self, number: int, element: Element) -> str:
        match element:
            case Const(value=value, dtype=dtype):
                return c_number(value, dtype)
            case Read(param=param, dtype=dtype):
                return f"({C_TYPES[dtype.name]}){param}"
            case Position(index=index):
                return self._dim(index)
            case Load():
                return self._load(number, element)
            case Op(op="cast", args=(arg,), dtype=dtype):
                return c_cast(f"v{arg}", self.kernel.elements[arg].dtype, dtype)
            case Op(op="same", args=(arg,)):
                return f"v{arg}"
            case Moment():
                return self._moment(element)
            case Op(op="where", args=(condition, a, b)):
                return f"v{condition} ? v{a} : v{b}"
            case Op(op=op, args=args):
                dtype = self.kernel.elements[args[0]].dtype
                return c_scalar(op, dtype, [f"v{a}" for a in args])
        raise NotImplementedError(type(element).__name__)

    def _moment(self, moment: Moment) -> str:
        """As it is in all ordinary fibers; else the call of its function (``c_moments.py``)."""
        given = ", ".join(f"v{n}" for n in moment.given)
        suffix = C_SUFFIXES[moment.dtype.name]
        fits = f"as_fits_{len(moment.given)}_{suffix}({given})"
        axes = (self.indices.get(axis.name, axis.name) for axis in self.kernel.axes)
        numbers = (f"v{n}" for n in self.phases.totals_below(moment))
        squares = str(int(moment.part == "squares"))
        handed = ", ".join((*(p.name for p in self.kernel.params), *axes, *numbers, squares))
        name = moment_name(self.name, self.kernel, moment)
        return f"{fits} ? v{moment.usual} : {name}({handed})"

    def _load(self, number: int, element: Load) -> str:
        if number in self.loaded:
            return self.loaded[number]
        text = self.tiles.get(number) or self._lvalue(element)
        dtype = element.dtype
        if dtype.name in HALF:
            text = f"as_load_{HALF[dtype.name]}({text})"
        elif dtype is bool_:
            text = f"({text} != 0)"
        along = self.partial and self.partial in self.phases.axes_of[number]
        conditions = ["l < left"] if along else []
        conditions += self._turns(number)
        conditions += [] if element.mask is None else [f"v{element.mask}"]
        return f"({_all(conditions)} ? {text} : 0)" if conditions else text

    def _turns(self, number: int) -> list[str]:
        """That the loops in which the element is needed turn at all: those that are not open here,
        because it does not vary along them. What it reads need not be there otherwise."""
        return [
            f"{self._dim(axis.extent)} > 0"
            for axis in self.phases.needed_in(number)
            if axis.name not in self.running
            and not (isinstance(axis.extent, int) and axis.extent > 0)
        ]

    def _result(self, text: str, other: str) -> str:
        """``text`` where this lane is a cell, else ``other``."""
        return f"(l < left ? {text} : {other})" if self.partial else text

    def _lvalue(self, item: Load | Store) -> str:
        return f"{item.pointer}[{self._dim(item.index)}]"

    def _store(self, store: Store) -> None:
        if store in self.stored:
            self._line(f"{self.stored[store]}[l] = v{store.value};")
            return
        dtype = self.kernel.pointer(store.pointer).dtype
        value, target = f"v{store.value}", self._lvalue(store)
        if store.mode != "set":
            value = self._updated(store, dtype, target)
        if dtype.name in HALF:
            value = f"as_store_{HALF[dtype.name]}({value})"
        conditions = ["l < left"] if self.partial else []
        conditions += [] if store.mask is None else [f"v{store.mask}"]
        guard = f"if ({_all(conditions)}) " if conditions else ""
        self._line(f"{guard}{target} = {value};")

    def _updated(self, store: Store, dtype: DType, target: str) -> str:
        old = f"as_load_{HALF[dtype.name]}({target})" if dtype.name in HALF else target
        ops = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
        text = c_scalar(ops[store.mode], dtype, [old, f"v{store.value}"])
        return f"as_round_{HALF[dtype.name]}({text})" if dtype.name in HALF else text


def declared(kernel: Kernel) -> str:
    """The parameters of a kernel, as C declares them."""
    return ", ".join(map(_declared, kernel.params)) or "void"


def _declared(param: PointerParam | SizeParam | ScalarParam) -> str:
    match param:
        case PointerParam(name=name, dtype=dtype, access=access):
            const = "const " if access == "read" else ""
            return f"{const}{STORAGE[dtype.name]}_u *{name}"
        case SizeParam(name=name, in_memory=in_memory):
            return f"const i64 *{name}" if in_memory else f"i64 {name}"
        case ScalarParam(name=name, dtype=dtype):
            return f"{'f64' if dtype.is_floating else 'i64'} {name}"


def moment_name(name: str, kernel: Kernel, moment: Moment) -> str:
    """The name of the function that sums a moment again, of a kernel that is printed under a name;
    the moment's siblings have the same."""
    return f"{name}_moment{kernel.elements.index(siblings(kernel, moment)[0])}"


def siblings(kernel: Kernel, moment: Moment) -> list[Moment]:
    """The moments of the same cells in the same order: one walk over the fiber gives all."""
    key = moment.order, moment.arg, moment.dtype
    moments = [element for element in kernel.elements if isinstance(element, Moment)]
    return [each for each in moments if (each.order, each.arg, each.dtype) == key]


def _all(conditions: list[str]) -> str:
    """That all hold, without a branch."""
    return " & ".join(f"({c})" for c in conditions) if len(conditions) > 1 else conditions[0]


def _factors(dim: Dim) -> Monomial | None:
    """What a product is made of, but for its number; None of a sum."""
    if isinstance(dim, int):
        return ()
    return next(iter(dim.terms)) if len(dim.terms) == 1 and not dim.constant else None


def _symbol_name(symbol: Symbol) -> str:
    return symbol.name
