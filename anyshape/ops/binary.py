"""Elementwise rows of two or more operands: arithmetic, comparisons, logic, interpolation.

Operands may be tensors or numbers; a result has the promoted dtype. The reflected operators of
Python (``2 - x``) have rows where torch computes them in their own way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyshape.ir.dtypes import DType, bfloat16, bool_, complex128, float16, float64, int64
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops import ranges
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.gradients import elementwise
from anyshape.ops.layout import contiguous_strides, numel
from anyshape.ops.rules import (
    PointwiseRule,
    booled,
    by_element,
    floated,
    is_tensor,
    operands_type,
    promoted,
    tensor,
    tensors_of,
)
from anyshape.ops.table import Compute, OpDef, Pointwise, TypeRule, op
from anyshape.symbolic import (
    Expr,
    any_of,
    eq,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mod,
    ne,
)

Body = Callable[..., Any]


def _some_divisor(cx: TypeContext, made: TensorType, divisor: Arg) -> TensorType:
    """Integers are not divided by the number 0; a tensor's zeros are found while running
    (``passes/bounds_checks.py``).
    """
    if made.dtype is bool_:
        raise OpError("rounded division is not implemented for bools")
    if made.dtype.is_integral and isinstance(divisor, (int, Expr)):
        content = (
            1 * divisor if made.dtype is int64 else mod(1 * divisor, 1 << 8 * made.dtype.size_bytes)
        )
        some = any_of(ne(content, 0), eq(numel(made.shape), 0))
        cx.require(some, "ZeroDivisionError")
    return made


@by_element
def _quotient_type(cx: TypeContext, x: Arg, y: Arg) -> TensorType:
    return _some_divisor(cx, operands_type(cx, (x, y), promoted(cx, (x, y))), y)


def binary(
    name: str,
    body: Body,
    *,
    signature: str = "input, other",
    dtype: Callable[..., DType] = promoted,
    compute: Compute = "result",
    operators: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    method: bool = True,
    commutes: bool = False,
    overload: Callable[..., str | None] | None = None,
    type: TypeRule | None = None,
    **columns: Any,
) -> OpDef:
    """A row ``name(input, other)``; ``operators`` are names of Python's protocol (``add``)."""
    python = tuple(
        text for o in operators for text in (f"operator.{o}", f"torch.Tensor.__{o.strip('_')}__")
    )
    spellings = ((f"torch.Tensor.{name}",) if method else ()) + python + aliases
    return op(
        name,
        signature,
        torch=f"torch.{name}",
        spellings=spellings,
        type=type or PointwiseRule(dtype, 2),
        lower=Pointwise(body, compute),
        normalize=_tensor_first if commutes else None,
        overload=overload,
        **columns,
    )


def _tensor_first(
    cx: TypeContext, x: Arg, y: Arg, **kwargs: Arg
) -> tuple[tuple[Arg, ...], Mapping[str, Arg]]:
    """``2 + x`` is ``x + 2`` (torch's functions want a tensor first)."""
    return ((x, y) if is_tensor(x) or kwargs.get("alpha", 1) != 1 else (y, x)), kwargs


def scaled(b: Any, y: Any, alpha: Any) -> Any:
    return y if isinstance(alpha, int) and alpha == 1 else b.mul(y, alpha)


def _is_bool(*operands: Any) -> bool:
    """Are all operands that are elements of dtype bool? (They have the same one.)"""
    return any(getattr(x, "dtype", None) is bool_ for x in operands)


def _add(b: Any, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    if _is_bool(x, y):
        return b.logical_or(x, y if alpha else False)
    return b.add(x, scaled(b, y, alpha))


def _sub(b: Any, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return b.sub(x, scaled(b, y, alpha))


def _mul(b: Any, x: Any, y: Any) -> Any:
    return b.logical_and(x, y) if _is_bool(x, y) else b.mul(x, y)


def _no_bool(cx: TypeContext, operands: Any) -> DType:
    if any(x is True or x is False for x in operands) or any(
        t.dtype is bool_ for t in tensors_of(operands)
    ):
        raise OpError("Subtraction, the `-` operator, with a bool tensor is not supported.")
    return promoted(cx, operands)


binary(
    "add",
    _add,
    signature="input, other, *, alpha=1",
    operators=("add",),
    range=ranges.of_sum,
    aliases=("torch.Tensor.__radd__",),
    holds=ranges.content_unscaled(operator.add),
    vjp=elementwise.ADD,
    commutes=True,
    of_numbers=True,
)
binary(
    "sub",
    _sub,
    signature="input, other, *, alpha=1",
    dtype=_no_bool,
    operators=("sub",),
    range=ranges.of_difference(0, 1),
    holds=ranges.content_unscaled(operator.sub),
    aliases=("torch.subtract", "torch.Tensor.subtract"),
    vjp=elementwise.SUB,
    number_first="operator.sub",
    of_numbers=True,
)
binary(
    "mul",
    _mul,
    operators=("mul",),
    commutes=True,
    wide_numbers=frozenset({1}),
    aliases=("torch.Tensor.__rmul__", "torch.multiply", "torch.Tensor.multiply"),
    vjp=elementwise.MUL,
    of_numbers=True,
    holds=ranges.content_of_two(operator.mul),
)
op(
    "rsub",
    "input, other, *, alpha=1",
    torch="torch.rsub",
    vjp=elementwise.RSUB,
    spellings=("torch.Tensor.__rsub__",),
    type=by_element(lambda cx, x, y, *, alpha=1: operands_type(cx, (y, x), _no_bool(cx, (x, y)))),
    lower=Pointwise(lambda b, x, y, *, alpha=1: b.sub(y, scaled(b, x, alpha))),
    range=ranges.of_difference(1, 0),
    holds=ranges.content_unscaled(lambda x, y: y - x),
)


@by_element
def _div_type(cx: TypeContext, x: Arg, y: Arg, *, rounding_mode: Arg = None) -> TensorType:
    rule = floated if rounding_mode is None else promoted
    return _some_divisor(cx, operands_type(cx, (x, y), rule(cx, (x, y))), y)


def _div(b: Any, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return b.div(x, y)
    return b.floordiv(x, y) if rounding_mode == "floor" else _div_trunc(b, x, y)


def _div_trunc(b: Any, x: Any, y: Any) -> Any:
    dtype = getattr(x, "dtype", None) or y.dtype
    return b.trunc(b.div(x, y)) if dtype.is_floating else b.truncdiv(x, y)


LOW = (float16, bfloat16)


def is_low_quotient(x: Arg, y: Arg) -> bool:
    """Does ATen divide small floats by a tensor of small floats, rounding after each step? By a
    number or a single element it divides in float32."""
    if not is_tensor(y) or tensor(y).dtype not in LOW or all(n == 1 for n in tensor(y).shape):
        return False
    return not is_tensor(x) or tensor(x).dtype is tensor(y).dtype


def _div_row(x: Arg, y: Arg, *, rounding_mode: Arg = None) -> str | None:
    low = rounding_mode in ("floor", "trunc") and is_low_quotient(x, y)
    return "low_quotient" if low else None


def _low_quotient(b: Any, x: Any, y: Any, *, rounding_mode: str) -> Any:
    """``c10::div_floor_floating`` with each step a row of its own, so that each rounds."""
    if not is_tensor(x):
        x = b.full((), x, y.dtype, y.type.device)
    if rounding_mode == "trunc":
        return b.trunc(b.div(x, y))
    rest = b.fmod(x, y)
    exact = b.div(b.sub(x, rest), y)
    below = b.logical_and(b.ne(rest, 0), b.ne(b.lt(y, 0), b.lt(rest, 0)))
    exact = b.where(below, b.sub(exact, 1), exact)
    whole = b.floor(exact)
    whole = b.where(b.gt(b.sub(exact, whole), 0.5), b.add(whole, 1), whole)
    quotient = b.div(x, y)
    zero = b.full((), 0, y.dtype, y.type.device)
    whole = b.where(b.ne(exact, 0), whole, b.copysign(zero, quotient))
    return b.where(b.eq(y, 0), quotient, whole)


op(
    "low_quotient",
    "input, other, *, rounding_mode",
    torch="torch.ops.aten.div.Tensor_mode",
    vjp=elementwise.DIV,
    type=_div_type,
    expand=_low_quotient,
)
op(
    "div",
    "input, other, *, rounding_mode=None",
    torch="torch.div",
    vjp=elementwise.DIV,
    holds=ranges.content_quotient,
    type=_div_type,
    spellings=("torch.Tensor.div", "torch.divide", "torch.Tensor.divide"),
    overload=_div_row,
    lower=Pointwise(_div),
    costly=True,
    raises=True,
    wide_numbers=frozenset({1}),
    divisor=1,
    number_first="operator.truediv",
    of_numbers=True,
)
op(
    "true_divide",
    "input, other",
    torch="torch.true_divide",
    vjp="expansion",
    spellings=("torch.Tensor.true_divide", "operator.truediv", "torch.Tensor.__truediv__"),
    type=_div_type,
    expand=lambda b, x, y: b.div(x, y),
    number_first="operator.truediv",
)
op(
    "rtruediv",
    "input, other",
    torch="torch.Tensor.__rtruediv__",
    inline=True,
    expand=lambda b, x, y: b.mul(b.reciprocal(x), y),
)


@by_element
def _swapped(cx: TypeContext, x: Arg, y: Arg) -> TensorType:
    """A reflected operator iterates over its operands in the order of the formula."""
    dtype = promoted(cx, (x, y))
    if dtype is bool_:
        raise OpError("the reflected operator is not implemented for bools")
    return operands_type(cx, (y, x), dtype)


op(
    "low_floor_divide",
    "input, other",
    torch="torch.ops.aten.floor_divide.default",
    type=_quotient_type,
    expand=lambda b, x, y: _low_quotient(b, x, y, rounding_mode="floor"),
    number_first="operator.floordiv",
)
binary(
    "floor_divide",
    lambda b, x, y: b.floordiv(x, y),
    operators=("floordiv",),
    costly=True,
    type=_quotient_type,
    raises=True,
    wide_numbers=frozenset({1}),
    divisor=1,
    overload=lambda x, y: "low_floor_divide" if is_low_quotient(x, y) else None,
    number_first="operator.floordiv",
    of_numbers=True,
    holds=ranges.content_floored,
    range=ranges.of_floored,
)
op(
    "low_rfloordiv",
    "input, other",
    torch="anyshape.eager.floor_divided",
    type=_swapped,
    expand=lambda b, x, y: _low_quotient(b, y, x, rounding_mode="floor"),
)
op(
    "rfloordiv",
    "input, other",
    torch="torch.Tensor.__rfloordiv__",
    type=_swapped,
    overload=lambda x, y: "low_rfloordiv" if is_low_quotient(y, x) else None,
    lower=Pointwise(lambda b, x, y: b.floordiv(y, x)),
    raises=True,
    divisor=0,
)
binary(
    "remainder",
    lambda b, x, y: b.mod(x, y),
    operators=("mod",),
    costly=True,
    type=_quotient_type,
    raises=True,
    divisor=1,
    number_first="operator.mod",
    vjp=elementwise.REMAINDER,
    holds=ranges.content_rest,
    range=ranges.of_rest,
)
op(
    "rmod",
    "input, other",
    torch="torch.Tensor.__rmod__",
    type=_swapped,
    lower=Pointwise(lambda b, x, y: b.mod(y, x)),
    raises=True,
    divisor=0,
)
binary(
    "fmod",
    lambda b, x, y: b.fmod(x, y),
    type=_quotient_type,
    raises=True,
    divisor=1,
    costly=True,
    vjp=elementwise.FMOD,
)


def _pow(b: Any, x: Any, y: Any) -> Any:
    special = _POWERS.get(y) if isinstance(y, (int, float)) and hasattr(x, "dtype") else None
    if special is None or (not x.dtype.is_floating and y not in (2, 3)):
        return b.pow(x, y)
    return special(b, x)


# Exponents that ATen computes in their own way (pow_tensor_scalar_optimized_kernel).
_POWERS: dict[float, Body] = {
    1: lambda b, x: x,
    2: lambda b, x: b.mul(x, x),
    3: lambda b, x: b.mul(b.mul(x, x), x),
    -2: lambda b, x: b.div(1.0, b.mul(x, x)),
    0.5: lambda b, x: b.sqrt(x),
    -0.5: lambda b, x: b.div(1.0, b.sqrt(x)),
    -1: lambda b, x: b.reciprocal(x),
}


def _power_row(x: Arg, y: Arg) -> str | None:
    """ATen takes no roots of float16."""
    half = is_tensor(x) and tensor(x).dtype is float16
    return "half_root" if half and isinstance(y, float) and abs(y) == 0.5 else None


def _half_root(b: Any, x: Any, y: float) -> Any:
    """As ``std::pow``: that of -0.0 is 0.0, that of -inf is inf. (Compilers make it a ``sqrt``.)"""
    root = b.sqrt(b.where(b.isinf(x), b.abs(x), b.add(x, 0.0)))
    return root if y > 0 else b.div(1.0, root)


op(
    "half_root",
    "input, exponent",
    torch="torch.ops.aten.pow.Tensor_Scalar",
    type=lambda cx, x, y: _power_type(cx, x, y, promoted(cx, (x, y))),
    lower=Pointwise(_half_root),
)
op(
    "pow",
    "input, exponent",
    overload=_power_row,
    torch="torch.pow",
    vjp=elementwise.POW,
    type=lambda cx, x, y: _power_type(cx, x, y, promoted(cx, (x, y))),
    spellings=("torch.Tensor.pow", "operator.pow", "torch.Tensor.__pow__"),
    lower=Pointwise(_pow),
    costly=True,
)
op(
    "rpow",
    "input, other",
    torch="torch.Tensor.__rpow__",
    aten="pow",
    vjp="expansion",
    type=lambda cx, x, y: _power_type(cx, y, x, _swapped(cx, x, y).dtype),
    expand=lambda b, x, y: b.pow(y, x),
)


def _float_power_type(cx: TypeContext, x: Arg, y: Arg) -> TensorType:
    wide = complex128 if promoted(cx, (x, y)).is_complex else float64
    return _power_type(cx, x, y, wide)


def _power_type(cx: TypeContext, x: Arg, y: Arg, dtype: DType) -> TensorType:
    """torch writes powers of a Python number into a tensor that is row-major; an exponent that is
    one is no operand."""
    t = operands_type(cx, (x, y) if is_tensor(y) else (x,), dtype)
    if dtype.is_integral and isinstance(y, (int, Expr)):
        cx.require(ge(y, 0), "Integers to negative integer powers are not allowed.")
    if dtype is bool_ and is_tensor(y):
        raise OpError("pow is not implemented for bools")
    if tensors_of((x,)):
        return t
    return TensorType(t.dtype, t.device, t.shape, contiguous_strides(cx, t.shape))


op(
    "float_power",
    "input, exponent",
    torch="torch.float_power",
    spellings=("torch.Tensor.float_power",),
    type=_float_power_type,
    expand=lambda b, x, y: b.pow(*(b.to_dtype(v, float64) if is_tensor(v) else v for v in (x, y))),
    vjp="expansion",
)

for _name, _relation in {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}.items():
    _alias = {
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
    }
    _more = _alias.get(_name)
    binary(
        _name,
        lambda b, x, y, scalar=_name: getattr(b, scalar)(x, y),
        dtype=booled,
        compute="promoted",
        operators=(_name,),
        commutes=_name in ("eq", "ne"),
        number_first=None if _name in ("eq", "ne") else f"operator.{_name}",
        holds=ranges.content_of_two(_relation),
        aliases=(f"torch.{_more}", f"torch.Tensor.{_more}") if _more else (),
    )

for _name in ("logical_and", "logical_or", "logical_xor"):
    binary(
        _name,
        lambda b, x, y, scalar=_name: getattr(b, scalar)(b.cast(x, bool_), b.cast(y, bool_)),
        dtype=booled,
        compute="promoted",
    )


def _of_bits(cx: TypeContext, operands: Sequence[Arg]) -> DType:
    dtype = promoted(cx, operands)
    if dtype.category not in ("bool", "int"):
        raise OpError(f"not implemented for {dtype}, which has no bits to combine")
    return dtype


def _shifted(cx: TypeContext, operands: Sequence[Arg]) -> DType:
    dtype = _of_bits(cx, operands)
    if dtype is bool_:
        raise OpError("shifts are not implemented for bools")
    return dtype


for _name, _scalar, _operator in (
    ("bitwise_and", "bit_and", "and_"),
    ("bitwise_or", "bit_or", "or_"),
    ("bitwise_xor", "bit_xor", "xor"),
    ("bitwise_left_shift", "shl", "lshift"),
    ("bitwise_right_shift", "shr", "rshift"),
):
    _shifts = "shift" in _name
    _reflected = f"torch.Tensor.__r{_operator.strip('_')}__"
    binary(
        _name,
        lambda b, x, y, scalar=_scalar: getattr(b, scalar)(x, y),
        operators=(_operator,),
        commutes=not _shifts,
        aliases=() if _shifts else (_reflected,),
        type=PointwiseRule(_shifted if _shifts else _of_bits, 2),
    )

binary(
    "maximum",
    lambda b, x, y: b.maximum(x, y),
    vjp=elementwise.MAXIMUM,
    holds=ranges.content_of_two(maximum),
)
binary(
    "minimum",
    lambda b, x, y: b.minimum(x, y),
    vjp=elementwise.MINIMUM,
    holds=ranges.content_of_two(minimum),
)
for _name, _rules in (("fmax", elementwise.FMAX), ("fmin", elementwise.FMIN)):
    binary(_name, lambda b, x, y, scalar=_name: getattr(b, scalar)(x, y), vjp=_rules)
binary(
    "atan2",
    lambda b, x, y: b.atan2(x, y),
    costly=True,
    dtype=floated,
    aliases=("torch.arctan2", "torch.Tensor.arctan2"),
    vjp=elementwise.ATAN2,
)
binary(
    "copysign",
    lambda b, x, y: b.copysign(x, y),
    dtype=floated,
    vjp=elementwise.COPYSIGN,
)
binary("hypot", lambda b, x, y: b.hypot(x, y), vjp=elementwise.HYPOT)
binary("nextafter", lambda b, x, y: b.nextafter(x, y))


def _times_log(log: str) -> Callable[..., Any]:
    def body(b: Any, x: Any, y: Any) -> Any:
        y = b.cast(y, getattr(x, "dtype", None) or y.dtype)  # either may be a number
        return b.where(b.isnan(y), y, b.where(b.eq(x, 0), 0.0, b.mul(x, getattr(b, log)(y))))

    return body


binary(
    "xlogy",
    _times_log("log"),
    dtype=floated,
    aliases=("torch.special.xlogy",),
    vjp=elementwise.XLOGY,
)
op(
    "xlog1py",
    "input, other",
    torch="torch.special.xlog1py",
    type=PointwiseRule(floated, 2),
    lower=Pointwise(_times_log("log1p")),
    vjp=elementwise.XLOG1PY,
)
binary("heaviside", lambda b, x, y: b.where(b.eq(x, 0), y, b.cast(b.gt(x, 0), x.dtype)))


def _logaddexp(b: Any, x: Any, y: Any) -> Any:
    high = b.maximum(x, y)
    infinite = b.logical_and(b.isinf(x), b.eq(x, y))
    return b.where(infinite, x, b.add(high, b.log1p(b.exp(b.neg(b.abs(b.sub(x, y)))))))


def _logaddexp2(b: Any, x: Any, y: Any) -> Any:
    high = b.maximum(x, y)
    infinite = b.logical_and(b.isinf(x), b.eq(x, y))
    power = b.exp2(b.neg(b.abs(b.sub(x, y))))
    return b.where(infinite, x, b.add(high, b.mul(b.log1p(power), 1.4426950408889634)))


binary("logaddexp", _logaddexp, vjp=elementwise.LOGADDEXP)
binary("logaddexp2", _logaddexp2, vjp=elementwise.LOGADDEXP2)
