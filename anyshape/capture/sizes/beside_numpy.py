"""Sizes and computed numbers beside numpy's scalars, whose arithmetic is numpy's.

In: an operator and two operands. Out: what `numbers.py` makes where numpy's number is Python's in
another class; else what numpy makes of these very values, which is guarded. What is computed knows
of which class of numpy's it is (``ScalarValue.is_wide``, ``SizeValue.kind``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anyshape.capture.heap.breaks import broken
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
from anyshape.symbolic import Condition, Dim, Expr, all_of, ge, lt, maximum, minimum


def binary(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    """`a op b`."""
    if not (_is_numpys(a) or _is_numpys(b)):
        return numbers.binary(recorder, op, a, b)
    if _is_another_number(op, a, b) or not _are_exact(recorder, op, a, b):
        return _at_these_values(recorder, op, a, b)
    made = numbers.binary(recorder, op, a, b)
    if numbers.is_float(made):  # a narrow float gives one only beside a wide one
        return ScalarValue(made.scalar, float, is_wide=True)
    number = numbers.dim(made)
    if number is None or type(made) is bool:
        return made
    kind = _integer_class(a, b)
    if not _has_bits(recorder, number, _bits_of(kind)):
        return _at_these_values(recorder, op, a, b)
    return numbers.size(number, kind)


def unary(recorder: Recorder, op: str, a: Any) -> Any:
    """`op a`: of the least integer of a class there is no negative one."""
    if type(a) is SizeValue and a.kind is not int and op in ("-", "abs"):
        if not _has_bits(recorder, -a.expr, _bits_of(a.kind)):
            return numbers.UNARY_NATIVE[op](at_its_value(recorder, a, f"{op} of numpy's"))
    return numbers.unary(recorder, op, a)


def _at_these_values(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    why = f"{op} with a number of numpy's"
    return numbers.INTEGER_ALL[op](*(at_its_value(recorder, x, why) for x in (a, b)))


def _integer_class(a: Any, b: Any) -> type:
    """Of what two integers make, of which one is numpy's: Python's has no class of its own."""
    ours = (x if type(x) is ScalarValue else class_of(x)() for x in (a, b))
    zeros: list[Any] = [x for x in ours if is_numpy_number(x, "i")]
    return type(zeros[0] + zeros[-1])


def _are_exact(recorder: Recorder, op: str, a: Any, b: Any) -> bool:
    """Does numpy compute with these very integers? A quotient is one of floats, and Python's
    number has to fit the class beside it."""
    if not (numbers.is_int(a) and numbers.is_int(b)):
        return True
    bits = FLOAT_DIGITS if op == "/" else _bits_of(_integer_class(a, b))
    dims = (numbers.dim(x) for x in (a, b) if op == "/" or not _is_numpys(x))
    return all(_has_bits(recorder, number, bits) for number in dims if number is not None)


def _bits_of(kind: type) -> int:
    return 8 * int(kind().itemsize)


def _has_bits(recorder: Recorder, number: Dim, bits: int) -> bool:
    """Is a number with its sign one of so many bits? Guarded; where data decides, it is checked
    while the program runs. Sizes that have all less than 32 are relied on once."""
    bound = 2 ** (bits - 1)
    within = all_of(ge(number, -bound), lt(number, bound))
    known = recorder.cx.known(within)
    if known is not None:
        return known
    if recorder.cx.hint(within) is None:
        return _checked(recorder, within)
    if isinstance(number, Expr) and not recorder.is_dropped:
        for symbol in sorted(number.symbols, key=lambda each: each.name):
            recorder.decide(lt(symbol.expr, USUAL))
    return recorder.decide(within)


def _checked(recorder: Recorder, condition: Condition | bool) -> bool:
    if recorder.depth:
        raise broken("fork", "an integer of numpy's that data may make wrap")
    recorder.call("number", "check", (condition,))
    return True


def math_call(recorder: Recorder, fn: Any, values: Sequence[Any]) -> Any:
    """`math.sqrt(n)` and the like; None where the values are needed. numpy's integers are floats
    to ``math.floor`` and ``math.ceil``, and ``math.trunc`` refuses them."""
    number = values[0] if values else None
    if fn in ROUNDED and type(number) is SizeValue and number.kind is not int:
        if fn is math.trunc or not _has_bits(recorder, number.expr, FLOAT_DIGITS):
            return None
    return numbers.math_call(recorder, fn, values)


def extremum(recorder: Recorder, name: str, values: Sequence[Any]) -> Any:
    """`min` or `max` of ints, or of floats, of one class with symbolic ones among them;
    NotImplemented for anything else."""
    kind = class_of(values[0])
    if any(class_of(value) is not kind for value in values):
        return NotImplemented
    if all(
        type(value) is SizeValue or is_numpy_number(value, "i") or type(value) is int
        for value in values
    ):
        function = minimum if name == "min" else maximum
        dims = [found for found in map(numbers.dim, values) if found is not None]
        return numbers.size(recorder.cx.facts.simplify(function(*dims)), kind)
    if not all(
        type(value) is float or is_wide(value) or numbers.is_float(value) for value in values
    ):
        return NotImplemented
    best, *others = values
    for other in others:
        operands = (numbers.operand_of(x) for x in (best, other))
        best = numbers.function_of(recorder, "float", name, *operands)
    return best if kind is float else ScalarValue(best.scalar, float, is_wide=True)


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


def class_of(value: Any) -> type:
    """The class of a number that the program sees."""
    if type(value) is SizeValue:
        return value.kind
    if type(value) is not ScalarValue:
        return type(value)
    return type(float64(0.0)) if value.is_wide else value.kind


def at_its_value(recorder: Recorder, value: Any, why: str) -> Any:
    """A number as it is in this call, which is guarded."""
    if type(value) is SizeValue:
        return value.kind(recorder.specialize(value.expr, why))
    if type(value) is not ScalarValue:
        return value
    if value.kind is bool:
        return numbers.decide(recorder, value)
    number = recorder.specialize_scalar(value.scalar, why)
    return float64(number) if value.is_wide else number


def _is_numpys(value: Any) -> bool:
    if type(value) is SizeValue:
        return value.kind is not int
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
    if op not in ("/", "//", "%", "divmod", "**"):
        return False
    if type(b) in PROXIES or not b or op == "divmod":
        return True
    of_integers = numbers.is_int(a) and numbers.is_int(b)
    return op != "/" and not (of_integers and (op != "**" or 0 < b <= MOST_TIMES))


MOST_TIMES = 2
"""To this power a size has less than 64 bits."""
USUAL = 2**31
"""Sizes below it need no further guard for most of what is computed of them."""
ROUNDED = math.trunc, math.floor, math.ceil
FLOAT_DIGITS = 54
"""Bits of an integer, with its sign, that a float holds."""
