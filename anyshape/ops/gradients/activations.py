"""Rules of activations: ATen's formulas, each computed in float32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.ir.dtypes import DType, float32
from anyshape.ops.gradients.elementwise import masked
from anyshape.ops.rules import dim_of

Rule = Callable[..., Any]
SMALL = ("float16", "bfloat16")


def widened(b: Any, *values: Any) -> tuple[Any, ...]:
    """Small floats as float32, others as they are."""
    return tuple(b.to_dtype(v, float32) if v.dtype.name in SMALL else v for v in values)


def wide(dtype: DType) -> DType:
    """The dtype that small floats are computed in."""
    return float32 if dtype.name in SMALL else dtype


def _of_input(form: Callable[..., Any]) -> Mapping[str, Rule]:
    def rule(b: Any, g: Any, y: Any, x: Any, *options: Any, **named: Any) -> Any:
        return form(b, *widened(b, g, x), *options, **named)

    return {"input": rule}


def _of_result(form: Callable[..., Any]) -> Mapping[str, Rule]:
    def rule(b: Any, g: Any, y: Any, x: Any, *options: Any, **named: Any) -> Any:
        return form(b, *widened(b, g, y), *options, **named)

    return {"input": rule}


def _silu(b: Any, g: Any, x: Any, inplace: bool = False) -> Any:
    s = b.sigmoid(x)
    return b.mul(b.mul(g, s), b.add(b.mul(x, b.rsub(s, 1)), 1))


def _gelu(b: Any, g: Any, x: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        beta, kappa = math.sqrt(2.0 / math.pi), 0.044715
        t = b.tanh(b.mul(b.add(x, b.mul(b.mul(b.mul(x, x), x), kappa)), beta))
        slope = b.mul(b.add(b.mul(b.mul(x, x), 3 * kappa), 1), beta)
        inner = b.mul(b.mul(b.mul(x, 0.5), b.rsub(b.mul(t, t), 1)), slope)
        return b.mul(g, b.add(b.mul(b.add(t, 1), 0.5), inner))
    below = b.mul(b.add(b.erf(b.mul(x, math.sqrt(0.5))), 1), 0.5)
    density = b.mul(b.exp(b.mul(b.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return b.mul(g, b.add(below, b.mul(x, density)))


def _leaky(b: Any, g: Any, x: Any, slope: Any = 0.01, inplace: bool = False) -> Any:
    return b.where(b.gt(x, 0), g, b.mul(g, slope))


def _elu(b: Any, g: Any, x: Any, alpha: Any = 1.0, inplace: bool = False) -> Any:
    return b.where(b.le(x, 0), b.mul(b.mul(g, alpha), b.exp(x)), g)


def _selu(b: Any, g: Any, x: Any, inplace: bool = False) -> Any:
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return b.where(b.le(x, 0), b.mul(b.mul(g, scale * alpha), b.exp(x)), b.mul(g, scale))


def _softplus(b: Any, g: Any, x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
    z = b.exp(b.mul(x, beta))
    return b.where(b.gt(b.mul(x, beta), threshold), g, b.div(b.mul(g, z), b.add(z, 1)))


def _hardtanh(
    b: Any, g: Any, x: Any, low: Any = -1.0, high: Any = 1.0, inplace: bool = False
) -> Any:
    """Nothing passes at NaN, as in eager's vector blocks."""
    return masked(b, b.logical_and(b.gt(x, low), b.lt(x, high)), g)


def _hardsigmoid(b: Any, g: Any, x: Any, inplace: bool = False) -> Any:
    return masked(b, b.logical_and(b.gt(x, -3), b.lt(x, 3)), b.div(g, 6))


def _celu(b: Any, g: Any, x: Any, alpha: Any = 1.0, inplace: bool = False) -> Any:
    """An infinite ``alpha`` is a factor of 0 and its own: NaN."""
    slope = b.mul(b.mul(b.div(g, alpha), alpha), b.exp(b.div(x, alpha)))
    return b.where(b.le(x, 0), slope, g)


def _hardswish(b: Any, g: Any, x: Any, inplace: bool = False) -> Any:
    middle = b.mul(g, b.add(b.div(x, 3), 0.5))
    return b.where(b.le(x, -3), b.mul(g, 0), b.where(b.lt(x, 3), middle, g))


def _mish(b: Any, g: Any, x: Any, inplace: bool = False) -> Any:
    s = b.sigmoid(x)
    t = b.tanh(b.softplus(x))
    return b.mul(g, b.add(t, b.mul(b.mul(x, s), b.rsub(b.mul(t, t), 1))))


def _logsigmoid(b: Any, g: Any, x: Any) -> Any:
    return b.mul(g, b.sigmoid(b.neg(x)))


def _glu(b: Any, g: Any, y: Any, x: Any, dim: int = -1) -> Any:
    """That of each half, of the gate as it was rounded, beside each other."""
    d = dim_of(dim, len(x.shape))
    half = g.shape[d]
    gate = b.sigmoid(b.slice(x, d, half, half))
    s, first, slope = widened(b, gate, b.slice(x, d, 0, half), g)
    second = b.mul(b.mul(b.mul(b.rsub(s, 1), s), first), slope)
    return b.cat((b.mul(gate, g), b.to_dtype(second, x.dtype)), d)


RELU = _of_result(lambda b, g, y, inplace=False: masked(b, b.logical_not(b.le(y, 0)), g))
RELU6 = _of_input(lambda b, g, x, inplace=False: _hardtanh(b, g, x, 0, 6))
GLU = {"input": _glu}
SILU = _of_input(_silu)
GELU = _of_input(_gelu)
LEAKY_RELU = _of_input(_leaky)
ELU = _of_input(_elu)
CELU = _of_input(_celu)
SELU = _of_input(_selu)
SHRINK = _of_input(lambda b, g, x, lambd=0.5: masked(b, b.logical_not(b.le(b.abs(x), lambd)), g))
THRESHOLD = _of_input(
    lambda b, g, x, threshold, value, inplace=False: masked(b, b.logical_not(b.le(x, threshold)), g)
)
SOFTPLUS = _of_input(_softplus)
HARDTANH = _of_input(_hardtanh)
HARDSIGMOID = _of_input(_hardsigmoid)
HARDSWISH = _of_input(_hardswish)
MISH = _of_input(_mish)
LOGSIGMOID = _of_input(_logsigmoid)


# --- softmax and log_softmax, along a dimension ---


def _softmax(b: Any, g: Any, y: Any, x: Any, dim: int, *options: Any) -> Any:
    wide_g, wide_y = widened(b, g, y)
    dims = (dim,) if x.shape else ()
    total = b.sum(b.mul(wide_g, wide_y), dims, True)
    return b.mul(b.sub(wide_g, total), wide_y)


def _log_softmax(b: Any, g: Any, y: Any, x: Any, dim: int, *options: Any) -> Any:
    wide_g, wide_y = widened(b, g, y)
    dims = (dim,) if x.shape else ()
    return b.sub(wide_g, b.mul(b.exp(wide_y), b.sum(wide_g, dims, True)))


SOFTMAX = {"input": _softmax}
LOG_SOFTMAX = {"input": _log_softmax}
