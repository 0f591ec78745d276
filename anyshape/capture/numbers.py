"""Python's numbers with symbols in them: ints are expressions, floats and bools are scalars, with
CPython's own semantics.

In: an operator and operands, at least one a `SizeValue` or `ScalarValue`. Out: an int, a proxy,
or `NotImplemented` where Python would try something else. Nothing is guarded except what
CPython itself would decide (division by zero).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.breaks import broken
from anyshape.capture.numpy_scalars import is_square_root, plain_number
from anyshape.capture.recorder import Recorder
from anyshape.capture.values import PROXIES, ScalarValue, SizeValue
from anyshape.ir.scalars import Operand, Scalar, ScalarInput
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
    minimum,
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
MATH: Mapping[Any, str] = {
    math.sqrt: "sqrt",
    math.exp: "exp",
    math.log2: "log2",
    math.sin: "sin",
    math.cos: "cos",
    math.tanh: "tanh",
    math.floor: "floor",
    math.ceil: "ceil",
    math.trunc: "trunc",
}


def size(value: Dim) -> Any:
    """An int as it lies on the virtual stack."""
    return SizeValue(value) if isinstance(value, Expr) else value


def truth_value(value: Condition | bool) -> Any:
    """A bool as it lies on the virtual stack."""
    return value if isinstance(value, bool) else ScalarValue(value, bool)


def operand(value: Any) -> Operand | None:
    """A number as an operand of scalars; None for anything else."""
    if isinstance(value, SizeValue):
        return value.expr  # type: ignore[no-any-return]
    if isinstance(value, ScalarValue):
        return value.scalar  # type: ignore[no-any-return]
    number = plain_number(value)
    return None if isinstance(number, complex) else number


def is_int(value: Any) -> bool:
    """Whether a value on the virtual stack is an int (bools count)."""
    if isinstance(value, ScalarValue):
        return value.kind is bool
    return isinstance(value, SizeValue) or isinstance(plain_number(value), int)


def dim(value: Any) -> Dim | None:
    """The expression of an int; None for a symbolic bool or float."""
    if isinstance(value, SizeValue):
        return value.expr  # type: ignore[no-any-return]
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
    if op in ("/", "//", "%"):
        _not_zero(recorder, b, op)
    name = SCALAR_NAMES.get(op)
    if name is None:
        raise broken("size-needed", f"the operator {op}")
    return ScalarValue(Scalar("float", name, (left, right)), float)


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
        return ScalarValue(Scalar("float", "pow", (left, right)), float)
    if op in ("/",):
        return NotImplemented
    if op in ("&", "|", "^", "<<", ">>", "**"):
        value = (
            recorder.specialize(left, f"the operator {op}"),
            recorder.specialize(right, f"the operator {op}"),
        )
        return INTEGER_OPERATORS[op](*value)
    return NotImplemented


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
        if isinstance(b, ScalarValue) and not decide(recorder, compare(recorder, "!=", b, 0)):
            raise ZeroDivisionError("float division by zero")
        if isinstance(b, float) and b == 0:
            raise ZeroDivisionError("float division by zero")
        return
    text = "division by zero" if op == "/" else "integer division or modulo by zero"
    if not recorder.decide_or_check(ne(value, 0), text):
        raise ZeroDivisionError(text)


def compare(recorder: Recorder, op: str, a: Any, b: Any) -> Any:
    """`a op b`; a bool where the facts decide."""
    left, right = dim(a), dim(b)
    if left is not None and right is not None:
        return known_or(recorder, RELATIONS[op](left, right))
    first, second = operand(a), operand(b)
    if first is None or second is None:
        if op in ("==", "!="):
            return op == "!="
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
        return scalar  # type: ignore[return-value]
    if isinstance(scalar, Scalar) and scalar.kind == "bool":
        parts = [_condition_of_scalar(arg) for arg in scalar.args]
        if any(part is None for part in parts):
            return None
        match scalar.op:
            case "value" | "bool":
                return parts[0]
            case "not":
                return negated(parts[0])  # type: ignore[arg-type]
            case "and":
                return all_of(*parts)  # type: ignore[arg-type]
            case "or":
                return any_of(*parts)  # type: ignore[arg-type]
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
        if op in ("int", "index", "+"):
            return _int_of_bool(recorder, a)
        if op == "not":
            condition = condition_of(a)
            negative = Scalar("bool", "not", (scalar,)) if condition is None else negated(condition)
            return negative if isinstance(negative, bool) else ScalarValue(negative, bool)
        return UNARY_NATIVE[op](decide(recorder, a))
    if op in ("-", "abs", "+"):
        return ScalarValue(
            Scalar("float", {"-": "neg", "abs": "abs", "+": "pos"}[op], (scalar,)), float
        )
    if op == "float":
        return a
    if op == "int":
        return integer_of(recorder, Scalar("int", "int", (scalar,)))
    if op == "round":
        return integer_of(recorder, Scalar("int", "round", (scalar,)))
    return UNARY_NATIVE[op](recorder.specialize_scalar(scalar, op))


def _int_of_bool(recorder: Recorder, value: ScalarValue) -> Any:
    """0 or 1: guarded on the hint, an expression where data decides."""
    condition = condition_of(value)
    if condition is None or isinstance(condition, bool) or recorder.cx.hint(condition) is not None:
        return int(decide(recorder, value))
    return size(indicator(condition))


UNARY_NATIVE: Mapping[str, Callable[[Any], Any]] = {
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
    "index": int,
    "not": operator.not_,
}


def _unary_size(recorder: Recorder, op: str, a: SizeValue) -> Any:
    expr = a.expr
    match op:
        case "+" | "round" | "int" | "index_symbolic":
            return a
        case "-":
            return size(-expr)
        case "~":
            return size(-expr - 1)
        case "abs":
            return a if recorder.cx.known(ge(expr, 0)) else size(maximum(expr, -expr))
        case "bool":
            return known_or(recorder, ne(expr, 0))
        case "not":
            return known_or(recorder, eq(expr, 0))
        case "float":
            return ScalarValue(Scalar("float", "float", (expr,)), float)
        case _:
            return UNARY_NATIVE[op](recorder.specialize(expr, f"{op}()"))


def integer_of(recorder: Recorder, scalar: Scalar) -> Any:
    """An int computed through floats (`int(n * 0.5)`): a symbol of its own, bound to the scalar
    when entered."""
    return SizeValue(recorder.bound_symbol(scalar))


def math_call(recorder: Recorder, fn: Any, value: Any) -> Any:
    """`math.sqrt(n)` and the like on a symbolic number; None where there is no such row."""
    name = MATH.get(fn)
    argument = operand(value)
    if is_square_root(fn) and is_int(value) and recorder.cx.known(ge(argument, 0)):
        name = "sqrt"  # of negative numbers it is a NaN where Python's raises
    if name is None or argument is None:
        return None
    if name in ("floor", "ceil", "trunc"):
        if is_int(value):
            return value
        quotient = _exact_quotient(recorder, name, argument)
        return (
            quotient
            if quotient is not None
            else integer_of(recorder, Scalar("int", name, (argument,)))
        )
    return ScalarValue(Scalar("float", name, (argument,)), float)


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


def extremum(recorder: Recorder, name: str, values: list[Any]) -> Any:
    """`min` or `max` of ints with sizes among them; NotImplemented for anything else."""
    dims = [dim(value) for value in values]
    if any(d is None for d in dims):
        return NotImplemented
    function = minimum if name == "min" else maximum
    return size(recorder.cx.facts.simplify(function(*dims)))  # type: ignore[arg-type]


def scalar_symbols(scalar: Any) -> frozenset[Any] | None:
    """The symbols of a scalar; None where it reads data."""
    if isinstance(scalar, (Expr, *CONDITIONS)):
        return scalar.symbols
    if isinstance(scalar, Scalar):
        parts = [scalar_symbols(arg) for arg in scalar.args]
        return None if any(part is None for part in parts) else frozenset().union(*parts)  # type: ignore[arg-type]
    return None if isinstance(scalar, ScalarInput) else frozenset()
