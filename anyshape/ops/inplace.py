"""In-place rows, made from the rows that compute the new value.

``add_`` has the parameters of ``add``, writes its first argument and returns it. The new value is
cast to the dtype and expanded to the shape of what is written, which the functionalizing pass does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from anyshape.ir.dtypes import CATEGORIES, bool_
from anyshape.ir.graph import CHECK, Arg, TensorType
from anyshape.ops import (
    binary,
    create,
    index,
    linear,
    pointwise,
    random,
    reduce,
    scatter,
)
from anyshape.ops.build import refuse_complex
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.functions import activation
from anyshape.ops.gradients.elementwise import COVERED
from anyshape.ops.linear.products import require_added
from anyshape.ops.rules import is_tensor, like, new, same_as, tensor
from anyshape.ops.table import OPS, Asserts, Assigns, Checks, OpDef, Signature, add_row, op
from anyshape.symbolic import eq

FAMILIES = (activation, binary, create, linear, pointwise, random, reduce, scatter)
"""The modules whose rows are made in-place here, so that they come first."""

NAMES = """
abs acos acosh add addbmm addcdiv addcmul addmm addmv addr asin asinh atan atan2 atanh baddbmm
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp
clamp_max clamp_min copysign cos cosh cumprod cumsum deg2rad digamma div eq erf erfc erfinv exp exp2
expm1 fix floor floor_divide fmod frac ge gt heaviside hypot index_add index_copy index_fill
index_put le lerp lgamma log log10 log1p log2 logical_and logical_not logical_or logical_xor logit
lt masked_fill masked_scatter mul nan_to_num ne neg nextafter pow rad2deg reciprocal relu remainder
round rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign sin sinc sinh sqrt square sub tan
tanh tril triu true_divide trunc xlogy arccos arccosh arcsin arcsinh arctan arctanh negative
""".split()
FUNCTIONAL_NAMES = """
celu elu hardtanh leaky_relu relu6 rrelu selu silu mish hardswish hardsigmoid threshold
""".split()
FUNCTIONS = frozenset(
    """
abs acos acosh addmv asin asinh atan atanh ceil clamp clamp_max clamp_min cos cosh deg2rad erf erfc
exp exp2 expm1 fix floor frac index_put log log10 log1p log2 logit nan_to_num neg rad2deg reciprocal
relu round rsqrt sigmoid sin sinc sinh sqrt square tan tanh trunc xlogy arccos arccosh arcsin
arcsinh arctan arctanh negative
""".split()
)
"""Those that torch has as a function too: ``torch.exp_(x)``."""
SPELLED_OUT = frozenset({"index_put", "scatter"})
"""Those whose arguments torch's own method does not take: no index, no reduction."""
PYTHON = {
    "add": "iadd",
    "sub": "isub",
    "mul": "imul",
    "true_divide": "itruediv",
    "floor_divide": "ifloordiv",
    "remainder": "imod",
    "pow": "ipow",
    "bitwise_and": "iand",
    "bitwise_or": "ior",
    "bitwise_xor": "ixor",
    "bitwise_left_shift": "ilshift",
    "bitwise_right_shift": "irshift",
}
ALIASES = {
    "clamp": ("clip_",),
    "sub": ("subtract_",),
    "mul": ("multiply_",),
    "div": ("divide_",),
    "abs": ("absolute_",),
    "ne": ("not_equal_",),
    "lt": ("less_",),
    "le": ("less_equal_",),
    "gt": ("greater_",),
    "ge": ("greater_equal_",),
}


OVERLOADS = {"index_put": index.mask_overload("masked_index_put_")}


def _outer_type(cx: TypeContext, x: Any, u: Any, v: Any, **scales: Arg) -> TensorType:
    made = new(cx, tensor(u), (tensor(u).shape[0], tensor(v).shape[0]))
    require_added(cx, tensor(x), made.shape)
    return made


def _product_type(cx: TypeContext, x: Any, m: Any, v: Any, **scales: Arg) -> Any:
    rule = OPS["mv"].type
    made = rule and rule(cx, m, v)
    require_added(cx, tensor(x), tensor(m).shape[:1])
    return made


PRODUCTS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"addr": _outer_type, "addmv": _product_type}
)
"""The products that are added, of rows whose own type is that of what they expand to."""


def _written(row: OpDef) -> Any:
    """The type rule: that of what is written, after checking that the new value fits."""

    def rule(cx: TypeContext, x: Any, *args: Arg, **kwargs: Arg) -> TensorType:
        t = tensor(x)
        if row.expand is not None:
            refuse_complex(row, (x, *args))
        fitting = row.type or PRODUCTS.get(row.name)
        if fitting is not None:
            made = fitting(cx, x, *args, **kwargs)
            if isinstance(made, TensorType):
                _fits(cx, made, t)
        return t

    return rule


def _fits(cx: TypeContext, made: TensorType, t: TensorType) -> None:
    if t.dtype.is_complex and not made.dtype.is_complex and made.dtype is not bool_:
        raise OpError("In-place abs is not supported for complex tensors.")
    if CATEGORIES.index(made.dtype.category) > CATEGORIES.index(t.dtype.category):
        raise OpError(
            f"result type {made.dtype} can't be cast to the desired output type {t.dtype}"
        )
    if len(made.shape) != t.rank:
        raise OpError("output with shape doesn't match the broadcast shape")
    if made.shape != t.shape:
        joined = cx.broadcast_shapes((t.shape, made.shape))
        for size, own in zip(joined, t.shape):
            cx.require(eq(size, own), "output with shape doesn't match the broadcast shape")


def _add_inplace(name: str, torch: str, spellings: tuple[str, ...]) -> None:
    row = OPS[name]
    add_row(
        OpDef(
            name=f"{name}_",
            signature=row.signature.without("inplace"),
            torch=torch,
            spellings=spellings,
            type=_written(row),
            normalize=_kept_order(row),
            mutates=(row.signature.names[0],),
            functional=name,
            alias="view",
            overload=OVERLOADS.get(name),
            reads_number=row.reads_number,
            by_value=row.by_value,
        )
    )


def _kept_order(row: OpDef) -> Any:
    """The row's normal form, but never with its operands swapped."""
    if row.normalize is None or row.normalize.__name__ == "_tensor_first":
        return None
    return row.normalize


for _name in NAMES:
    _more = tuple(f"torch.Tensor.{alias}" for alias in ALIASES.get(_name, ()))
    if _name in FUNCTIONS:
        _more += (f"torch.{_name}_",)
    if _name in PYTHON:
        _more += (f"torch.Tensor.__{PYTHON[_name]}__", f"operator.{PYTHON[_name]}")
    _torch = f"torch.Tensor.{_name}_"
    if _name in SPELLED_OUT:
        _torch, _more = f"anyshape.eager.{_name}_", (*_more, _torch)
    _add_inplace(_name, _torch, _more)
for _name in FUNCTIONAL_NAMES:
    _add_inplace(
        _name,
        f"torch.nn.functional.{_name}_"
        if _name in ("celu", "elu", "hardtanh", "leaky_relu", "rrelu", "selu", "threshold")
        else f"anyshape.eager.{_name}_",
        (f"torch.{_name}_",) if _name in ("celu", "rrelu", "selu", "threshold") else (),
    )

# --- writes that have no functional row of their own name ---


def _masked_index_put_(b: Any, x: Any, indices: Any, values: Any, accumulate: Any = False) -> Any:
    mask = scatter.filled_mask(b, x, indices, values, accumulate)
    recorded = any(t.tensor.requires_grad for t in (x, values) if is_tensor(t))
    if mask is not None:
        fill = b.put_at_mask_ if recorded else b.masked_fill_
        return fill(x, mask, scatter.one_number(b, values))
    positions = index.unmasked(b, x, indices)
    if recorded:
        return b.put_at_masks_(x, positions, values, accumulate, indices)
    return b.index_put_(x, positions, values, accumulate)


op(
    "put_at_mask_",
    "input, mask, number",
    torch="anyshape.eager.put_at_mask_",
    type=_written(OPS["masked_fill"]),
    mutates=("input",),
    functional="masked_fill",
    alias="view",
    reads_number=True,
)

op(
    "put_at_masks_",
    "input, positions, values, accumulate, masks",
    torch="anyshape.eager_masks.put_at_masks_",
    type=_written(OPS["put_at_masks"]),
    mutates=("input",),
    functional="put_at_masks",
    alias="view",
    reads_number=True,
)

op(
    "masked_index_put_",
    "input, indices, values, accumulate=False",
    torch="anyshape.eager.masked_index_put_",
    inline=True,
    mutates=("input",),
    functional="masked_index_put",
    alias="view",
    expand=_masked_index_put_,
    reads_number=True,
)

op(
    "overwrite",
    "input, src, non_blocking=False",
    torch="anyshape.eager.overwrite",
    vjp=COVERED,
    type=like(0),
    expand=lambda b, x, src, non_blocking=False: _overwritten(b, x, src),
)


def _overwritten(b: Any, x: Any, src: Any) -> Any:
    """Memory of its own: ``src`` is written later, or handed out as well."""
    made = src if src.dtype is x.dtype else b.to_dtype(src, x.dtype)
    return b.clone(made if made.shape == x.shape else b.expand(made, x.shape))


def _covers(cx: TypeContext, x: Any, src: Any, non_blocking: bool = False) -> TensorType:
    """The type of ``x``, to all of which ``src`` can be copied."""
    t, given = tensor(x), tensor(src)
    if given.rank > t.rank:
        raise OpError("output with shape doesn't match the broadcast shape")
    if given.shape != t.shape:
        expanded = OPS["expand"].type
        assert expanded is not None
        expanded(cx, src, t.shape)
    return t


def _inplace(name: str, signature: str, functional: str, *spellings: str, type: Any = None) -> None:
    add_row(
        OpDef(
            name=name,
            signature=Signature.parse(signature),
            torch=f"torch.Tensor.{name}",
            spellings=spellings,
            type=type or same_as(0),
            mutates=("input",),
            functional=functional,
            alias="view",
            reads_number=OPS[functional].reads_number,
        )
    )


def _one_value(value: Any) -> None:
    if is_tensor(value) and value.type.rank:
        raise OpError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value.type.rank} dimensions."
        )


def _filled_type(cx: TypeContext, x: Any, value: Any) -> TensorType:
    _one_value(value)
    return like(0)(cx, x)


def _fillable(cx: TypeContext, x: Any, value: Any) -> TensorType:
    _one_value(value)
    return tensor(x)


op(
    "filled",
    "input, value",
    torch="torch.fill",
    vjp=COVERED,
    type=_filled_type,
    expand=lambda b, x, value: _filled(b, x, value),
    reads_number=True,
)
op(
    "zeroed",
    "input",
    torch="anyshape.eager.zeroed",
    vjp=COVERED,
    type=like(0),
    expand=lambda b, x: _filled(b, x, 0),
)


def _filled(b: Any, x: Any, value: Any) -> Any:
    if hasattr(value, "type"):
        return _overwritten(b, x, value)
    return b.full(x.shape, value, x.dtype, x.type.device)


_inplace("copy_", "input, src, non_blocking=False", "overwrite", type=_covers)
_inplace("fill_", "input, value", "filled", "torch.fill_", type=_fillable)
_inplace("zero_", "input", "zeroed", "torch.zero_")

ASSIGNMENTS = MappingProxyType({True: "assign", False: "assign_data"})
"""What functionalization leaves of all writes to an input: one copy into it, at the end of the
graph; by whether autograd counts it, which it does not where the program wrote through `x.data`
alone."""
for _counted, _function in (
    (True, "torch.Tensor.copy_"),
    (False, "anyshape.eager.assign_data"),
):
    _name = ASSIGNMENTS[_counted]
    op(
        _name,
        "input, value",
        torch=f"anyshape.eager.{_name}",
        type=lambda cx, x, value: (),
        lower=Assigns(_function, counted=_counted),
    )

# A condition on sizes that the program relies on from here on.
op(
    CHECK,
    "condition, message",
    torch="anyshape.eager.check",
    type=lambda cx, condition, message: (),
    lower=Checks(),
)
# What a condition on data becomes: the segment has not happened where it is true.
op(
    "check_false",
    "condition",
    torch="anyshape.eager.check_false",
    type=lambda cx, condition: (),
    lower=Asserts(deferred=False),
)
# The same where only the device can test it: what reads at such a position has read another one,
# and the error comes at the next call.
op(
    "trap_if",
    "condition",
    torch="anyshape.eager.trap_if",
    type=lambda cx, condition: (),
    lower=Asserts(deferred=True),
)
