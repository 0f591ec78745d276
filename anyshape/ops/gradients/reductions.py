"""Rules of reductions, scans and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

from anyshape.ir.dtypes import float32, float64
from anyshape.ir.graph import HOST, TensorType
from anyshape.ir.loops import Order
from anyshape.nouns import replace
from anyshape.ops.context import NoRow, TypeContext
from anyshape.ops.gradients.activations import wide, widened
from anyshape.ops.gradients.elementwise import MAXIMUM, MINIMUM, masked, zeros
from anyshape.ops.image_layout import suggests_channels_last
from anyshape.ops.layout import is_contiguous, numel
from anyshape.ops.rules import dim_of, is_tensor
from anyshape.symbolic import Dim

Rule = Callable[..., Any]


def kept(b: Any, value: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """A result of a reduction of ``x``, with a size of 1 where it was reduced."""
    shape = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
    return value if keepdim or not dims else b.reshape(value, shape)


def _spread(b: Any, g: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    return b.expand(kept(b, g, x, dims, keepdim), x.shape)


def _count(x: Any, dims: tuple[int, ...]) -> Dim:
    return numel([x.shape[d] for d in dims])


def _sum(b: Any, g: Any, y: Any, x: Any, dims: Any, keepdim: bool, *, dtype: Any = None) -> Any:
    return _spread(b, g, x, dims, keepdim)


def _mean(b: Any, g: Any, y: Any, x: Any, dims: Any, keepdim: bool, *, dtype: Any = None) -> Any:
    return b.div(_spread(b, g, x, dims, keepdim), _count(x, dims))


def _extreme(b: Any, g: Any, y: Any, x: Any, dims: Any, keepdim: bool) -> Any:
    """Elements that are equally extreme share the cotangent; the others have 0 times it, which is
    NaN where it is not finite, as eager's."""
    best, count = _extremes(b, g, y, x, dims, keepdim)
    return b.div(b.mul(kept(b, g, x, dims, keepdim), b.to_dtype(best, g.dtype)), count)


def _extremes(b: Any, g: Any, y: Any, x: Any, dims: Any, keepdim: bool) -> tuple[Any, Any]:
    """Which elements are extreme, and how many they are in each reduction, as the cotangent's."""
    best = b.eq(x, kept(b, y, x, dims, keepdim))
    count = b.sum(best, dims, True) if dims else best
    return best, b.to_dtype(count, g.dtype)


def _extreme_of_all(b: Any, g: Any, y: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Elements that are equally extreme share the cotangent: those that are NaN, if the result
    is."""
    best = b.logical_or(b.eq(x, y), b.logical_and(b.isnan(x), b.isnan(y)))
    count = b.sum(best, dims, True) if dims else best
    return masked(b, best, b.div(g, b.to_dtype(count, g.dtype)))


def _extremum(
    of_two: Mapping[str, Rule],
    b: Any,
    g: Any,
    y: Any,
    x: Any,
    dim: Any = None,
    *rest: Any,
    **options: Any,
) -> Any:
    """torch.max and torch.min: of two tensors, of all of one, or along a dimension with indices."""
    other = dim if is_tensor(dim) else options.get("other")
    if other is not None:
        return of_two["input"](b, g, y, x, other)
    if dim is None:
        dims = tuple(range(len(x.shape)))
        slope, best = (kept(b, v, x, dims, False) for v in (g, y))
        return _extreme_of_all(b, slope, best, x, dims)
    (values, _), (_, indices) = g, y
    if values is None:
        return zeros(b, x)
    if not x.shape:
        return values
    keepdim = rest[0] if rest else options.get("keepdim", False)
    d = dim_of(dim, len(x.shape))
    at, given = (kept(b, v, x, (d,), keepdim) for v in (indices, values))
    return scattered(b, x, d, at, given)


def scattered(b: Any, x: Any, dim: int, index: Any, g: Any) -> Any:
    """The gradient of ``x.gather(dim, index)``. Where the dimension has one element, each
    element is found by its number; else they are added up."""
    others = [d for d in range(len(x.shape)) if d != dim]
    if index.shape[dim] == 1 and all(b.cx.same(index.shape[d], x.shape[d]) for d in others):
        shape = tuple(x.shape[d] if d == dim else 1 for d in range(len(x.shape)))
        numbers = b.reshape(b.arange(x.shape[dim], 0, 1, index.dtype, x.type.device), shape)
        return masked(b, b.eq(numbers, index), g)
    return b.scatter_add(zeros(b, x), dim, index, g)


def _picked(b: Any, g: Any, y: Any, x: Any, *rest: Any, dim: int, **options: Any) -> Any:
    """Values taken out along a dimension, with their indices."""
    (values, _), (_, at) = g, y
    if values is None:
        return zeros(b, x)
    return values if not x.shape else scattered(b, x, dim, at, values)


def _variance(b: Any, g: Any, x: Any, dims: Any, keepdim: bool, correction: Any) -> Any:
    if not isinstance(correction, int):
        raise NoRow("a variance with a correction that is no whole number")
    count = _count(x, dims)
    gap = b.sub(x, b.mean(x, dims, True))
    slope = b.div(b.mul(kept(b, g, x, dims, keepdim), 2), count - correction)
    return b.mul(slope, gap)


def _var(
    b: Any, g: Any, y: Any, x: Any, dims: Any, unbiased: Any, keepdim: bool, *, correction: Any
) -> Any:
    return _variance(b, g, x, dims, keepdim, correction)


def _std(
    b: Any, g: Any, y: Any, x: Any, dims: Any, unbiased: Any, keepdim: bool, *, correction: Any
) -> Any:
    slope = masked(b, b.ne(y, 0), b.div(g, b.mul(y, 2)))
    return _variance(b, slope, x, dims, keepdim, correction)


def _with_mean(rule: Callable[..., Any]) -> Callable[..., Any]:
    """That of the spread, and that of the mean beside it, as far as they have cotangents."""

    def both(
        b: Any, g: Any, y: Any, x: Any, dims: Any, unbiased: Any, keepdim: bool, **options: Any
    ) -> Any:
        spread, center = g
        parts = []
        if spread is not None:
            parts.append(rule(b, spread, y[0], x, dims, unbiased, keepdim, **options))
        if center is not None:
            parts.append(_mean(b, center, y[1], x, dims, keepdim))
        return parts[0] if len(parts) == 1 else b.add(*parts)

    return both


def _logsumexp(b: Any, g: Any, y: Any, x: Any, dims: Any, keepdim: bool) -> Any:
    share = b.exp(b.sub(x, kept(b, y, x, dims, keepdim)))
    return b.mul(kept(b, g, x, dims, keepdim), share)


def _vector_norm(
    b: Any, g: Any, y: Any, x: Any, p: Any, dims: Any, keepdim: bool, *rest: Any, **named: Any
) -> Any:
    if p == 0:
        return None  # a count, of which eager gives none either
    slope, size = (kept(b, v, x, dims, keepdim) for v in (g, y))
    if p == 1:
        return b.mul(b.sgn(x), slope)
    if p != 2:
        raise NoRow(f"the gradient of a norm of order {p}")
    return b.mul(slope, masked(b, b.ne(size, 0), b.div(x, size)))


def _cumsum(b: Any, g: Any, y: Any, x: Any, dim: int, *, dtype: Any = None) -> Any:
    return b.flip(b.cumsum(b.flip(g, (dim,)), dim), (dim,))


SUM = {"input": _sum}
MEAN = {"input": _mean}
EXTREME = {"input": _extreme}
SPREADS = {
    "var": {"input": _var},
    "std": {"input": _std},
    "var_mean": {"input": _with_mean(_var)},
    "std_mean": {"input": _with_mean(_std)},
}


def _extremum_rules(of_two: Mapping[str, Rule]) -> Mapping[str, Rule]:
    def second(
        b: Any, g: Any, y: Any, x: Any, dim: Any = None, *rest: Any, other: Any = None
    ) -> Any:
        return of_two["other"](b, g, y, x, dim if other is None else other)

    return {"input": partial(_extremum, of_two), "dim": second, "other": second}


EXTREMUM = {name: _extremum_rules(rules) for name, rules in (("max", MAXIMUM), ("min", MINIMUM))}
LOGSUMEXP = {"input": _logsumexp}
VECTOR_NORM = {"input": _vector_norm}
NORM = {"input": _vector_norm}
CUMSUM = {"input": _cumsum}
SORT = {"input": lambda b, g, y, x, dim=-1, *rest, **o: _picked(b, g, y, x, dim=dim)}
TOPK = {"input": lambda b, g, y, x, k, dim=-1, *rest, **o: _picked(b, g, y, x, dim=dim)}

# --- layer and RMS norm ---


def _last(x: Any, shape: Any) -> tuple[int, ...]:
    count = len(shape) if isinstance(shape, tuple) else 1
    return tuple(range(len(x.shape) - count, len(x.shape)))


Sums: TypeAlias = Order | Literal["wide"] | None
"""How ATen sums up moments: in the order of one of its kernels, or one after another in float64."""


def moments(b: Any, x: Any, dims: tuple[int, ...], order: Sums) -> tuple[Any, Any]:
    """Over ``dims``: the mean, and the sum of the squares of ``x`` without it; where squares
    overflow near them, as ATen's kernel of this ``order`` has them. Those of ``wide`` are
    float64."""
    mean = b.div(b.sum(x, dims, True), _count(x, dims))
    if order in ("double", "single"):
        mean = b.moment(x, dims, True, mean, order=order, part="mean")
    gap = b.sub(*(b.to_dtype(v, float64) if order == "wide" else v for v in (x, mean)))
    squares = b.sum(b.mul(gap, gap), dims, True)
    if order in ("joined", "joined_halves", "raw"):
        squares = b.moment(x, dims, True, mean, squares, order=order, part="squares")
        mean = b.moment(x, dims, True, mean, squares, order=order, part="mean")
    return mean, squares


def _of_usual(own: str) -> Rule:
    """A moment is, as far as gradients go, what is given of it."""
    return lambda b, g, y, *given, order, part: g if part == own else None


MOMENT = {part: _of_usual(part) for part in ("mean", "squares")}
JOINED: Mapping[str, Order] = {
    "float32": "joined",
    "float64": "joined",
    "bfloat16": "joined_halves",
}
"""The order of layer and group norm; no square of float16 overflows in float32."""


def order_of_rows(x: Any) -> Order | None:
    """That of layer norm; none is known of other devices'."""
    return JOINED.get(x.dtype.name) if x.type.device == HOST else None


def order_of_groups(b: Any, x: Any) -> Order | None:
    """That of group norm, which has another kernel for images with their channels innermost."""
    order = order_of_rows(x)
    return "raw" if order is not None and suggests_channels_last(b.cx, x.type) else order


def order_of_instances(x: Any) -> Order | None:
    """That of instance norm: batch norm of one picture with a channel for each."""
    return "double" if x.dtype is float32 and x.type.device == HOST else None


def _is_dense(cx: TypeContext, t: TensorType) -> bool:
    """Is it known to be row-major, or row-major with its channels innermost?"""
    if is_contiguous(cx, t):
        return True
    order = (0, *range(2, t.rank), 1)
    shape, strides = (tuple([sizes[d] for d in order]) for sizes in (t.shape, t.strides))
    return t.rank in (4, 5) and is_contiguous(cx, replace(t, shape=shape, strides=strides))


def order_of_channels(b: Any, x: Any) -> Sums:
    """That of batch norm, which has kernels for images that are dense, and another for the rest."""
    order = order_of_instances(x)
    if order is not None and not _is_dense(b.cx, x.type):
        return "wide"
    innermost = len(x.shape) == 2 or suggests_channels_last(b.cx, x.type)
    return "single" if order is not None and innermost else order


def normalised(b: Any, x: Any, dims: tuple[int, ...], eps: Any, order: Sums) -> tuple[Any, Any]:
    """What layer_norm makes of ``x`` before its weight, and by what it multiplies."""
    (work,) = widened(b, x)
    mean, factor = center_and_factor(b, work, dims, eps, order)
    return b.mul(b.sub(work, mean), factor), factor


def center_and_factor(
    b: Any, x: Any, dims: tuple[int, ...], eps: Any, order: Sums
) -> tuple[Any, Any]:
    """What is taken off ``x``, and by what the rest is multiplied."""
    mean, squares = moments(b, x, dims, order)
    if order in ("double", "single"):  # the kernel multiplies first, by 0 here
        mean = b.where(b.eq(squares, math.inf), b.mul(mean, 0.0), mean)
    factor = b.rsqrt(b.add(b.div(squares, _count(x, dims)), eps))
    return mean, b.to_dtype(factor, x.dtype) if order == "wide" else factor


def _weighted(b: Any, g: Any, weight: Any) -> Any:
    (work,) = widened(b, g)
    return work if weight is None else b.mul(work, b.to_dtype(weight, wide(g.dtype)))


def _layer_norm(
    b: Any,
    g: Any,
    y: Any,
    x: Any,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
) -> Any:
    dims = _last(x, shape)
    made, factor = normalised(b, x, dims, eps, order_of_rows(x))
    slope = _weighted(b, g, weight)
    level = b.mean(slope, dims, True)
    along = b.mul(made, b.mean(b.mul(slope, made), dims, True))
    return b.mul(b.sub(b.sub(slope, level), along), factor)


def _layer_norm_weight(
    b: Any,
    g: Any,
    y: Any,
    x: Any,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
) -> Any:
    made, _ = normalised(b, x, _last(x, shape), eps, order_of_rows(x))
    return _over_rows(b, b.mul(*widened(b, g), made), weight)


def _over_rows(b: Any, g: Any, like: Any) -> Any:
    lead = tuple(range(len(g.shape) - len(like.shape)))
    return b.sum(g, lead, False) if lead else g


LAYER_NORM = {
    "input": _layer_norm,
    "weight": _layer_norm_weight,
    "bias": lambda b, g, y, x, shape, weight=None, bias=None, eps=1e-5: _over_rows(
        b, widened(b, g)[0], bias
    ),
}


def _root_mean(b: Any, x: Any, dims: tuple[int, ...], eps: Any) -> tuple[Any, Any]:
    (work,) = widened(b, x)
    square = b.div(b.sum(b.mul(work, work), dims, True), _count(x, dims))
    factor = b.rsqrt(b.add(square, EPSILON[work.dtype.name] if eps is None else eps))
    return b.mul(work, factor), factor


EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23}


def _rms_norm(
    b: Any, g: Any, y: Any, x: Any, shape: Any, weight: Any = None, eps: Any = None
) -> Any:
    dims = _last(x, shape)
    made, factor = _root_mean(b, x, dims, eps)
    slope = _weighted(b, g, weight)
    along = b.mul(made, b.mean(b.mul(slope, made), dims, True))
    return b.mul(b.sub(slope, along), factor)


def _rms_norm_weight(
    b: Any, g: Any, y: Any, x: Any, shape: Any, weight: Any = None, eps: Any = None
) -> Any:
    made, _ = _root_mean(b, x, _last(x, shape), eps)
    return _over_rows(b, b.mul(*widened(b, g), made), weight)


RMS_NORM = {"input": _rms_norm, "weight": _rms_norm_weight}
