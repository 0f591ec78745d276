"""Rules of elementwise rows of one, two and three operands: the formulas of ATen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.ops.context import NoRow
from anyshape.ops.rules import is_tensor, of_numbers

Rule = Callable[..., Any]


def zeros(b: Any, x: Any) -> Any:
    """Zeros of the shape of ``x``."""
    return b.full(x.shape, 0, x.dtype, x.type.device)


def masked(b: Any, condition: Any, g: Any) -> Any:
    """The cotangent where the condition holds, 0 elsewhere, NaNs included."""
    return b.where(condition, g, b.full((), 0, g.dtype, g.type.device))


def passed(b: Any, g: Any, *rest: Any, **options: Any) -> Any:
    """The gradient of what is handed on as it is."""
    return g


def nothing(b: Any, g: Any, y: Any, *rest: Any, **options: Any) -> Any:
    """The gradient of a step function."""
    return b.zeros_like(g)


COVERED: Mapping[str, Rule] = {
    "input": lambda b, g, y, x, *rest, **options: zeros(b, x),
    "src": passed,
    "value": passed,
}
"""Of what is written whole: eager gives zeros of what was there before, and no ``None``."""


def _of_result(form: Callable[[Any, Any, Any], Any]) -> Mapping[str, Rule]:
    return {"input": lambda b, g, y, x: form(b, g, y)}


def _of_input(form: Callable[[Any, Any, Any], Any]) -> Mapping[str, Rule]:
    return {"input": lambda b, g, y, x: form(b, g, x)}


def _one_minus_square(b: Any, y: Any) -> Any:
    return b.rsub(b.mul(y, y), 1)


def _slope_of_sinc(b: Any, x: Any) -> Any:
    """(pi x cos(pi x) - sin(pi x)) / (pi x^2), and 0 where that square is."""
    scaled, square = b.mul(x, math.pi), b.mul(b.mul(x, x), math.pi)
    slope = b.div(b.sub(b.mul(scaled, b.cos(scaled)), b.sin(scaled)), square)
    return masked(b, b.ne(square, 0), slope)


UNARY: Mapping[str, Mapping[str, Rule]] = {
    "exp": _of_result(lambda b, g, y: b.mul(g, y)),
    "exp2": _of_result(lambda b, g, y: b.mul(b.mul(g, y), math.log(2))),
    "expm1": _of_result(lambda b, g, y: b.mul(g, b.add(y, 1))),
    "log": _of_input(lambda b, g, x: b.div(g, x)),
    "log2": _of_input(lambda b, g, x: b.div(g, b.mul(x, math.log(2)))),
    "log10": _of_input(lambda b, g, x: b.div(g, b.mul(x, math.log(10)))),
    "log1p": _of_input(lambda b, g, x: b.div(g, b.add(x, 1))),
    "sin": _of_input(lambda b, g, x: b.mul(g, b.cos(x))),
    "cos": _of_input(lambda b, g, x: b.mul(g, b.neg(b.sin(x)))),
    "tan": _of_result(lambda b, g, y: b.mul(g, b.add(b.mul(y, y), 1))),
    "sinh": _of_input(lambda b, g, x: b.mul(g, b.cosh(x))),
    "cosh": _of_input(lambda b, g, x: b.mul(g, b.sinh(x))),
    "tanh": _of_result(lambda b, g, y: b.mul(g, _one_minus_square(b, y))),
    "asin": _of_input(lambda b, g, x: b.mul(g, b.rsqrt(_one_minus_square(b, x)))),
    "acos": _of_input(lambda b, g, x: b.mul(g, b.neg(b.rsqrt(_one_minus_square(b, x))))),
    "atan": _of_input(lambda b, g, x: b.div(g, b.add(b.mul(x, x), 1))),
    "asinh": _of_input(lambda b, g, x: b.mul(g, b.rsqrt(b.add(b.mul(x, x), 1)))),
    "acosh": _of_input(lambda b, g, x: b.mul(g, b.rsqrt(b.sub(b.mul(x, x), 1)))),
    "atanh": _of_input(lambda b, g, x: b.div(g, _one_minus_square(b, x))),
    "sqrt": _of_result(lambda b, g, y: b.div(g, b.mul(y, 2))),
    "rsqrt": _of_result(lambda b, g, y: b.mul(b.mul(g, -0.5), b.pow(y, 3))),
    "reciprocal": _of_result(lambda b, g, y: b.neg(b.mul(b.mul(g, y), y))),
    "sigmoid": _of_result(lambda b, g, y: b.mul(g, b.mul(b.rsub(y, 1), y))),
    "erf": _of_input(
        lambda b, g, x: b.mul(b.mul(b.exp(b.neg(b.mul(x, x))), 2 / math.sqrt(math.pi)), g)
    ),
    "erfc": _of_input(
        lambda b, g, x: b.mul(b.mul(b.exp(b.neg(b.mul(x, x))), -2 / math.sqrt(math.pi)), g)
    ),
    "lgamma": _of_input(lambda b, g, x: b.mul(g, b.digamma(x))),
    "neg": _of_result(lambda b, g, y: b.neg(g)),
    "abs": _of_input(lambda b, g, x: b.mul(g, b.sgn(x))),
    "square": _of_input(lambda b, g, x: b.mul(g, b.mul(x, 2))),
    "deg2rad": _of_result(lambda b, g, y: b.mul(g, math.pi / 180)),
    "rad2deg": _of_result(lambda b, g, y: b.mul(g, 180 / math.pi)),
    "frac": {"input": passed},
    "erfinv": _of_input(
        lambda b, g, x: b.mul(b.mul(b.exp(b.square(b.erfinv(x))), math.sqrt(math.pi) / 2), g)
    ),
    "sinc": _of_input(lambda b, g, x: b.mul(g, _slope_of_sinc(b, x))),
    **{name: {"input": nothing} for name in ("floor", "ceil", "trunc", "sign", "sgn")},
}
"""By the name of the row."""

CLONE = TO_DTYPE = {"input": passed}
ENTR = _of_input(lambda b, g, x: b.mul(g, b.neg(b.add(b.log(x), 1))))
NDTR = _of_input(
    lambda b, g, x: b.mul(g, b.mul(b.exp(b.mul(b.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi)))
)
NAN_TO_NUM = {"input": lambda b, g, y, x, *numbers: b.mul(g, b.to_dtype(b.isfinite(x), g.dtype))}
LDEXP = {
    "input": lambda b, g, y, x, other: b.mul(g, b.exp2(b.to_dtype(other, g.dtype))),
    "other": lambda b, g, y, x, other: b.mul(g, b.mul(y, math.log(2))),
}


def _of_logit(b: Any, g: Any, y: Any, x: Any, eps: Any = None) -> Any:
    if isinstance(eps, (int, float)) and eps < 0:  # as none at all
        eps = None
    slope = b.div(g, b.mul(b.abs(x), b.rsub(x, 1)))  # that of -0.0 is 0.0's
    low, high = (0.0, 1.0) if eps is None else (eps, 1.0 - eps)
    outside = b.full((), math.nan if eps is None else 0.0, g.dtype, g.type.device)
    return b.where(b.logical_or(b.lt(x, low), b.gt(x, high)), outside, slope)


LOGIT = {"input": _of_logit}
ANGLE = {"input": nothing}
"""Of real numbers."""
ROUND = {"input": nothing}

# --- arithmetic ---


def _scaled(b: Any, g: Any, alpha: Any) -> Any:
    return g if isinstance(alpha, int) and alpha == 1 else b.mul(g, alpha)


ADD = {"input": passed, "other": lambda b, g, y, p, q, *, alpha=1: _scaled(b, g, alpha)}
SUB = {"input": passed, "other": lambda b, g, y, p, q, *, alpha=1: b.neg(_scaled(b, g, alpha))}
RSUB = {"input": lambda b, g, y, p, q, *, alpha=1: b.neg(_scaled(b, g, alpha)), "other": passed}
MUL = {"input": lambda b, g, y, p, q: b.mul(g, q), "other": lambda b, g, y, p, q: b.mul(g, p)}


def _of_dividend(b: Any, g: Any, y: Any, p: Any, q: Any, *, rounding_mode: Any = None) -> Any:
    return b.div(g, q) if rounding_mode is None else zeros(b, y)


def _of_divisor(b: Any, g: Any, y: Any, p: Any, q: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None:
        return zeros(b, y)
    return b.mul(b.neg(g), b.div(b.div(p, q), q))


DIV = {"input": _of_dividend, "other": _of_divisor}


def _of_base(b: Any, g: Any, y: Any, base: Any, exponent: Any) -> Any:
    if is_tensor(exponent):
        slope = b.mul(exponent, b.pow(base, b.sub(exponent, 1)))
        return masked(b, b.ne(exponent, 0), b.mul(g, slope))
    if not isinstance(exponent, (int, float)):
        raise NoRow("a power whose exponent is a size")
    if exponent == 0:
        return zeros(b, base)
    return b.mul(g, b.mul(b.pow(base, exponent - 1), exponent))


def _of_exponent(b: Any, g: Any, y: Any, base: Any, exponent: Any) -> Any:
    if is_tensor(base):
        flat = b.logical_and(b.eq(base, 0), b.ge(exponent, 0))
        return b.mul(g, masked(b, b.logical_not(flat), b.mul(y, b.log(base))))
    if not isinstance(base, (int, float)) or base <= 0:
        raise NoRow("a power of a number that is not known to be positive")
    return b.mul(g, b.mul(y, math.log(base)))


POW = {"input": _of_base, "exponent": _of_exponent}


def _times_log(row: str, shift: int) -> Mapping[str, Rule]:
    """Of ``p * log(q + shift)``, which is 0 where ``p`` is."""

    def first(b: Any, g: Any, y: Any, p: Any, q: Any) -> Any:
        if not is_tensor(q):
            raise NoRow("the logarithm of a number")
        flat = b.logical_and(b.eq(p, 0), b.le(q, -shift))
        return masked(b, b.logical_not(flat), b.call(row, g, q))

    def second(b: Any, g: Any, y: Any, p: Any, q: Any) -> Any:
        return b.div(b.mul(g, p), b.add(q, shift) if shift else q)

    return {"input": first, "other": second}


XLOGY, XLOG1PY = _times_log("xlogy", 0), _times_log("xlog1py", 1)


def _of_extreme(loses: str, first: bool) -> Rule:
    """Equal operands share the cotangent; ``loses`` compares an operand that is not the result."""

    def rule(b: Any, g: Any, y: Any, p: Any, q: Any) -> Any:
        mine, other = (p, q) if first else (q, p)
        shared = b.where(b.eq(p, q), b.div(g, 2), g)
        return masked(b, b.logical_not(b.call(loses, mine, other)), shared)

    return rule


MAXIMUM = {"input": _of_extreme("lt", True), "other": _of_extreme("lt", False)}
MINIMUM = {"input": _of_extreme("gt", True), "other": _of_extreme("gt", False)}


def _of_clamped(b: Any, g: Any, y: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    inside = [b.ge(x, low)] if low is not None else []
    inside += [b.le(x, high)] if high is not None else []
    return masked(b, inside[0] if len(inside) == 1 else b.logical_and(*inside), g)


def _of_low(b: Any, g: Any, y: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    """Where both limits are crossed, the upper one holds."""
    below = b.lt(x, low)
    return masked(b, below if high is None else b.logical_and(below, b.lt(low, high)), g)


def _of_high(b: Any, g: Any, y: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    above = b.gt(x, high)
    return masked(b, above if low is None else b.logical_or(above, b.gt(low, high)), g)


CLAMP = {"input": _of_clamped, "min": _of_low, "max": _of_high}
CLAMP_MIN = {
    "input": lambda b, g, y, x, low: _of_clamped(b, g, y, x, low),
    "min": lambda b, g, y, x, low: _of_low(b, g, y, x, low),
}
CLAMP_MAX = {
    "input": lambda b, g, y, x, high: _of_clamped(b, g, y, x, None, high),
    "max": lambda b, g, y, x, high: _of_high(b, g, y, x, None, high),
}


def _squares(b: Any, p: Any, q: Any) -> Any:
    return b.add(b.mul(p, p), b.mul(q, q))


def _over_squares(b: Any, p: Any, q: Any) -> Any:
    """1 / (p^2 + q^2), and 0 where that sum is, as in eager since 2.13."""
    squares = _squares(b, p, q)
    return masked(b, b.ne(squares, 0), b.reciprocal(squares))


ATAN2 = {
    "input": lambda b, g, y, p, q: b.mul(b.mul(g, q), _over_squares(b, p, q)),
    "other": lambda b, g, y, p, q: b.mul(b.mul(g, b.neg(p)), _over_squares(b, p, q)),
}
HYPOT = {
    "input": lambda b, g, y, p, q: b.mul(g, b.div(p, y)),
    "other": lambda b, g, y, p, q: b.mul(g, b.div(q, y)),
}
LOGADDEXP = {
    "input": lambda b, g, y, p, q: b.div(g, b.add(b.exp(b.sub(q, p)), 1)),
    "other": lambda b, g, y, p, q: b.div(g, b.add(b.exp(b.sub(p, q)), 1)),
}
LOGADDEXP2 = {
    "input": lambda b, g, y, p, q: b.div(g, b.add(b.exp2(b.sub(q, p)), 1)),
    "other": lambda b, g, y, p, q: b.div(g, b.add(b.exp2(b.sub(p, q)), 1)),
}


def _of_copied_sign(b: Any, g: Any, y: Any, p: Any, q: Any) -> Any:
    return b.mul(g, masked(b, b.ne(p, 0), b.div(y, p)))


COPYSIGN = {"input": _of_copied_sign, "other": nothing}


def _of_modulus(rounding_mode: str) -> Mapping[str, Rule]:
    def of_divisor(b: Any, g: Any, y: Any, p: Any, q: Any) -> Any:
        return b.mul(b.neg(g), b.div(p, q, rounding_mode=rounding_mode))

    return {"input": passed, "other": of_divisor}


FMOD, REMAINDER = _of_modulus("trunc"), _of_modulus("floor")


def _of_number_extreme(wins: str) -> Mapping[str, Rule]:
    """Where the operands are equal, or the other one is no number, the first one is the result."""

    def taken(b: Any, p: Any, q: Any) -> Any:
        return b.logical_or(b.call(wins, p, q), b.isnan(q))

    return {
        "input": lambda b, g, y, p, q: masked(b, taken(b, p, q), g),
        "other": lambda b, g, y, p, q: masked(b, b.logical_not(taken(b, p, q)), g),
    }


FMAX, FMIN = _of_number_extreme("ge"), _of_number_extreme("le")

# --- three operands ---

WHERE = {
    "input": lambda b, g, y, condition, p, q: masked(b, condition, g),
    "other": lambda b, g, y, condition, p, q: b.where(
        condition, b.full((), 0, g.dtype, g.type.device), g
    ),
}
MASKED_FILL = {
    "input": lambda b, g, y, x, mask, value: b.masked_fill(g, mask, 0),
    "value": lambda b, g, y, x, mask, value: masked(b, mask, g),
}
ADDCMUL = {
    "input": passed,
    "tensor1": lambda b, g, y, x, p, q, *, value=1: b.mul(g, b.mul(q, value)),
    "tensor2": lambda b, g, y, x, p, q, *, value=1: b.mul(g, b.mul(p, value)),
}
ADDCDIV = {
    "input": passed,
    "tensor1": lambda b, g, y, x, p, q, *, value=1: b.mul(g, b.div(value, q)),
    "tensor2": lambda b, g, y, x, p, q, *, value=1: b.mul(
        b.neg(g), b.div(b.mul(p, value), b.mul(q, q))
    ),
}
LERP = {
    "input": lambda b, g, y, x, end, weight: b.mul(
        g, b.rsub(weight, 1) if is_tensor(weight) else of_numbers("sub", 1, weight)
    ),
    "end": lambda b, g, y, x, end, weight: b.mul(g, weight),
    "weight": lambda b, g, y, x, end, weight: b.mul(g, b.sub(end, x)),
}
