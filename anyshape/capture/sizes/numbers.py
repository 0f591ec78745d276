"""Python's numbers with symbols in them: ints are expressions, floats and bools are scalars, with
CPython's own semantics.

In: an operator and operands, at least one a `SizeValue` or `ScalarValue`. Out: an int, a proxy,
or `NotImplemented` where Python would try something else. Nothing is guarded except what
CPython itself would decide (division by zero).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.numpy_scalars import float64, is_square_root, plain_number
from anyshape.capture.heap.values import PROXIES, ScalarValue, SizeValue
from anyshape.capture.interpreter.operators import COMPARISONS
from anyshape.capture.recording.computed_numbers import bound_symbol, float_of
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.sizes import bits
from anyshape.ir.scalars import BITS, MATH_OF_ONE, MATH_OF_TWO, Kind, Operand, Scalar, ScalarInput
from anyshape.symbolic import (
    AllOf,
    AnyOf,
    Condition,
    Dim,
    Expr,
    Relation,
    all_of,
    any_of,
    eq,
    floordiv,
    ge,
    gt,
    indicator,
    le,
    lt,
    maximum,
    mod,
    ne,
)

CONDITIONS = (Relation, AllOf, AnyOf)
INT_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": floordiv,
    "%": mod,
}
RELATIONS: Mapping[str, Callable[[Dim, Dim], Any]] = {
    "<": lt,
    "<=": le,
    "==": eq,
    "!=": ne,
    ">": gt,
    ">=": ge,
}
SCALAR_NAMES: Mapping[str, str] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "<": "lt",
    "<=": "le",
    "==": "eq",
    "!=": "ne",
    ">": "gt",
    ">=": "ge",
}
MATH: Mapping[Any, str] = {getattr(math, name): name for name in (*MATH_OF_ONE, *MATH_OF_TWO)} | {
    math.pow: "pow_of_floats"
}
WHOLE = frozenset({"floor", "ceil", "trunc"})
TESTS = frozenset({"isnan", "isinf", "isfinite"})
LARGEST = 700.0  # e to this power is a float
LONGEST = 2.0**62  # an int this long is a symbol's


def _not_null(recorder: Recorder, a: Operand, b: Operand) -> Any:
    return compare(recorder, "!=", wrapped(b), 0)


def _within(bound: float, op: str = "<=") -> Callable[..., Any]:
    return lambda recorder, a: compare(recorder, op, unary(recorder, "abs", wrapped(a)), bound)


def _above(op: str, bound: float) -> Callable[..., Any]:
    return lambda recorder, a, *rest: compare(recorder, op, wrapped(a), bound)


# Where a function raises nothing; the functions that are not named never do.
SAFE: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("truediv", "floordiv", "mod", "fmod"), _not_null),
    **dict.fromkeys(("exp", "expm1", "sinh", "cosh"), _within(LARGEST)),
    **dict.fromkeys(("sin", "cos", "tan"), _within(math.inf, "<")),
    **dict.fromkeys(("asin", "acos"), _within(1.0)),
    **dict.fromkeys(("log", "log2", "log10"), _above(">", 0)),
    **dict.fromkeys(("int", "round", *WHOLE), _within(LONGEST)),
    "sqrt": _above(">=", 0),
    "log1p": _above(">", -1),
    "acosh": _above(">=", 1),
    "pow": _above(">", 0),
    "pow_of_floats": _above(">", 0),
    "rshift": lambda recorder, a, many: compare(recorder, ">=", wrapped(many), 0),
}


def size(value: Dim, kind: type = int) -> Any:
    """An int as it lies on the virtual stack, of this class."""
    if isinstance(value, Expr):
        return SizeValue(value, kind)
    return value if kind is int else kind(value)


def truth_value(value: Condition | bool) -> Any:
    """A bool as it lies on the virtual stack."""
    return value if isinstance(value, bool) else ScalarValue(value, bool)


def operand(value: Any) -> Operand | None:
    """A number as an operand of scalars; None for anything else."""
    if type(value) is SizeValue:
        return value.expr
    if type(value) is ScalarValue:
        return value.scalar
    number = plain_number(value)
    return None if isinstance(number, complex) else number


def operand_of(value: Any) -> Operand:
    """The operand that a number is."""
    found = operand(value)
    assert found is not None
    return found


def wrapped(value: Operand) -> Any:
    """An operand as it lies on the virtual stack."""
    if isinstance(value, Expr):
        return SizeValue(value)
    if isinstance(value, (Scalar, ScalarInput)):
        return ScalarValue(value, bool if value.kind == "bool" else float)
    return ScalarValue(value, bool) if isinstance(value, CONDITIONS) else value


def is_int(value: Any) -> bool:
    """Whether a value on the virtual stack is an int (bools count)."""
    if type(value) is ScalarValue:
        return value.kind is bool
    return type(value) is SizeValue or isinstance(plain_number(value), int)


def dim(value: Any) -> Dim | None:
    """The expression of an int; None for a symbolic bool or float."""
    if type(value) is SizeValue:
        return value.expr
    number = plain_number(value)
    return int(number) if isinstance(number, int) else None


def binary(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    """`a op b`."""
    left, right = operand(a), operand(b)
    if left is None or right is None:
        return NotImplemented
    if is_int(a) and is_int(b):
        made = _int_binary(recorder, op, a, b)
        if made is not NotImplemented:
            return made
    if op == "divmod":
        return (binary(recorder, "//", a, b), binary(recorder, "%", a, b))
    if op in ("/", "//", "%") and dim(b) is not None:
        _not_zero(recorder, b, op)
    name = SCALAR_NAMES.get(op)
    if name is None:
        raise broken("size-needed", f"the operator {op}")
    return function_of(recorder, "float", name, left, right)


def _at_this_value(recorder: Recorder, scalar: Scalar) -> Any:
    """The function of the numbers as they are in this call. What Python raises for them says
    nothing of others."""
    try:
        return recorder.specialize_scalar(scalar, scalar.op)
    except (ArithmeticError, ValueError):
        for number in scalar.args:
            if isinstance(number, Expr):
                recorder.specialize(number, scalar.op)
            elif isinstance(number, (Scalar, ScalarInput)):
                recorder.specialize_scalar(number, scalar.op)
        raise


def function_of(recorder: Recorder, kind: Kind, name: str, *operands: Operand) -> Any:
    """A function of numbers, some of them symbolic. Where Python may raise, a guard says that the
    arguments are such as at the first call; where data decides them, a node computes the result,
    and the segment has not happened if it cannot."""
    scalar = Scalar(kind, name, operands)
    safe = SAFE[name](recorder, *operands) if name in SAFE else True
    if safe is not True:
        if not recorder.is_known(scalar):
            if recorder.is_dropped:
                raise broken("fork", f"{name} of data")
            operands = tuple([_where_it_matters(recorder, each) for each in operands])
            return recorder.wrap(recorder.call("number", name, operands))
        if not recorder.is_dropped and not decide(recorder, safe):
            return _at_this_value(recorder, scalar)
    if kind == "int":
        return SizeValue(bound_symbol(recorder, scalar))
    return ScalarValue(scalar, bool) if kind == "bool" else float_of(recorder, scalar)


def _where_it_matters(recorder: Recorder, operand: Operand) -> Operand:
    """On a side that data may not take, 1: no function raises for it."""
    if recorder.premise is None:
        return operand
    return Scalar(
        "int" if is_int(wrapped(operand)) else "float", "select", (recorder.premise, operand, 1)
    )


def _int_binary(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    left, right = dim(a), dim(b)
    if left is None or right is None:
        return _bool_binary(recorder, op, a, b)
    if op in ("//", "%", "divmod", "/"):
        _not_zero(recorder, b, op)
    if op in INT_BINARY:
        return size(recorder.cx.facts.simplify(INT_BINARY[op](left, right)))
    if op == "divmod":
        return size(floordiv(left, right)), size(mod(left, right))
    if op == "**" and isinstance(right, int) and 0 <= right <= 8:
        return size(left**right)
    if op == "<<" and isinstance(right, int) and 0 <= right < 63:
        return size(left * 2**right)
    if op == ">>" and isinstance(right, int) and 0 <= right < 63:
        return size(floordiv(left, 2**right))
    if op == "**" and isinstance(right, int) and right < 0:
        _not_zero(recorder, a, op)
        return function_of(recorder, "float", "pow", left, right)
    if op in ("/",):
        return NotImplemented
    if op in INTEGER_OPERATORS:
        made = _of_bits(recorder, op, left, right)
        if made is not None:
            return made
        value = (
            recorder.specialize(left, f"the operator {op}"),
            recorder.specialize(right, f"the operator {op}"),
        )
        return INTEGER_OPERATORS[op](*value)
    return NotImplemented


def _of_bits(recorder: Recorder, op: str, left: Dim, right: Dim) -> Any:
    """What works on the bits of ints; None where their values are needed."""
    if op in OF_EACH_BIT:
        a, c = (left, right) if isinstance(right, int) else (right, left)
        made = bits.with_constant(op, a, c) if isinstance(c, int) else None
        if made is not None:
            return size(recorder.cx.facts.simplify(made))
        return _worked_out(recorder, OF_EACH_BIT[op], left, right)
    if op == ">>":
        return _worked_out(recorder, "rshift", left, right)
    if not isinstance(left, int) or left <= 0:
        return None
    if op == "<<":
        return _shifted(recorder, left, right)
    exponent = left.bit_length() - 1
    if left != 2**exponent or not exponent or not recorder.is_known(Scalar("int", "pow", (right,))):
        return None
    if not decide(recorder, compare(recorder, ">=", size(right), 0)):
        return None
    return _shifted(recorder, 1, right * exponent)


def _shifted(recorder: Recorder, a: int, many: Dim) -> Any:
    """`a << many` of a constant above 0; None where the sizes' values are needed, as of what has
    more bits than a symbol."""
    if not recorder.is_known(Scalar("int", "lshift", (a, many))):
        return None
    fits = all_of(ge(many, 0), le(many, BITS - a.bit_length()))
    if recorder.is_dropped and recorder.cx.known(fits) is None:
        raise broken("fork", "a shift to the left by a size")
    return _worked_out(recorder, "lshift", a, many) if recorder.decide(fits) else None


def bit_length(recorder: Recorder, value: Expr) -> Any:
    """`n.bit_length()`; None where data decides the number."""
    return _worked_out(recorder, "bit_length", value)


def _worked_out(recorder: Recorder, name: str, *operands: Dim) -> Any:
    """An int that each call works out of its sizes; None where data decides these."""
    if not recorder.is_known(Scalar("int", name, operands)):
        return None
    return function_of(recorder, "int", name, *operands)


OF_EACH_BIT: Mapping[str, str] = {"&": "bit_and", "|": "bit_or", "^": "bit_xor"}
INTEGER_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "**": operator.pow,
}


def _bool_binary(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    """Bools with a condition among them: `&`, `|` and `^` of two bools stay bools; arithmetic
    decides the condition."""
    both = [
        x for x in (a, b) if isinstance(x, bool) or (isinstance(x, ScalarValue) and x.kind is bool)
    ]
    if len(both) == 2 and op in ("&", "|", "^"):
        left, right = (condition_of(x) for x in both)
        if left is not None and right is not None:
            if op == "&":
                return truth_value(all_of(left, right))
            if op == "|":
                return truth_value(any_of(left, right))
            return truth_value(any_of(all_of(left, negated(right)), all_of(negated(left), right)))
    decided = [
        _int_of_bool(recorder, x) if isinstance(x, ScalarValue) and x.kind is bool else x
        for x in (a, b)
    ]
    if any(type(x) in PROXIES for x in decided):
        return binary(recorder, op, *decided)
    return INTEGER_ALL[op](*decided)


INTEGER_ALL: Mapping[str, Callable[[Any, Any], Any]] = {
    **INTEGER_OPERATORS,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "divmod": divmod,
}


def _not_zero(recorder: Recorder, b: Any, op: str) -> None:
    value = dim(b)
    if value is None:
        return
    text = "division by zero" if op == "/" else "integer division or modulo by zero"
    if not recorder.decide_or_check(ne(value, 0), text):
        raise ZeroDivisionError(text)


def compare(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    """`a op b`; a bool where the facts decide."""
    if type(a) not in PROXIES and type(b) not in PROXIES:
        return bool(COMPARISONS[op][2](a, b))
    if type(b) is complex and op in ("==", "!="):
        return op == "!=" if b.imag else compare(recorder, op, a, b.real)
    if type(a) is complex and op in ("==", "!="):
        return compare(recorder, op, b, a)
    left, right = dim(a), dim(b)
    if left is not None and right is not None:
        return known_or(recorder, RELATIONS[op](left, right))
    first, second = operand(a), operand(b)
    if first is None or second is None:
        return NotImplemented
    if op in ("==", "!=") and isinstance(b, bool):
        condition = condition_of(a)
        if condition is not None:
            return known_or(recorder, condition if b is (op == "==") else negated(condition))
    return ScalarValue(Scalar("bool", SCALAR_NAMES[op], (first, second)), bool)


def known_or(recorder: Recorder, condition: Condition | bool) -> Any:
    """The bool where the facts know it, else the symbolic one."""
    known = recorder.cx.known(condition)
    return ScalarValue(condition, bool) if known is None else known


def negated(condition: Condition | bool) -> Condition | bool:
    """`not condition`."""
    return (not condition) if isinstance(condition, bool) else ~condition


def condition_of(value: Any) -> Condition | bool | None:
    """The truth of a number as a condition on sizes; None where it depends on floats or on data."""
    if isinstance(value, bool):
        return value
    if isinstance(value, SizeValue):
        return ne(value.expr, 0)
    if isinstance(value, ScalarValue):
        return _condition_of_scalar(value.scalar)
    return None


def _condition_of_scalar(scalar: Any) -> Condition | bool | None:
    if isinstance(scalar, (bool, *CONDITIONS)):
        return scalar
    if isinstance(scalar, Scalar) and scalar.kind == "bool":
        known = map(_condition_of_scalar, scalar.args)
        parts = [part for part in known if part is not None]
        if len(parts) < len(scalar.args):
            return None
        match scalar.op:
            case "value" | "bool":
                return parts[0]
            case "not":
                return negated(parts[0])
            case "and":
                return all_of(*parts)
            case "or":
                return any_of(*parts)
    return None


def decide(recorder: Recorder, value: Any) -> bool:
    """The truth of a number, guarded on its hint where the facts do not know it."""
    if type(value) not in PROXIES:
        return bool(value)
    condition = condition_of(value)
    if condition is not None:
        return recorder.decide(condition)
    return recorder.decide_scalar(value.scalar)


def unary(recorder: Recorder, op: str, a: Any) -> Any:
    """One operand; conversions to text, hash and native ints specialize a size."""
    if isinstance(a, SizeValue):
        return _unary_size(recorder, op, a)
    scalar = a.scalar
    if op == "bool":
        return a if a.kind is bool else ScalarValue(Scalar("bool", "ne", (scalar, 0)), bool)
    if a.kind is bool:
        if op in AS_NUMBERS:
            number = _int_of_bool(recorder, a)
            if type(number) in PROXIES:
                return unary(recorder, AS_NUMBERS[op], number)
            return UNARY_NATIVE[op](number)
        if op == "not":
            condition = condition_of(a)
            negative = Scalar("bool", "not", (scalar,)) if condition is None else negated(condition)
            return negative if isinstance(negative, bool) else ScalarValue(negative, bool)
        return UNARY_NATIVE[op](decide(recorder, a))
    if op in ("-", "abs", "+"):
        name = {"-": "neg", "abs": "abs", "+": "pos"}[op]
        return ScalarValue(Scalar("float", name, (scalar,)), float, a.is_wide)
    if op == "float":
        return ScalarValue(scalar, float) if a.is_wide else a
    if op in ("int", "round"):
        return function_of(recorder, "int", op, scalar)
    number = recorder.specialize_scalar(scalar, op)
    return UNARY_NATIVE[op](float64(number) if a.is_wide else number)


def _int_of_bool(recorder: Recorder, value: ScalarValue) -> Any:
    """0 or 1: guarded on the hint, an expression or a number of a node where data decides."""
    condition = condition_of(value)
    if condition is None and not (recorder.is_dropped or recorder.is_known(value.scalar)):
        return recorder.wrap(recorder.call("number", "select", (value.scalar, 1, 0)))
    if condition is None or isinstance(condition, bool) or recorder.cx.hint(condition) is not None:
        return int(decide(recorder, value))
    return size(indicator(condition))


AS_NUMBERS: Mapping[str, str] = {
    **{"int": "+", "index": "+", "+": "+", "round": "+"},
    **{"-": "-", "~": "~", "abs": "+", "float": "float"},
}
"""What an operation on a bool is of 0 or 1."""


UNARY_NATIVE: Mapping[str, Callable[[Any], Any]] = {
    "+": operator.pos,
    "-": operator.neg,
    "~": operator.invert,
    "abs": abs,
    "float": float,
    "str": str,
    "repr": repr,
    "hash": hash,
    "complex": complex,
    "round": round,
    "int": int,
    "index": operator.index,
    "not": operator.not_,
}


def _unary_size(recorder: Recorder, op: str, a: SizeValue) -> Any:
    expr = a.expr
    match op:
        case "+":
            return a
        case "round" | "int" | "index_symbolic":
            return a if a.kind is int else SizeValue(expr)
        case "-":
            return size(-expr, a.kind)
        case "~":
            return size(-expr - 1, a.kind)
        case "abs":
            return a if recorder.cx.known(ge(expr, 0)) else size(maximum(expr, -expr), a.kind)
        case "bool":
            return known_or(recorder, ne(expr, 0))
        case "not":
            return known_or(recorder, eq(expr, 0))
        case "float":
            return ScalarValue(Scalar("float", "float", (expr,)), float)
        case _:
            return UNARY_NATIVE[op](a.kind(recorder.specialize(expr, f"{op}()")))


def integer_of(recorder: Recorder, scalar: Scalar) -> Any:
    """An int computed through floats (`int(n * 0.5)`): a symbol of its own, bound to the scalar
    when entered."""
    return SizeValue(bound_symbol(recorder, scalar))


def math_call(recorder: Recorder, fn: Any, values: Sequence[Any]) -> Any:
    """`math.sqrt(n)` and the like on symbolic numbers; None where there is no such row."""
    operands = [found for found in map(operand, values) if found is not None]
    if not operands or len(operands) < len(values):
        return None
    name = MATH.get(fn)
    first, *rest = operands
    if fn is round and len(values) == 2:
        return _rounded(recorder, *values)
    if fn is math.log and len(rest) == 1:
        bottom = math_call(recorder, math.log, values[1:])
        return binary(recorder, "/", math_call(recorder, math.log, values[:1]), bottom)
    number = dim(values[0])
    if is_square_root(fn) and number is not None and recorder.cx.known(ge(number, 0)):
        name = "sqrt"  # of negative numbers it is a NaN where Python's raises
    if name is None or len(rest) != (name in MATH_OF_TWO or fn is math.pow):
        return None
    if name in WHOLE:
        if is_int(values[0]):
            return unary(recorder, "int", values[0])
        quotient = _exact_quotient(recorder, name, first)
        return function_of(recorder, "int", name, first) if quotient is None else quotient
    made = function_of(recorder, "bool" if name in TESTS else "float", name, *operands)
    if is_square_root(fn) and is_float(made):
        return ScalarValue(made.scalar, float, is_wide=True)
    return made


def _rounded(recorder: Recorder, value: Any, digits: Any) -> Any:
    """`round(value, digits)`."""
    if not isinstance(digits, int) or (is_int(value) and digits < 0):
        return None
    if is_int(value):
        return value
    if value.is_wide:  # numpy's own rounds a product
        return round(float64(recorder.specialize_scalar(value.scalar, "round")), digits)
    return function_of(recorder, "float", "round_to", operand_of(value), digits)


def _exact_quotient(recorder: Recorder, name: str, argument: Operand) -> Any:
    """`math.floor(a / b)` of ints below 2**53 is `a // b`."""
    if not (isinstance(argument, Scalar) and argument.op == "truediv"):
        return None
    a, b = argument.args
    if not (isinstance(a, (int, Expr)) and isinstance(b, int) and 0 < b < 2**20):
        return None
    down = floordiv(a, b)
    if name == "trunc" and not recorder.cx.known(ge(a, 0)):
        return None
    return size(-floordiv(-a, b) if name == "ceil" else down)


def is_float(value: Any) -> bool:
    """Whether it is a symbolic float."""
    return type(value) is ScalarValue and value.kind is float


def scalar_symbols(scalar: Any) -> frozenset[Any] | None:
    """The symbols of a scalar; None where it reads data."""
    if isinstance(scalar, (Expr, *CONDITIONS)):
        return scalar.symbols
    if isinstance(scalar, Scalar):
        parts = [part for part in map(scalar_symbols, scalar.args) if part is not None]
        return None if len(parts) < len(scalar.args) else frozenset[Any]().union(*parts)
    return None if isinstance(scalar, ScalarInput) else frozenset()
