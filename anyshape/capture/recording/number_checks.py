"""Numbers that do not fit the dtype which an operator converts them to: eager raises there.

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
from anyshape.symbolic import Expr


def check_numbers(
    builder: Builder, name: str, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]
) -> None:
    """Every number that row ``name`` converts to a dtype fits it."""
    for one in converted(builder.cx, name, args, kwargs):
        check_number(builder, one.number, one.dtype, one.floating)


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
