"""Host floats and bools over sizes and numbers read from data: IEEE double, as Python does.

A ``Scalar`` is an immutable expression tree over symbolic sizes, constants and ``ScalarInput``s (a
float or bool that a node reads from a tensor). It is never simplified numerically, so that its
value is bit for bit what CPython computes. ``evaluate_scalar`` is its meaning; ``render_scalar``
prints it as Python.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from anyshape.nouns import frozen
from anyshape.symbolic import Condition, Expr, Symbol, evaluate, to_python

Kind = Literal["float", "bool", "int"]
Number: TypeAlias = "int | float | bool"


@frozen(eq=False)
class ScalarInput:
    """A number that becomes known mid-run; compared by identity."""

    name: str
    kind: Kind


@frozen(eq=False)
class Scalar:
    """``op``, a row of ``SCALAR_FUNCTIONS`` (``value`` for a leaf), applied to ``args``. Equal to
    what has equal parts, of which 0.0 and -0.0 are two."""

    kind: Kind
    op: str
    args: tuple[Operand, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalar) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        exact = (repr(arg) if isinstance(arg, float) else arg for arg in self.args)
        return (self.kind, self.op, *exact)

    def __bool__(self) -> bool:
        raise TypeError("the truth of a symbolic scalar is not known while compiling")


Operand: TypeAlias = "Scalar | ScalarInput | Expr | Condition | int | float | bool"


MATH_OF_ONE = (
    *("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "floor", "ceil", "trunc", "fabs"),
    *(
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
    ),
    *("degrees", "radians", "erf", "erfc", "isnan", "isinf", "isfinite"),
)
MATH_OF_TWO = ("atan2", "copysign", "hypot", "fmod")


def _checked(holds: bool) -> float:
    if not holds:
        raise ValueError("a check that data decides")
    return 1.0


BITS = 62
"""Of an int that is a symbol. `lshift` shifts by no more: each call works it out before it is known
whether the result is one."""


# name -> (meaning, Python text with {0}, {1}... for the operands)
SCALAR_FUNCTIONS: dict[str, tuple[Callable[..., Number], str]] = {
    "value": (lambda a: a, "{0}"),
    "float": (float, "float({0})"),
    "bool": (bool, "bool({0})"),
    "int": (int, "int({0})"),
    "add": (operator.add, "({0} + {1})"),
    "sub": (operator.sub, "({0} - {1})"),
    "mul": (operator.mul, "({0} * {1})"),
    "truediv": (operator.truediv, "({0} / {1})"),
    "floordiv": (operator.floordiv, "({0} // {1})"),
    "mod": (operator.mod, "({0} % {1})"),
    "pow": (operator.pow, "({0} ** {1})"),
    "neg": (operator.neg, "(-{0})"),
    "pos": (operator.pos, "(+{0})"),
    "abs": (abs, "abs({0})"),
    "min": (min, "min({0}, {1})"),
    "max": (max, "max({0}, {1})"),
    "round": (round, "round({0})"),
    "check": (_checked, "check({0})"),
    "round_to": (round, "round({0}, {1})"),
    "eq": (operator.eq, "({0} == {1})"),
    "ne": (operator.ne, "({0} != {1})"),
    "lt": (operator.lt, "({0} < {1})"),
    "le": (operator.le, "({0} <= {1})"),
    "gt": (operator.gt, "({0} > {1})"),
    "ge": (operator.ge, "({0} >= {1})"),
    "and": (lambda a, b: bool(a and b), "({0} and {1})"),
    "or": (lambda a, b: bool(a or b), "({0} or {1})"),
    "not": (operator.not_, "(not {0})"),
    "select": (lambda c, a, b: a if c else b, "({1} if {0} else {2})"),
    **{name: (getattr(math, name), f"math.{name}({{0}})") for name in MATH_OF_ONE},
    **{name: (getattr(math, name), f"math.{name}({{0}}, {{1}})") for name in MATH_OF_TWO},
    "pow_of_floats": (math.pow, "math.pow({0}, {1})"),
    "bit_and": (operator.and_, "({0} & {1})"),
    "bit_or": (operator.or_, "({0} | {1})"),
    "bit_xor": (operator.xor, "({0} ^ {1})"),
    "lshift": (lambda a, many: a << min(many, BITS), f"({{0}} << min({{1}}, {BITS}))"),
    "rshift": (operator.rshift, "({0} >> {1})"),
    "bit_length": (int.bit_length, "int.bit_length({0})"),
}


def applied(function: str, operands: Sequence[Number]) -> Number | None:
    """A row of ``SCALAR_FUNCTIONS`` applied to numbers that data decides; None where Python raises,
    and where the result is complex or an int of more than 62 bits."""
    try:
        made = SCALAR_FUNCTIONS[function][0](*operands)
    except (ArithmeticError, ValueError):
        return None
    return (
        None if isinstance(made, complex) or isinstance(made, int) and abs(made) >> BITS else made
    )


def evaluate_scalar(
    operand: Operand, sizes: Mapping[Symbol, int], inputs: Mapping[ScalarInput, Number]
) -> Number:
    """The number that CPython would compute for these sizes and inputs."""
    if isinstance(operand, Scalar):
        function, _ = SCALAR_FUNCTIONS[operand.op]
        return function(*(evaluate_scalar(arg, sizes, inputs) for arg in operand.args))
    if isinstance(operand, ScalarInput):
        return inputs[operand]
    if isinstance(operand, (bool, int, float)):
        return operand
    return evaluate(operand, sizes)


def render_scalar(
    operand: Operand, name: Callable[[Symbol], str], input_name: Callable[[ScalarInput], str]
) -> str:
    """The operand as a Python expression; infinities and NaN are spelled so that they evaluate."""
    if isinstance(operand, Scalar):
        if operand.op == "value":
            return render_scalar(operand.args[0], name, input_name)
        _, template = SCALAR_FUNCTIONS[operand.op]
        return template.format(*(_enclosed(arg, name, input_name) for arg in operand.args))
    if isinstance(operand, ScalarInput):
        return input_name(operand)
    if isinstance(operand, float) and not math.isfinite(operand):
        return f"float('{operand}')"
    if isinstance(operand, int) and abs(operand) >> 64:
        return hex(operand)  # the digits that `repr` may write are limited
    if isinstance(operand, (bool, int, float)):
        return repr(operand)
    return to_python(operand, name)


def _enclosed(
    operand: Operand, name: Callable[[Symbol], str], input_name: Callable[[ScalarInput], str]
) -> str:
    """The operand as text that binds tighter than any operator."""
    if isinstance(operand, Scalar) and operand.op == "value":
        return _enclosed(operand.args[0], name, input_name)
    text = render_scalar(operand, name, input_name)
    is_sum = isinstance(operand, Expr) and operand.symbol is None
    loose = is_sum or isinstance(operand, Condition) or text.startswith("-")
    return f"({text})" if loose else text


def comparisons_with(scalar: Scalar, value: Any) -> Iterator[Scalar]:
    """Comparisons whose truths tell this number from others: NaN equals nothing, -0.0 equals 0."""
    if value != value:
        yield Scalar("bool", "isnan", (scalar,))
        return
    yield Scalar("bool", "eq", (scalar, value))
    if type(value) is float and value == 0.0:
        yield Scalar("bool", "gt", (Scalar("float", "copysign", (1, scalar)), 0))


def scalar_inputs(operand: Operand) -> Iterator[ScalarInput]:
    """Every mid-run number the operand reads, depth first."""
    if isinstance(operand, ScalarInput):
        yield operand
    elif isinstance(operand, Scalar):
        for arg in operand.args:
            yield from scalar_inputs(arg)


def parts_of(operand: Operand) -> Iterator[Operand]:
    """The operand and those that it is made of, depth first; what is used twice comes twice."""
    yield operand
    if isinstance(operand, Scalar):
        for arg in operand.args:
            yield from parts_of(arg)


def names_of(operand: Operand) -> set[Symbol | ScalarInput]:
    """The symbols and mid-run numbers that a number is computed from."""
    if isinstance(operand, Scalar):
        return set().union(*(names_of(arg) for arg in operand.args))
    if isinstance(operand, ScalarInput):
        return {operand}
    return set(getattr(operand, "symbols", ()))
