"""Which parameters ATen converts to a dtype, and to which, refusing numbers that it cannot hold.

In: a row's name and arguments as the program gives them. Out: each number that is converted, with
the dtype. What is not in the table wraps instead, as a tensor's element does: operands of
arithmetic and comparisons. Numbers of the program and sizes are refused here; numbers that data
decides by who records the program (``capture/recording/number_checks.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from anyshape.ir.dtypes import DType, bfloat16, bool_, float16, float32, int64
from anyshape.ir.graph import Arg
from anyshape.nouns import frozen
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.rules import is_tensor, number_category, promoted, tensors_of
from anyshape.ops.table import OPS
from anyshape.symbolic import Expr, all_of, ge, le

Bound: TypeAlias = Mapping[str, Any]
Chosen: TypeAlias = Callable[[TypeContext, Bound], "DType | None"]

LARGEST = {float16: 65504.0, bfloat16: 3.3895313892515355e38, float32: 3.4028234663852886e38}
"""The largest finite numbers of the dtypes that are narrower than Python's float."""
HALVES = (float16, bfloat16)
INT64 = range(-(2**63), 2**63)


# --- the dtype that a parameter is converted to; None where it is not ---


def _own(cx: TypeContext, bound: Bound) -> DType | None:
    """The dtype of the first tensor."""
    found = tensors_of(bound.values())
    return found[0].dtype if found else None


def _wide(cx: TypeContext, bound: Bound) -> DType | None:
    """The dtype of the first tensor, as kernels compute in it."""
    own = _own(cx, bound)
    return float32 if own in HALVES else own


def _made(cx: TypeContext, bound: Bound) -> DType | None:
    """The dtype that is asked for; that of a tensor to be like, if there is one."""
    chosen = bound.get("dtype") or _own(cx, bound)
    if chosen is None and number_category(bound["fill_value"]) == "float":
        return cx.default_dtype
    return chosen


def _asked(cx: TypeContext, bound: Bound) -> DType | None:
    return bound["dtype"] or cx.default_dtype


def _asked_of_scalar(cx: TypeContext, bound: Bound) -> DType | None:
    """As ``_asked``; half precision has infinities."""
    asked = _asked(cx, bound)
    return None if asked in HALVES else asked


def _counted(cx: TypeContext, bound: Bound) -> DType | None:
    """The dtype in which numbers of a range are counted."""
    asked = bound["dtype"]
    if asked is None or not asked.is_floating:
        return None if asked is None else int64
    return float32 if asked in HALVES else None


def _of(*names: str) -> Chosen:
    """The dtype that these operands are promoted to."""
    return lambda cx, bound: promoted(cx, [bound[name] for name in names])


def _operand(*names: str) -> Chosen:
    """As ``_of``, by way of a tensor, in which half precision has infinities."""

    def chosen(cx: TypeContext, bound: Bound) -> DType | None:
        dtype = promoted(cx, [bound[name] for name in names])
        return None if dtype in HALVES else dtype

    return chosen


def _exponent(cx: TypeContext, bound: Bound) -> DType | None:
    dtype = promoted(cx, (bound["input"], bound["exponent"]))
    return None if dtype.is_floating and dtype not in HALVES else dtype


def _half(cx: TypeContext, bound: Bound) -> DType | None:
    """Half precision of the first tensor; wider dtypes are not checked."""
    own = _own(cx, bound)
    return own if own in HALVES else None


def _floated(cx: TypeContext, bound: Bound) -> DType | None:
    own = _own(cx, bound)
    return own if own is None or own.is_floating else cx.default_dtype


def _bounded(*names: str) -> Mapping[str, Chosen]:
    return {name: _of("input", *names) for name in names}


_ALPHA = {"alpha": _of("input", "other")}
_PRODUCT = dict.fromkeys(("alpha", "beta"), _wide)
_FILLED = {"fill_value": _made}

CONVERTED: Mapping[str, Mapping[str, Chosen]] = MappingProxyType(
    {
        **dict.fromkeys(("add", "sub", "rsub"), _ALPHA),
        **dict.fromkeys(("addmm", "addbmm", "baddbmm"), _PRODUCT),
        "addmv": dict.fromkeys(("alpha", "beta"), _own),
        "addr": dict.fromkeys(("alpha", "beta"), _of("input", "vec1", "vec2")),
        "addcmul": {"value": _wide},
        "addcdiv": {"value": _wide},
        "lerp": {"weight": _wide},
        "clamp": _bounded("min", "max"),
        "clamp_min": _bounded("min"),
        "clamp_max": _bounded("max"),
        "pow": {"exponent": _exponent},
        "where": dict.fromkeys(("input", "other"), _operand("input", "other")),
        "where_method": dict.fromkeys(("input", "other"), _operand("input", "other")),
        **dict.fromkeys(("full", "full_like", "new_full"), _FILLED),
        "scalar_tensor": {"s": _asked_of_scalar},
        "torch_arange": dict.fromkeys(("start", "end", "step"), _counted),
        "linspace": dict.fromkeys(("start", "end"), _asked),
        **dict.fromkeys(("filled", "masked_fill", "index_fill"), {"value": _own}),
        "scatter": {"src": _own},
        "index_add": {"alpha": _own},
        "torch_pad": {"value": _own},
        "constant_pad_nd": {"value": _own},
        "threshold": {"threshold": _wide, "value": _own},
        "hardtanh": dict.fromkeys(("min_val", "max_val"), _own),
        "rrelu": dict.fromkeys(("lower", "upper"), _wide),
        "leaky_relu": {"negative_slope": _wide},
        **dict.fromkeys(("elu", "celu"), {"alpha": _wide}),
        "softplus": dict.fromkeys(("beta", "threshold"), _wide),
        "hardshrink": {"lambd": _own},
        "softshrink": {"lambd": _own},
        "logit": {"eps": _floated},
        "normalize": {"eps": _own},
        "local_response_norm": {"beta": _half},
        "gaussian_nll_loss": {"eps": _own},
        "hinge_embedding_loss": {"margin": _own},
        "cosine_similarity": {"eps": _wide},
    }
)
"""By row and parameter. Rows that write their first argument are as those that they are made of."""
FLOATS = frozenset({("torch_pad", "value")})
"""Parameters that are floats to ATen, whatever the program gives."""
FACTORS = frozenset({"add", "sub", "rsub", "addr"})
"""Rows whose factors have to be of the result's category, or a lower one."""


@frozen
class Converted:
    """A number and the dtype that it must fit; ``floating``: it is a float by then."""

    number: Any
    dtype: DType
    floating: bool


def converted(
    cx: TypeContext, name: str, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]
) -> Iterator[Converted]:
    """The numbers among the arguments of row ``name`` that eager converts to a dtype."""
    row = OPS.get(name)
    if row is None:
        return
    chosen = CONVERTED.get(row.functional or name, {})
    _refuse_unsigned((*args, *kwargs.values()), bool(chosen))
    if not chosen:
        return
    bound = row.signature.bind(args, kwargs)
    for parameter, dtype_of in chosen.items():
        number = bound.get(parameter)
        if number is None or is_tensor(number):
            continue
        dtype = dtype_of(cx, bound)
        if dtype is None:
            continue
        if (row.functional or name) in FACTORS:
            _refuse_factor(number, dtype)
        if not _is_free(dtype):
            floating = (name, parameter) in FLOATS or number_category(number) == "float"
            yield Converted(number, dtype, floating)


def _refuse_unsigned(args: tuple[Arg, ...], converts: bool) -> None:
    """A number past the int64s is a uint64 to ATen, which is not promoted with bools."""
    if any(type(arg) is int and arg not in INT64 for arg in args):
        tensors = tensors_of(args)
        if converts or not tensors or any(t.dtype is bool_ for t in tensors):
            raise OpError("a number past 2**63 - 1 is of another dtype")


def _refuse_factor(number: Any, dtype: DType) -> None:
    category = number_category(number)
    if category == "bool" and dtype is not bool_:
        raise OpError("Boolean alpha only supported for Boolean results.")
    if category == "float" and not (dtype.is_floating or dtype.is_complex):
        raise OpError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )


# --- does a number fit? ---


def _is_free(dtype: DType) -> bool:
    """Does eager convert any number to the dtype?"""
    return dtype is bool_ or dtype.is_complex


def bounds(dtype: DType, floating: bool) -> tuple[float, float]:
    """Between which numbers eager converts a number, floating or not, to the dtype: negative
    integers wrap to unsigned ones. Infinities are no matter of bounds for floats."""
    if dtype.is_floating:
        return -LARGEST.get(dtype, math.inf), LARGEST.get(dtype, math.inf)
    high = (1 << (8 * dtype.size_bytes - dtype.signed)) - 1
    low = -high - 1 if dtype.signed else 0 if floating else -high
    return low, high


def does_not_fit(b: Any, value: Any, dtype: DType) -> tuple[Any, ...]:
    """Where the number in a tensor is one that eager refuses to convert to the dtype: nothing where
    none is."""
    source = value.type.dtype
    if source is dtype or _is_free(dtype) or _is_free(source):
        return ()
    low, high = bounds(dtype, source.is_floating)
    inside = b.logical_and(b.ge(value, low), b.le(value, high))
    if not dtype.is_floating:
        return (b.logical_not(inside),)
    if not source.is_floating or high == math.inf:
        return ()
    finite = b.lt(b.abs(value), math.inf)
    return (b.logical_and(finite, b.logical_not(inside)),)


def require_fitting(value: Any, dtype: DType, floating: bool = False) -> None:
    """Eager raises where a number of the program is out of the range of the dtype."""
    if type(value) not in (int, float, complex) or _is_free(dtype):
        return
    if isinstance(value, complex):
        if value.imag != 0:
            raise OpError(f"value cannot be converted to type {dtype} without overflow")
        value = value.real
    if dtype.is_floating and not math.isfinite(value):
        return
    low, high = bounds(dtype, floating or isinstance(value, float))
    if not low <= value <= high:
        raise OpError(f"value cannot be converted to type {dtype} without overflow")


def require_size_fitting(cx: TypeContext, size: Expr, dtype: DType, floating: bool = False) -> None:
    """Eager raises where a size is out of the range of the dtype."""
    if _is_free(dtype) or dtype is int64:
        return
    low, high = bounds(dtype, floating)
    if high < 2**63:
        message = f"value cannot be converted to type {dtype} without overflow"
        cx.require(all_of(ge(size, int(low)), le(size, int(high))), message)
