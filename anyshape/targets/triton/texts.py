"""Types, numbers, casts and reductions as Triton, for the printer of kernels.

In: dtypes, values, texts of operands. Out: Triton text. Read on: ``kernel.py``.
"""

from __future__ import annotations

import math

from anyshape.ir.dtypes import DType, bool_
from anyshape.ir.loops import Element, Reduce, Scan

CAPABILITY = "CAPABILITY"
"""The constant that says for which GPUs a kernel is, by their compute capability, as 90; 0 where
instructions of one kind of GPU are not known. From ``OVERLAPPING`` on a kernel may begin while the
one before it in the stream ends: it waits before it touches memory, and then the next one may
begin."""
OVERLAPPING = 90
TYPES = {"bool": "int1", "float16": "float16", "bfloat16": "bfloat16"}
_EXTREMES = ("float32", "float64", "int32", "int64")
ATOMICS = {"sum": ("float16", "bfloat16", *_EXTREMES), "max": _EXTREMES, "min": _EXTREMES}
"""The dtypes that Triton combines in memory, by the mode of a write."""


def refuse_atomic(mode: str, dtype: DType) -> None:
    """Raises NotImplementedError for what no atomic operation does."""
    if mode != "set" and dtype.name not in ATOMICS.get(mode, ()):
        raise NotImplementedError(f"{mode} of {dtype.name} written to indices that may repeat")


def type_text(dtype: DType) -> str:
    return f"tl.{TYPES.get(dtype.name, dtype.name)}"


def accumulator(dtype: DType) -> str:
    return "tl.int32" if dtype is bool_ else type_text(dtype)


def number_text(value: float, dtype: DType) -> str:
    if dtype is bool_:
        return "1" if value else "0"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def cast_text(text: str, source: DType, target: DType) -> str:
    if target is bool_:
        return f"({text} != 0)"
    if source.is_floating and target.name == "uint8":
        return f"{text}.to(tl.int64).to(tl.uint8)"
    return f"{text}.to({type_text(target)})"


def identity(element: Reduce | Scan | Element) -> str:
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


def combined_text(element: Reduce, a: str, b: str) -> str:
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
