"""Sizes and computed numbers beside numpy's scalars, whose arithmetic is numpy's.

In: an operator and two operands. Out: what `numbers.py` makes where numpy's number is Python's in
another class; else what numpy makes of these very values, which is guarded. A float64 that is
computed knows that it is numpy's (``ScalarValue.is_wide``); an int64 is Python's int here.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.numpy_scalars import (
    float64,
    is_narrow,
    is_numpy_number,
    is_wide,
    numpy_bool,
    plain_number,
    wraps,
)
from anyshape.capture.heap.values import PROXIES, ScalarValue, SizeValue
from anyshape.capture.interpreter.operators import COMPARISONS
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.sizes import numbers


def binary(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    """`a op b`."""
    if not (_is_numpys(a) or _is_numpys(b)):
        return numbers.binary(recorder, op, a, b)
    if _is_another_number(op, a, b):
        why = f"{op} with a number of numpy's"
        values = (at_its_value(recorder, x, why) for x in (a, b))
        return numbers.INTEGER_ALL[op](*values)
    made = numbers.binary(recorder, op, a, b)
    if numbers.is_float(made):  # a narrow float gives one only beside a wide one
        return ScalarValue(made.scalar, float, is_wide=True)
    return made


def compare(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    """`a op b`: beside a number of numpy's a bool of numpy's, which is guarded. Narrow floats round
    what they are compared with."""
    if not (_is_numpys(a) or _is_numpys(b)):
        return numbers.compare(recorder, op, a, b)
    if is_narrow(a) or is_narrow(b):
        values = (at_its_value(recorder, x, "a comparison with numpy's") for x in (a, b))
        return COMPARISONS[op][2](*values)
    plain = (x if type(x) in PROXIES else plain_number(x) for x in (a, b))
    made = numbers.compare(recorder, op, *plain)
    return made if made is NotImplemented else numpy_bool(numbers.decide(recorder, made))


def class_of(value: ScalarValue) -> type:
    """The class that the program sees."""
    return type(float64(0.0)) if value.is_wide else value.kind


def at_its_value(recorder: Recorder, value: Any, why: str) -> Any:
    """A number as it is in this call, which is guarded."""
    if type(value) is SizeValue:
        return recorder.specialize(value.expr, why)
    if type(value) is not ScalarValue:
        return value
    if value.kind is bool:
        return numbers.decide(recorder, value)
    number = recorder.specialize_scalar(value.scalar, why)
    return float64(number) if value.is_wide else number


def _is_numpys(value: Any) -> bool:
    return value.is_wide if type(value) is ScalarValue else is_numpy_number(value)


def _is_float64(value: Any) -> bool:
    return value.is_wide if type(value) is ScalarValue else is_wide(value)


def _is_another_number(op: str, a: Any, b: Any) -> bool:
    """Is the number another one than Python's? A narrow float rounds what is Python's beside it,
    integers wrap; numpy divides by zero, and has powers of its own."""
    if wraps(a) or wraps(b) or op == "<<":
        return True
    if (is_narrow(a) and not _is_float64(b)) or (is_narrow(b) and not _is_float64(a)):
        return True
    return op in ("//", "%", "divmod", "**") or (op == "/" and (type(b) in PROXIES or not b))
