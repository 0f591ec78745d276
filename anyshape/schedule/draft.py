"""A kernel under construction: elements are interned as they are made, with a few folds.

In: scalar operators, as bodies of operator rows call them (``b.add(x, 1.0)``). Out: the element
list of a kernel, whose indices are still expressions of the graph's space. ``Cell`` is what bodies
hold.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import field
from typing import Any, Literal, TypeAlias

from anyshape.ir.dtypes import DType, bool_, float32, float64, int64, promote_two
from anyshape.ir.loops import (
    SCALAR_OPS,
    Const,
    Element,
    Load,
    Moment,
    Op,
    Order,
    Position,
    Read,
    Reduce,
    Scan,
)
from anyshape.ir.scalars import Operand as HostNumber
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.nouns import frozen, mutable
from anyshape.symbolic import Dim, Expr, Space, Symbol

Number: TypeAlias = "int | float | bool"


@frozen
class Cell:
    """One element of a draft, as a body sees it: it knows its dtype and may be used with
    operators.
    """

    draft: Draft
    number: int
    dtype: DType

    def __add__(self, other: Operand) -> Cell:
        return self.draft.op("add", self, other)

    def __radd__(self, other: Operand) -> Cell:
        return self.draft.op("add", other, self)

    def __sub__(self, other: Operand) -> Cell:
        return self.draft.op("sub", self, other)

    def __rsub__(self, other: Operand) -> Cell:
        return self.draft.op("sub", other, self)

    def __mul__(self, other: Operand) -> Cell:
        return self.draft.op("mul", self, other)

    def __rmul__(self, other: Operand) -> Cell:
        return self.draft.op("mul", other, self)

    def __truediv__(self, other: Operand) -> Cell:
        return self.draft.op("div", self, other)

    def __rtruediv__(self, other: Operand) -> Cell:
        return self.draft.op("div", other, self)

    def __neg__(self) -> Cell:
        return self.draft.op("neg", self)

    def __lt__(self, other: Operand) -> Cell:
        return self.draft.op("lt", self, other)

    def __le__(self, other: Operand) -> Cell:
        return self.draft.op("le", self, other)

    def __gt__(self, other: Operand) -> Cell:
        return self.draft.op("gt", self, other)

    def __ge__(self, other: Operand) -> Cell:
        return self.draft.op("ge", self, other)


Operand: TypeAlias = "Cell | HostNumber"


def computed(dtype: DType) -> DType:
    """The dtype that values of ``dtype`` are computed in: floats below float32 in float32."""
    return float32 if dtype.is_floating and dtype.size_bytes < 4 else dtype


@mutable
class Symbols:
    """Axis and loaded-integer symbols of a graph's space, shared by all kernels of one schedule."""

    space: Space
    axes: list[Expr] = field(default_factory=list)
    loaded: list[Expr] = field(default_factory=list)

    def axis(self, number: int) -> Expr:
        """The symbol of the loop variable with this number."""
        while len(self.axes) <= number:
            self.axes.append(self.space.fresh("axis"))
        return self.axes[number]

    def integer(self, number: int) -> Expr:
        """The symbol that stands for loaded integer ``number`` of a kernel, at least 0."""
        while len(self.loaded) <= number:
            self.loaded.append(self.space.fresh("loaded"))
        return self.loaded[number]


@mutable(eq=False)
class Draft:
    """The elements of one kernel. Methods named as scalar operators make elements
    (``draft.exp(x)``).

    ``scalars`` are the host numbers it reads, in order of first use; ``integers`` says which
    element a loaded-integer symbol is.
    """

    symbols: Symbols
    elements: list[Element] = field(default_factory=list)
    numbers: dict[Element, int] = field(default_factory=dict)
    scalars: list[HostNumber] = field(default_factory=list)
    integers: dict[Symbol, int] = field(default_factory=dict)

    def intern(self, element: Element) -> Cell:
        """The element, interned."""
        number = self.numbers.get(element)
        if number is None:
            number = self.numbers[element] = len(self.elements)
            self.elements.append(element)
        return Cell(self, number, element.dtype)

    def element(self, cell: Cell) -> Element:
        return self.elements[cell.number]

    def __getattr__(self, name: str) -> Callable[..., Cell]:
        if name in SCALAR_OPS:
            return lambda *args: self.op(name, *args)
        raise AttributeError(name)

    def op(self, name: str, *args: Operand) -> Cell:
        """A scalar operator on cells and numbers; numbers take the dtype of the first cell."""
        if name == "where":
            condition, a, b = args
            return self.where(condition, a, b)
        like = next((a.dtype for a in args if a.__class__ is Cell), None)
        if like is None:
            like = float32 if any(isinstance(a, float) for a in args) else int64
        cells = [a if a.__class__ is Cell else self.literal(a, like) for a in args]
        if len(cells) == 2 and cells[0].dtype is not cells[1].dtype:
            cells = _alike(self, cells)
        dtype = bool_ if SCALAR_OPS[name].result == "bool" else cells[0].dtype
        if dtype is bool_ and cells[0].dtype is bool_ and name in ("eq", "ne", "neg"):
            name = {"eq": "eq", "ne": "logical_xor", "neg": "logical_not"}[name]
        return self.intern(Op(name, tuple(c.number for c in cells), dtype))

    def where(self, condition: Operand, a: Operand, b: Operand) -> Cell:
        """``a`` where the condition holds, else ``b``."""
        holds = self.cast(condition, bool_)
        like = next((x.dtype for x in (a, b) if x.__class__ is Cell), None)
        if like is None:
            like = float32 if isinstance(a, float) or isinstance(b, float) else int64
        cells = [x if x.__class__ is Cell else self.literal(x, like) for x in (a, b)]
        if cells[0].dtype is not cells[1].dtype:
            cells = _alike(self, cells)
        if cells[0].number == cells[1].number:
            return cells[0]
        known = self.element(holds)
        if known.__class__ is Const:
            return cells[0] if known.value else cells[1]
        numbers = (holds.number, cells[0].number, cells[1].number)
        return self.intern(Op("where", numbers, cells[0].dtype))

    def cast(self, cell: Operand, dtype: DType) -> Cell:
        """The cell as another dtype, with torch's conversions."""
        if cell.__class__ is not Cell:
            return self.literal(cell, dtype)
        if cell.dtype is dtype:
            return cell
        element = self.element(cell)
        if element.__class__ is Const:
            return self.const(_convert(_as_stored(element.value, cell.dtype), dtype), dtype)
        if element.__class__ is Op and element.op == "cast":
            source = self.elements[element.args[0]]
            if computed(source.dtype) is cell.dtype and source.dtype is dtype:
                return Cell(self, element.args[0], dtype)  # widened and narrowed again
        return self.intern(Op("cast", (cell.number,), dtype))

    def const(self, value: Number, dtype: DType) -> Cell:
        return self.intern(Const(_convert(value, dtype), dtype))

    def literal(self, value: Operand, dtype: DType) -> Cell:
        """A Python number, a size or a host scalar as an element."""
        if isinstance(value, Cell):
            return self.cast(value, dtype)
        if isinstance(value, (bool, int, float)):
            return self.const(value, dtype)
        if isinstance(value, Expr):
            return self.cast(self.position(value), dtype)
        return self.cast(self._read(value), dtype)

    def _read(self, scalar: HostNumber) -> Cell:
        if scalar not in self.scalars:
            self.scalars.append(scalar)
        return self.intern(Read(f"x{self.scalars.index(scalar)}", scalar_dtype(scalar)))

    def position(self, index: Dim) -> Cell:
        """The value of an index expression."""
        if isinstance(index, int):
            return self.const(index, int64)
        if index.symbol in self.integers:
            return Cell(self, self.integers[index.symbol], int64)
        return self.intern(Position(index, int64))

    def integer(self, cell: Cell) -> Dim:
        """The symbol by which an index reads this element."""
        cell = self.cast(cell, int64)
        element = self.element(cell)
        if element.__class__ is Const:
            return int(element.value)
        if element.__class__ is Position:
            return element.index
        expr = self.symbols.integer(cell.number)
        assert expr.symbol is not None
        self.integers[expr.symbol] = cell.number
        return expr

    def load(self, pointer: str, index: Dim, dtype: DType, mask: Cell | None = None) -> Cell:
        return self.intern(Load(pointer, index, dtype, None if mask is None else mask.number))

    def reduce(self, combine: str, cell: Cell) -> Cell:
        return self.intern(Reduce(combine, cell.number, cell.dtype))

    def moment(
        self, order: Order, part: Literal["mean", "squares"], cell: Cell, *given: Cell
    ) -> Cell:
        near = tuple([each.number for each in given])
        return self.intern(Moment(order, part, cell.number, near, cell.dtype))

    def scan(self, combine: str, cell: Cell) -> Cell:
        return self.intern(Scan(combine, cell.number, cell.dtype))


def _alike(draft: Draft, cells: list[Cell]) -> list[Cell]:
    dtype = promote_two(cells[0].dtype, cells[1].dtype)
    return [draft.cast(cell, computed(dtype)) for cell in cells]


def _convert(value: Number, dtype: DType) -> Number:
    if dtype.is_floating:
        return rounded_number(float(value), dtype)
    if dtype is bool_:
        return bool(value)
    return _wrapped(_truncated(value, dtype), dtype)


def _as_stored(value: Number, dtype: DType) -> Number:
    """The constant as an element of that dtype is: float32 ones are rounded where printed."""
    if dtype is float32 and math.isfinite(value):
        return ctypes.c_float(value).value
    return value


def _truncated(value: Number, dtype: DType) -> int:
    """As the processor does it, and so kernels (``c_texts.c_cast``): what is out of range is the
    smallest integer of 64 bits, or of 32 bits for the dtypes that are converted by way of these."""
    if not isinstance(value, float):
        return int(value)
    bits = 64 if dtype.name in ("int64", "uint8") else 32
    limit = 1 << bits - 1
    return int(value) if -limit <= value < limit else -limit


def rounded_number(value: float, dtype: DType) -> float:
    """The float as float16 or bfloat16 holds it; wider ones are rounded where they are printed."""
    if (
        dtype.size_bytes > 2
        or not math.isfinite(value)
        or dtype.name not in ("float16", "bfloat16")
    ):
        return value
    if dtype.name == "float16":
        return (
            struct.unpack("e", struct.pack("e", value))[0]
            if abs(value) < 65520
            else value * math.inf
        )
    (bits,) = struct.unpack("I", struct.pack("f", value)) if abs(value) < 3.4e38 else (0x7F800000,)
    if bits == 0x7F800000:
        return value * math.inf
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("f", struct.pack("I", bits))[0]


def _wrapped(value: int, dtype: DType) -> int:
    """The integer as the dtype holds it."""
    bits = 8 * dtype.size_bytes
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.signed and value >> (bits - 1) else value


def scalar_dtype(scalar: object) -> DType:
    """The dtype of a host number; conditions on sizes are bools."""
    kind = scalar.kind if isinstance(scalar, (Scalar, ScalarInput)) else "bool"
    return {"float": float64, "int": int64, "bool": bool_}[kind]


Body: TypeAlias = Callable[..., Any]
