"""Numbers that do not fit the dtype which an operator converts them to, or its limits: eager raises
there.

In: a row's arguments as the program gives them. Out: nothing; what is refused raises ``OpError``, a
size is guarded or checked, a number that data decides is checked while running.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Arg, ScalarType, Value
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ops.build import Builder
from anyshape.ops.converted import bounds, converted, require_fitting, require_size_fitting
from anyshape.ops.refusals import LIMITS
from anyshape.ops.table import OPS
from anyshape.symbolic import Expr, ge, le

LARGE = 2**62
"""No size comes near to it."""


def check_numbers(
    builder: Builder, name: str, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]
) -> None:
    """Every number that row ``name`` converts to a dtype fits it, and none is above its limit."""
    for one in converted(builder.cx, name, args, kwargs):
        check_number(builder, one.number, one.dtype, one.floating)
    if name in LIMITS:
        given = OPS[name].signature.bind(args, kwargs)
        for parameter, limits in LIMITS[name].items():
            _check_limits(builder, f"{parameter} of {name}", given[parameter], limits)


def _check_limits(builder: Builder, what: str, number: Any, limits: tuple[float, float]) -> None:
    """Of a size, and of a computed number of which any value in the limits will do: others are
    known while capturing."""
    if isinstance(number, Value) and isinstance(number.type, ScalarType):
        number = number.type.expr
    least, greatest = limits
    if isinstance(number, Expr):
        if abs(least) < LARGE:
            builder.cx.require(ge(number, math.ceil(least)), f"{what} is less than {least}")
        if abs(greatest) < LARGE:
            builder.cx.require(le(number, math.floor(greatest)), f"{what} is above {greatest}")
    elif isinstance(number, (Scalar, ScalarInput)):
        inside = (_compared("ge", number, least), _compared("le", number, greatest))
        builder.call("number", "check", (Scalar("bool", "and", inside),))


def check_number(builder: Builder, number: Any, dtype: DType, floating: bool = False) -> None:
    """The number fits the dtype."""
    if isinstance(number, Value) and isinstance(number.type, ScalarType):
        number = number.type.expr
    if isinstance(number, Expr):
        require_size_fitting(builder.cx, number, dtype, floating)
    elif isinstance(number, (Scalar, ScalarInput)):
        _check_data(builder, number, dtype)
    else:
        require_fitting(number, dtype, floating)


def _check_data(builder: Builder, number: Scalar | ScalarInput, dtype: DType) -> None:
    low, high = bounds(dtype, floating=True) if number.kind != "bool" else (0, math.inf)
    if high == math.inf:
        return
    fits = Scalar("bool", "and", (_compared("ge", number, low), _compared("le", number, high)))
    if dtype.is_floating:
        unbounded = Scalar("bool", "not", (Scalar("bool", "isfinite", (number,)),))
        fits = Scalar("bool", "or", (unbounded, fits))
    builder.call("number", "check", (fits,))


def _compared(op: str, number: Scalar | ScalarInput, bound: float) -> Scalar:
    return Scalar("bool", op, (number, bound))
