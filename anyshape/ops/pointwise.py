"""Elementwise rows of one operand, and ``where``, clamps, casts and copies.

Each row's body says what one element becomes; composites are bodies too, so that below float32 they
are rounded once, as eager does. Binary rows: ``binary.py``; activations: ``activation.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anyshape.ir.dtypes import DType, bool_, int64
from anyshape.ir.graph import Arg, TensorType
from anyshape.ir.loops import SCALAR_OPS
from anyshape.nouns import frozen
from anyshape.ops import parts, ranges, write_back
from anyshape.ops.binary import scaled
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.converted import does_not_fit
from anyshape.ops.gradients import elementwise
from anyshape.ops.layout import formatted_strides, preserved_strides
from anyshape.ops.rules import (
    PointwiseRule,
    Rule,
    booled,
    by_element,
    floated,
    is_tensor,
    laid_like_first,
    new,
    operands_type,
    pointwise_type,
    promoted,
    realed,
    tensor,
    tensors_of,
)
from anyshape.ops.table import ContentRule, OpDef, Pointwise, op

Body = Callable[..., Any]
COSTLY = 8
"""Additions that an operator costs from which on its row is costly."""


def unary(
    name: str,
    body: Body,
    *,
    dtype: Callable[..., DType] = floated,
    torch: str = "",
    aliases: tuple[str, ...] = (),
    own: bool = False,
    method: bool = True,
    laid_like: bool = False,
    holds: ContentRule | None = None,
    rule: Rule | None = None,
) -> OpDef:
    """A row ``name(input)`` with the spellings torch.name and torch.Tensor.name."""
    rule = rule or PointwiseRule(dtype)
    function = torch or f"torch.{name}"
    spellings = (f"torch.Tensor.{name}",) if method else ()
    return op(
        name,
        "input",
        torch=function,
        spellings=(*spellings, *aliases),
        type=laid_like_first(rule) if laid_like else rule,
        lower=Pointwise(body, "own" if own else "result"),
        costly=name in SCALAR_OPS and SCALAR_OPS[name].cost >= COSTLY,
        vjp=elementwise.UNARY.get(name),
        holds=holds,
    )


@frozen
class _AskedOfFloats(PointwiseRule):
    """Floats are compared, ``beside_number`` with one at last; for integers a tensor is filled."""

    beside_number: bool = False

    def __call__(self, cx: TypeContext, *args: Arg, **kwargs: Arg) -> TensorType:
        x = tensor(args[0])
        if not x.dtype.is_floating and not x.dtype.is_complex:
            return laid_like_first(PointwiseRule(booled))(cx, *args)
        absolute = operands_type(cx, args, bool_)
        return pointwise_type(cx, [absolute], bool_, True) if self.beside_number else absolute


@frozen
class _Magnitude(PointwiseRule):
    """Of complex numbers eager makes a tensor of real ones in the argument's format first."""

    def __call__(self, cx: TypeContext, *args: Arg, **kwargs: Arg) -> TensorType:
        rule: Rule = PointwiseRule(self.dtype)
        return (laid_like_first(rule) if tensor(args[0]).dtype.is_complex else rule)(cx, *args)


def _ints_stay(scalar: str) -> Body:
    """The scalar operator on floats, nothing on integers."""

    def body(b: Any, x: Any) -> Any:
        return getattr(b, scalar)(x) if x.dtype.is_floating else x

    return body


def _named(scalar: str) -> Body:
    return lambda b, x: getattr(b, scalar)(x)


for _name in (
    *("exp", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "reciprocal"),
    *("sin", "cos", "sinh", "cosh", "asinh", "atanh", "tanh", "atan", "asin", "acos", "tan"),
    "acosh",
):
    unary(_name, _named(_name))
for _name, _alias in (("exp2", "exp2"), ("erf", "erf"), ("erfc", "erfc"), ("digamma", "digamma")):
    unary(_name, _named(_name), aliases=(f"torch.special.{_alias}",))
unary("erfinv", _named("erfinv"), aliases=("torch.special.erfinv",))
unary("lgamma", _named("lgamma"), aliases=("torch.special.gammaln",))
unary("sigmoid", _named("sigmoid"), aliases=("torch.special.expit",))
op(
    "nn_sigmoid",
    "input",
    torch="torch.nn.functional.sigmoid",
    vjp="expansion",
    type=PointwiseRule(floated),
    expand=lambda b, x: b.sigmoid(x),
)
op(
    "nn_tanh",
    "input",
    torch="torch.nn.functional.tanh",
    vjp="expansion",
    type=PointwiseRule(floated),
    expand=lambda b, x: b.tanh(x),
)

for _name in ("floor", "ceil", "trunc"):
    unary(_name, _ints_stay(_name), dtype=promoted, holds=ranges.ROUNDED.get(_name))
for _name, _of, _type in (
    ("arcsin", "asin", floated),
    ("arccos", "acos", floated),
    ("arctan", "atan", floated),
    ("arcsinh", "asinh", floated),
    ("arccosh", "acosh", floated),
    ("arctanh", "atanh", floated),
    ("fix", "trunc", promoted),
    ("negative", "neg", promoted),
):
    op(
        _name,
        "input",
        torch=f"torch.{_name}",
        spellings=(f"torch.Tensor.{_name}",),
        type=PointwiseRule(_type),
        expand=lambda b, x, of=_of: b.call(of, x),
        vjp="expansion",
    )
op(
    "absolute",
    "input",
    torch="torch.absolute",
    spellings=("torch.Tensor.absolute",),
    type=_Magnitude(realed),
    expand=lambda b, x: b.abs(x),
    vjp="expansion",
)


def _negated(b: Any, x: Any) -> Any:
    return b.neg(x)


def _not_bool(rule: Callable[..., DType], name: str) -> Callable[..., DType]:
    def dtype(cx: TypeContext, operands: Any) -> DType:
        found = rule(cx, operands)
        if found is bool_:
            raise OpError(f"{name} is not defined for bool tensors")
        return found

    return dtype


def _counted(cx: TypeContext, operands: Any) -> DType:
    dtype = promoted(cx, operands)
    return int64 if dtype is bool_ else dtype


unary(
    "neg",
    _negated,
    dtype=_not_bool(promoted, "neg"),
    holds=ranges.content_negated,
    aliases=("operator.neg", "torch.Tensor.__neg__"),
)
unary(
    "abs",
    _named("abs"),
    rule=_Magnitude(_not_bool(realed, "abs")),
    aliases=("operator.abs", "torch.Tensor.__abs__"),
)
unary("sign", _named("sign"), dtype=promoted)
unary("sgn", _named("sign"), dtype=promoted)


def _positive(b: Any, x: Any) -> Any:
    if x.dtype is bool_:
        raise OpError("The `+` operator, on a bool tensor is not supported.")
    return x


op(
    "positive",
    "input",
    torch="torch.positive",
    inline=True,
    expand=_positive,
    alias="view",
    write_back=write_back.same,
    part=parts.same,
    spellings=("torch.Tensor.positive", "operator.pos", "torch.Tensor.__pos__"),
)
unary("square", lambda b, x: b.mul(x, x), dtype=_counted)
unary("frac", lambda b, x: b.sub(x, b.trunc(x)), dtype=promoted)
unary("deg2rad", lambda b, x: b.mul(x, 0.017453292519943295), laid_like=True)
unary("rad2deg", lambda b, x: b.mul(x, 57.29577951308232), laid_like=True)


def _sinc(b: Any, x: Any) -> Any:
    scaled = b.mul(x, 3.141592653589793)
    return b.where(b.eq(x, 0), 1.0, b.div(b.sin(scaled), scaled))


unary("sinc", _sinc, aliases=("torch.special.sinc",))
unary("isnan", _named("isnan"), dtype=booled, own=True)
unary("isinf", _named("isinf"), own=True, rule=_AskedOfFloats(beside_number=True))
unary("isfinite", _named("isfinite"), own=True, rule=_AskedOfFloats(beside_number=False))
unary(
    "isposinf",
    lambda b, x: b.eq(x, float("inf")) if x.dtype.is_floating else b.const(False, bool_),
    dtype=booled,
    own=True,
)
unary(
    "isneginf",
    lambda b, x: b.eq(x, float("-inf")) if x.dtype.is_floating else b.const(False, bool_),
    dtype=booled,
    own=True,
)
unary("signbit", _named("signbit"), dtype=booled, own=True)
unary("logical_not", lambda b, x: b.logical_not(b.cast(x, bool_)), dtype=booled, own=True)
unary(
    "bitwise_not",
    _named("bit_not"),
    dtype=promoted,
    aliases=("operator.invert", "operator.inv", "torch.Tensor.__invert__"),
)


def _ordered(cx: TypeContext, operands: Sequence[Arg]) -> DType:
    dtype = promoted(cx, operands)
    if dtype.is_complex:
        raise OpError("round is not implemented for complex numbers")
    return dtype


def _round(b: Any, x: Any, *, decimals: int | None = None) -> Any:
    if not x.dtype.is_floating:
        return x
    if not decimals:
        return b.round(x)
    ten = 10.0 ** abs(decimals)
    if decimals > 0:
        return b.div(b.round(b.mul(x, ten)), ten)
    return b.mul(b.round(b.div(x, ten)), ten)


op(
    "round",
    "input, *, decimals=None",
    torch="anyshape.eager.round_",
    vjp=elementwise.ROUND,
    spellings=("torch.round", "torch.Tensor.round"),
    by_value=("decimals",),
    type=PointwiseRule(_ordered),
    lower=Pointwise(_round),
)


def _nan_to_num(b: Any, x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    finite = b.where(b.eq(x, float("-inf")), neginf, b.where(b.eq(x, float("inf")), posinf, x))
    return b.where(b.isnan(x), nan, finite)


_LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "bfloat16": 3.3895313892515355e38,
    "float16": 65504.0,
}


def _nan_to_num_expand(
    b: Any, x: Any, nan: Arg = 0.0, posinf: Arg = None, neginf: Arg = None
) -> Any:
    if not x.dtype.is_floating:
        return b.clone(x)
    largest = _LARGEST[x.dtype.name]
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    return b.nan_to_num_core(x, 0.0 if nan is None else nan, high, low)


op(
    "nan_to_num",
    "input, nan=None, posinf=None, neginf=None",
    torch="torch.nan_to_num",
    spellings=("torch.Tensor.nan_to_num",),
    type=laid_like_first(PointwiseRule(promoted, 1)),
    expand=_nan_to_num_expand,
    vjp="expansion",
)
op(
    "nan_to_num_core",
    "input, nan, posinf, neginf",
    torch="anyshape.eager.nan_to_num_core",
    type=PointwiseRule(promoted, 1),
    lower=Pointwise(_nan_to_num),
    vjp=elementwise.NAN_TO_NUM,
)


def _logit(b: Any, x: Any, eps: Any = None) -> Any:
    if eps is not None:
        high = 1.0 - eps
        x = b.where(b.lt(x, eps), eps, b.where(b.gt(x, high), high, x))
    return b.log(b.div(x, b.sub(1.0, x)))


op(
    "logit",
    "input, eps=None",
    torch="torch.logit",
    spellings=("torch.Tensor.logit", "torch.special.logit"),
    by_value=("eps",),
    type=PointwiseRule(floated, 1),
    lower=Pointwise(_logit),
    vjp=elementwise.LOGIT,
)


# --- casts, copies, where ---


def _to_dtype_type(cx: TypeContext, x: Any, dtype: DType) -> TensorType:
    t = tensor(x)
    return TensorType(dtype, t.device, t.shape, preserved_strides(cx, t))


op(
    "to_dtype",
    "input, dtype",
    torch="anyshape.eager.to_dtype",
    vjp=elementwise.TO_DTYPE,
    type=_to_dtype_type,
    lower=Pointwise(lambda b, x, dtype: b.cast(x, dtype), "own"),
    range=ranges.of_cast,
    holds=ranges.content_cast,
    keeps_elements=True,
)


def _clone_type(cx: TypeContext, x: Any, *, memory_format: Arg = None) -> TensorType:
    t = tensor(x)
    return TensorType(t.dtype, t.device, t.shape, formatted_strides(cx, t, memory_format))


op(
    "clone",
    "input, *, memory_format=None",
    torch="torch.clone",
    vjp=elementwise.CLONE,
    spellings=("torch.Tensor.clone",),
    type=_clone_type,
    lower=Pointwise(lambda b, x, *, memory_format=None: x),
    range=ranges.same,
    holds=ranges.content,
)


def _where_type(cx: TypeContext, condition: Any, x: Any, y: Any) -> TensorType:
    operands = (condition, x, y)
    return operands_type(cx, operands, promoted(cx, operands[1:]))


op(
    "where",
    "condition, input, other",
    torch="torch.where",
    vjp=elementwise.WHERE,
    type=_where_type,
    lower=Pointwise(lambda b, c, x, y: b.where(b.cast(c, bool_), x, y), own=(0,)),
    range=ranges.of_where,
)
op(
    "where_method",
    "input, condition, other",
    torch="torch.Tensor.where",
    vjp="expansion",
    type=lambda cx, x, c, y: _where_type(cx, c, x, y),
    expand=lambda b, x, c, y: b.where(c, x, y),
)


def _masked_fill_type(cx: TypeContext, x: Any, mask: Any, value: Any) -> TensorType:
    if tensor(mask).dtype is not bool_:
        raise OpError("masked_fill_ only supports boolean masks")
    if tensor(mask).device != tensor(x).device:
        raise OpError("expected self and mask to be on the same device")
    if is_tensor(value) and tensor(value).rank:
        raise OpError("masked_fill_ only supports a 0-dimensional value tensor")
    return new(cx, tensor(x), cx.broadcast_shapes((tensor(x).shape, tensor(mask).shape)))


op(
    "masked_fill",
    "input, mask, value",
    torch="torch.masked_fill",
    vjp=elementwise.MASKED_FILL,
    spellings=("torch.Tensor.masked_fill",),
    type=_masked_fill_type,
    lower=Pointwise(lambda b, x, m, v: b.where(b.cast(m, bool_), v, x), own=(1,)),
    refuses=lambda b, x, m, v: does_not_fit(b, v, x.dtype) if is_tensor(v) else (),
    reads_number=True,
)

# --- three operands ---


def _lerp(b: Any, x: Any, end: Any, weight: Any) -> Any:
    """ATen's form: from the nearer end, so that weight 1 gives ``end`` exactly."""
    gap = b.sub(end, x)
    near = b.add(x, b.mul(weight, gap))
    if isinstance(weight, (int, float)):
        return near if abs(weight) < 0.5 else b.sub(end, b.mul(gap, 1.0 - weight))
    far = b.sub(end, b.mul(gap, b.sub(1.0, weight)))
    return b.where(b.lt(b.abs(weight), 0.5), near, far)


@by_element
def _lerp_type(cx: TypeContext, *operands: Arg) -> TensorType:
    """A number for a weight is none of eager's operands."""
    tensors = tensors_of(operands)
    return pointwise_type(cx, tensors, tensors[0].dtype)


op(
    "lerp",
    "input, end, weight",
    torch="torch.lerp",
    vjp=elementwise.LERP,
    spellings=("torch.Tensor.lerp",),
    type=_lerp_type,
    lower=Pointwise(_lerp),
    wide_numbers=frozenset({1, 2}),
)
for _name, _combine, _vjp in (
    ("addcmul", "mul", elementwise.ADDCMUL),
    ("addcdiv", "div", elementwise.ADDCDIV),
):
    op(
        _name,
        "input, tensor1, tensor2, *, value=1",
        torch=f"torch.{_name}",
        vjp=_vjp,
        spellings=(f"torch.Tensor.{_name}",),
        type=PointwiseRule(),
        lower=Pointwise(
            lambda b, x, p, q, *, value=1, scalar=_combine: b.add(
                x, getattr(b, scalar)(scaled(b, p, value), q)
            )
        ),
        wide_numbers=frozenset({"value"}),
    )

# --- clamps ---


def _clamp(b: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    if low is not None:
        x = b.maximum(x, low)
    return x if high is None else b.minimum(x, high)


@by_element
def _clamp_type(cx: TypeContext, x: Arg, low: Arg = None, high: Arg = None) -> TensorType:
    if low is None and high is None:
        raise OpError("torch.clamp: At least one of 'min' or 'max' must not be None")
    iterated = tuple(operand for operand in (x, low, high) if is_tensor(operand))
    dtype = promoted(cx, (x, low, high))
    if dtype is bool_ and len(iterated) == 1:
        raise OpError("clamp is not implemented for bools")
    return operands_type(cx, iterated, dtype)


op(
    "clamp",
    "input, min=None, max=None",
    torch="torch.clamp",
    vjp=elementwise.CLAMP,
    type=_clamp_type,
    lower=Pointwise(_clamp),
    spellings=("torch.Tensor.clamp", "torch.clip", "torch.Tensor.clip"),
)
op(
    "clamp_min",
    "input, min",
    torch="torch.clamp_min",
    vjp=elementwise.CLAMP_MIN,
    spellings=("torch.Tensor.clamp_min",),
    type=by_element(lambda cx, x, low: _clamp_type(cx, x, low)),
    expand=lambda b, x, low: b.clamp(x, low),
)
op(
    "clamp_max",
    "input, max",
    torch="torch.clamp_max",
    vjp=elementwise.CLAMP_MAX,
    spellings=("torch.Tensor.clamp_max",),
    type=by_element(lambda cx, x, high: _clamp_type(cx, x, None, high)),
    expand=lambda b, x, high: b.clamp(x, None, high),
)
