"""What losses have in common: the old flags, the reduction, the type of the result."""

from __future__ import annotations

import functools
from typing import Any

from anyshape.ir.dtypes import DType, promote_two
from anyshape.ir.graph import Arg
from anyshape.ops.context import OpError
from anyshape.ops.reduce import cast

OLD_FLAGS = "size_average=None, reduce=None"


def reduction_of(size_average: Arg, reduce: Arg, reduction: Arg) -> Arg:
    """The old flags in the words of the new one."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is not None and not reduce:
        return "none"
    return "mean" if size_average is None or size_average else "sum"


def finish(b: Any, x: Any, reduction: Arg, dtype: Any = None) -> Any:
    """The loss of each element, its sum or its mean, in ``dtype``."""
    if reduction not in ("none", "sum", "mean", "elementwise_mean"):
        raise OpError(f"{reduction} is not a valid value for reduction")
    made = x if reduction == "none" else b.sum(x) if reduction == "sum" else b.mean(x)
    return made if dtype is None else cast(b, made, dtype)


def promoted(*given: Any) -> DType:
    """The type that holds all that is given, whatever their ranks: eager broadcasts them first."""
    return functools.reduce(promote_two, [v.dtype for v in given if v is not None])
