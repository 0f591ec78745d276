"""C texts of single elements: types, constants, conversions, and how reductions start and combine.

In: dtypes and elements of kernels. Out: expressions that use the helpers of ``prelude.py``; the
table of scalar operators is ``scalar.py``, the loops around all this are ``c.py``.
"""

from __future__ import annotations

import math

from anyshape.ir.dtypes import DType, bool_
from anyshape.ir.loops import Element, Reduce, Scan
from anyshape.nouns import frozen
from anyshape.targets.cpu.prelude import JOIN_LANES, JOINS
from anyshape.targets.scalar import C_SUFFIXES, c_scalar

C_TYPES = {
    "bool": "_Bool", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64",
}  # fmt: skip
STORAGE = C_TYPES | {"bool": "u8", "float16": "u16", "bfloat16": "u16"}
HALF = {"float16": "f16", "bfloat16": "bf16"}


ALONE = "static __attribute__((noinline, noipa)) "
"""What a function begins with that others in the file call: gcc 12 takes one with OpenMP's loops
that calls ``exp`` and walks backwards for a function without effects, and leaves out its calls."""
JOINED_TRUTHS = {"any": "any", "max": "any", "all": "all", "min": "all"}
"""How truths are combined."""
TRUTHS_OPERATORS = {"any": "|", "all": "&"}
"""The same in C."""


def c_number(value: float, dtype: DType) -> str:
    """A constant of the dtype."""
    if dtype is bool_:
        return "1" if value else "0"
    if not dtype.is_floating:
        if value == -(1 << 63):
            return "(-9223372036854775807LL - 1)"
        return f"{value}LL" if abs(value) >= 1 << 31 else str(value)
    suffix = "" if dtype.name == "float64" else "f"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    if suffix and abs(value) > 3.4028235677973366e38:
        return f"{'-' if value < 0 else ''}__builtin_inff()"
    return f"{float(value)!r}{suffix}"


def c_cast(text: str, source: DType, target: DType) -> str:
    """torch's conversion from one dtype to another."""
    if target is bool_:
        return f"({text} != 0)"
    if source is bool_ and target.is_floating:  # GCC makes no vectors of the plain conversion
        return f"({text} ? {c_number(1, target)} : {c_number(0, target)})"
    if target.name in HALF:
        return f"as_round_{HALF[target.name]}((f32){text})"
    kind = C_TYPES[target.name]
    if source.is_floating and not target.is_floating:
        wide = "int" if target.name in ("int64", "uint8") else "int32"
        return f"({kind})as_{wide}_{C_SUFFIXES[source.name]}({text})"
    return f"({kind}){text}"


def c_identity(element: Element) -> str:
    """What a reduction starts from."""
    assert isinstance(element, (Reduce, Scan))
    dtype = element.dtype
    match element.combine:
        case "sum" | "any":
            return "0"
        case "prod" | "all":
            return "1"
    if dtype.is_floating:
        return c_number(-math.inf if element.combine == "max" else math.inf, dtype)
    if dtype is bool_:
        return "0" if element.combine == "max" else "1"
    bits = 8 * dtype.size_bytes
    low = -(1 << bits - 1) if dtype.signed else 0
    high = (1 << bits - dtype.signed) - 1
    return c_number(low if element.combine == "max" else high, dtype)


def c_combine(element: Element, total: str, value: str) -> str:
    """`total` with one more; as the second operand it is the one that max and min look at most."""
    assert isinstance(element, (Reduce, Scan))
    ops = {
        "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum",
        "any": "logical_or", "all": "logical_and",
    }  # fmt: skip
    return c_scalar(ops[element.combine], element.dtype, [value, total])


@frozen
class Join:
    """A helper of the prelude that combines ``lanes`` accumulators into one; 0: as many eights as
    it is told."""

    name: str
    lanes: int

    def call(self, accumulators: str, lanes: int) -> str:
        """Of so many."""
        return f"{self.name}({accumulators}{'' if self.lanes else f', {lanes}'})"


def c_join(element: Element, lanes: int) -> Join | None:
    """The helper for so many accumulators of this reduction, or for the most that are fewer; None
    where its type has none."""
    assert isinstance(element, Reduce)
    if element.dtype is bool_ and element.combine in JOINED_TRUTHS:
        return Join(f"as_join_{JOINED_TRUTHS[element.combine]}", 0)
    kind = C_TYPES[element.dtype.name]
    known = [count for count in JOIN_LANES.get(kind, ()) if count <= lanes]
    if not known or element.combine not in JOINS:
        return None
    return Join(f"as_join_{element.combine}_{kind}_{max(known)}", max(known))


def total_type(element: Element) -> str:
    """Blocks of float32 sums are added in double, and so are running sums and products, as in
    ATen.
    """
    assert isinstance(element, (Reduce, Scan))
    if element.combine in ("sum", "prod") and element.dtype.is_floating:
        return "f64"
    return C_TYPES[element.dtype.name]
