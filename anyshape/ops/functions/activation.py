"""Activations of torch.nn.functional as elementwise rows, and softmax, which is none.

Each body is ATen's formula on the host. ``inplace=True`` is turned into the in-place row by
capture; here the flag is accepted and must be false.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ir.dtypes import DType, uint8
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.gradients import activations
from anyshape.ops.layout import contiguous_strides
from anyshape.ops.reduce import cast, wide
from anyshape.ops.rules import (
    PointwiseRule,
    RowMajorRule,
    contiguous_like,
    dim_of,
    laid_like_first,
    promoted,
    tensor,
)
from anyshape.ops.table import OpDef, Pointwise, op
from anyshape.ops.view import Normal
from anyshape.symbolic import Expr, eq, floordiv, ge, le, mod

Body = Callable[..., Any]
FACTORS = frozenset({1, 2})
"""The positions of slopes and thresholds, for ``wide_numbers``."""


_rule = PointwiseRule(promoted, operands=1)


def activation(
    name: str,
    signature: str,
    body: Body,
    *,
    spellings: tuple[str, ...] = (),
    rule: Any = _rule,
    **columns: Any,
) -> OpDef:
    """A row for ``torch.nn.functional.name``."""
    return op(
        name,
        signature,
        torch=f"torch.nn.functional.{name}",
        spellings=spellings,
        type=rule,
        lower=Pointwise(body),
        **columns,
    )


activation(
    "relu",
    "input, inplace=False",
    lambda b, x, inplace=False: b.maximum(x, 0),
    spellings=("torch.relu", "torch.Tensor.relu"),
    vjp=activations.RELU,
)
activation(
    "relu6",
    "input, inplace=False",
    lambda b, x, inplace=False: b.minimum(b.maximum(x, 0), 6),
    rule=laid_like_first(_rule),
    vjp=activations.RELU6,
)
activation(
    "silu",
    "input, inplace=False",
    lambda b, x, inplace=False: b.div(x, b.add(1.0, b.exp(b.neg(x)))),
    costly=True,
    vjp=activations.SILU,
)


def _gelu(b: Any, x: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return b.gelu_tanh(x)
    return b.mul(b.mul(x, 0.5), b.erfp1(b.mul(x, 0.7071067811865476)))


activation("gelu", "input, *, approximate='none'", _gelu, costly=True, vjp=activations.GELU)


def _leaky_relu(b: Any, x: Any, negative_slope: Any = 0.01, inplace: bool = False) -> Any:
    return b.where(b.gt(x, 0), x, b.mul(x, negative_slope))


activation(
    "leaky_relu",
    "input, negative_slope=0.01, inplace=False",
    _leaky_relu,
    wide_numbers=FACTORS,
    vjp=activations.LEAKY_RELU,
)


def _elu(b: Any, x: Any, alpha: Any = 1.0, inplace: bool = False) -> Any:
    return b.where(b.lt(x, 0), b.mul(b.expm1(x), alpha), x)  # of 0, alpha is no factor


activation(
    "elu", "input, alpha=1.0, inplace=False", _elu, wide_numbers=FACTORS, vjp=activations.ELU
)


def _celu(b: Any, x: Any, alpha: Any = 1.0, inplace: bool = False) -> Any:
    return b.where(b.lt(x, 0), b.mul(b.expm1(b.div(x, alpha)), alpha), x)


activation(
    "celu",
    "input, alpha=1.0, inplace=False",
    _celu,
    spellings=("torch.celu",),
    wide_numbers=FACTORS,
    by_value=("alpha",),
    vjp=activations.CELU,
)


def _selu(b: Any, x: Any, inplace: bool = False) -> Any:
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return b.where(b.gt(x, 0), b.mul(x, scale), b.mul(b.expm1(x), scale * alpha))


activation("selu", "input, inplace=False", _selu, spellings=("torch.selu",), vjp=activations.SELU)


def _softplus(b: Any, x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
    scaled = b.mul(x, beta)
    return b.where(b.gt(scaled, threshold), x, b.div(b.log1p(b.exp(scaled)), beta))


activation(
    "softplus",
    "input, beta=1.0, threshold=20.0",
    _softplus,
    wide_numbers=FACTORS,
    costly=True,
    vjp=activations.SOFTPLUS,
)
op(
    "softsign",
    "input",
    torch="torch.nn.functional.softsign",
    inline=True,  # a function in Python: each of its operators rounds
    expand=lambda b, x: b.div(x, b.add(b.abs(x), 1)),
    vjp="expansion",
)
op(
    "tanhshrink",
    "input",
    torch="torch.nn.functional.tanhshrink",
    inline=True,
    expand=lambda b, x: b.sub(x, b.tanh(x)),
    vjp="expansion",
)
activation(
    "mish",
    "input, inplace=False",
    lambda b, x, inplace=False: b.mul(x, b.tanh(b.log1p(b.exp(x)))),
    costly=True,
    vjp=activations.MISH,
)


def _hard(b: Any, x: Any) -> Any:
    return b.minimum(b.maximum(b.add(x, 3.0), 0.0), 6.0)


activation(
    "hardsigmoid",
    "input, inplace=False",
    lambda b, x, inplace=False: b.div(_hard(b, x), 6.0),
    vjp=activations.HARDSIGMOID,
)
activation(
    "hardswish",
    "input, inplace=False",
    lambda b, x, inplace=False: b.div(b.mul(x, _hard(b, x)), 6.0),
    vjp=activations.HARDSWISH,
)


def _hardtanh(
    b: Any, x: Any, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False
) -> Any:
    return b.minimum(b.maximum(x, min_val), max_val)


def _hardtanh_type(
    cx: TypeContext, x: Arg, low: Any = -1.0, high: Any = 1.0, inplace: Arg = False
) -> TensorType:
    for limit in (low, high):
        if not isinstance(limit, (int, float, Expr)):
            raise NoRow("hardtanh between numbers that data decides has no row")
    if isinstance(low, float) or isinstance(high, float):
        if isinstance(low, Expr) or isinstance(high, Expr):
            raise NoRow("hardtanh between a float and a size has no row")
    cx.require(le(low, high), "min_val cannot be greater than max_val")
    if tensor(x).dtype is uint8:
        cx.require(ge(low, 0), "cannot do hardtanh on an unsigned type with negative limits")
    return laid_like_first(_rule)(cx, x)


activation(
    "hardtanh",
    "input, min_val=-1.0, max_val=1.0, inplace=False",
    _hardtanh,
    rule=_hardtanh_type,
    vjp=activations.HARDTANH,
)


def _threshold(b: Any, x: Any, threshold: Any, value: Any, inplace: bool = False) -> Any:
    return b.where(b.le(x, threshold), value, x)


activation(
    "threshold",
    "input, threshold, value, inplace=False",
    _threshold,
    spellings=("torch.threshold",),
    wide_numbers=FACTORS,
    vjp=activations.THRESHOLD,
)


def _hardshrink(b: Any, x: Any, lambd: Any = 0.5) -> Any:
    return b.where(b.le(b.abs(x), lambd), 0.0, x)


activation(
    "hardshrink",
    "input, lambd=0.5",
    _hardshrink,
    spellings=("torch.hardshrink", "torch.Tensor.hardshrink"),
    vjp=activations.SHRINK,
)


def _softshrink(b: Any, x: Any, lambd: Any = 0.5) -> Any:
    low = b.where(b.lt(b.add(x, lambd), 0.0), b.add(x, lambd), b.mul(x, 0.0))
    return b.where(b.gt(x, lambd), b.sub(x, lambd), low)


activation(
    "softshrink", "input, lambd=0.5", _softshrink, wide_numbers=FACTORS, vjp=activations.SHRINK
)


def _logsigmoid(b: Any, x: Any) -> Any:
    return b.sub(b.minimum(x, 0.0), b.log1p(b.exp(b.neg(b.abs(x)))))


activation("logsigmoid", "input", _logsigmoid, rule=contiguous_like(0), vjp=activations.LOGSIGMOID)
op(
    "prelu",
    "input, weight",
    torch="torch.prelu",
    vjp="expansion",
    spellings=("torch.nn.functional.prelu", "torch.Tensor.prelu"),
    type=lambda cx, x, w: _prelu_type(cx, x, w),
    expand=lambda b, x, w: _prelu_expand(b, x, w),
)


def _prelu_type(cx: TypeContext, x: Any, weight: Any) -> TensorType:
    t, w = tensor(x), tensor(weight)
    if w.shape and t.rank > 1:
        cx.broadcast_dims((t.shape[1], w.shape[0]), "one weight, or one for each channel")
    elif w.shape:
        cx.require(eq(w.shape[0], 1), "one weight, or one for each channel")
    return laid_like_first(_rule)(cx, x)


def _prelu_expand(b: Any, x: Any, weight: Any) -> Any:
    rank = len(x.shape)
    if rank == 0:
        weight = b.reshape(weight, ())
    if rank > 1 and len(weight.shape) == 1:
        weight = b.reshape(weight, (1, weight.shape[0], *(1,) * (rank - 2)))
    return b.where(b.gt(x, 0), x, b.mul(x, weight))


def _glu_expand(b: Any, x: Any, dim: int = -1) -> Any:
    if not x.shape:
        raise OpError("glu does not support 0-dimensional tensors")
    d = dim_of(dim, len(x.shape))
    size = x.shape[d]
    b.cx.require(eq(mod(size, 2), 0), f"Halving dimension must be even, but dimension {d} is not")
    half = b.cx.facts.simplify(floordiv(size, 2))
    first, gate = (cast(b, b.slice(x, d, at, half), wide(x.dtype)) for at in (0, half))
    return cast(b, b.mul(first, b.sigmoid(gate)), x.dtype)


op(
    "glu",
    "input, dim=-1",
    torch="torch.nn.functional.glu",
    expand=_glu_expand,
    vjp=activations.GLU,
)

# --- softmax ---


def _normal_softmax(
    cx: TypeContext, x: Any, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None
) -> Normal:
    rank = tensor(x).rank
    if dim is None:
        dim = 0 if rank in (0, 1, 3) else 1
    return (x, dim_of(dim, rank), 3, dtype), {}


def _softmax_type(cx: TypeContext, x: Any, dim: int, level: Arg, dtype: Any) -> TensorType:
    t = tensor(x)
    chosen = dtype or t.dtype
    if not chosen.is_floating:
        raise OpError(f'"softmax_lastdim_kernel_impl" not implemented for {chosen}')
    return TensorType(chosen, t.device, t.shape, contiguous_strides(cx, t.shape))


def _shifted(b: Any, x: Any, dim: int, dtype: DType) -> Any:
    """``x`` minus its maximum along ``dim``, wide."""
    wider = cast(b, x, wide(dtype))
    return b.sub(wider, b.amax_or_empty(wider, (dim,) if x.shape else (), True))


def _softmax_expand(b: Any, x: Any, dim: int, level: Arg, dtype: Any) -> Any:
    chosen = dtype or x.dtype
    power = b.exp(_shifted(b, x, dim, chosen))
    return cast(b, b.div(power, b.sum(power, (dim,) if x.shape else (), True)), chosen)


def _log_softmax_expand(b: Any, x: Any, dim: int, level: Arg, dtype: Any) -> Any:
    chosen = dtype or x.dtype
    low = _shifted(b, x, dim, chosen)
    total = b.log(b.sum(b.exp(low), (dim,) if x.shape else (), True))
    return cast(b, b.sub(low, total), chosen)


for _name, _expand, _vjp in (
    ("softmax", _softmax_expand, activations.SOFTMAX),
    ("log_softmax", _log_softmax_expand, activations.LOG_SOFTMAX),
):
    op(
        _name,
        "input, dim=None, _stacklevel=3, dtype=None",
        torch=f"torch.nn.functional.{_name}",
        normalize=_normal_softmax,
        type=RowMajorRule(_softmax_type),
        expand=_expand,
        vjp=_vjp,
    )
    op(
        f"torch_{_name}",
        "input, dim, dtype=None",
        torch=f"torch.{_name}",
        vjp="expansion",
        spellings=(f"torch.Tensor.{_name}", f"torch.special.{_name}"),
        type=lambda cx, x, dim, dtype=None: _softmax_type(
            cx, x, dim_of(dim, tensor(x).rank), 3, dtype
        ),
        expand=lambda b, x, dim, dtype=None, name=_name: b.call(name, x, dim, 3, dtype),
    )
op(
    "softmin",
    "input, dim=None, _stacklevel=3, dtype=None",
    torch="torch.nn.functional.softmin",
    vjp="expansion",
    normalize=_normal_softmax,
    type=RowMajorRule(_softmax_type),
    expand=lambda b, x, dim, level, dtype: b.softmax(b.neg(x), dim, 3, dtype),
)
