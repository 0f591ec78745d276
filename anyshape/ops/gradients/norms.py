"""Rules of batch, instance and group norm.

The gradient of what was normalised, (g - mean g - y * mean(g * y)) / deviation, takes two sums over
the cotangent; both are read once. Where the weight is the same for all that is normalised together,
as in batch and instance norm, it stands outside of both, as ATen has it: then they are the sums
that the gradients of weight and bias are made of. Nothing flows to running statistics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from anyshape.ops.gradients.activations import wide, widened
from anyshape.ops.gradients.reductions import (
    normalised,
    order_of_channels,
    order_of_groups,
    order_of_instances,
)
from anyshape.ops.layout import numel


def _batch(
    b: Any,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> tuple[Any, Any, bool]:
    """What is made of ``x`` before its weight, by what it multiplies, and whether that depends on
    ``x``."""
    if training or mean is None:
        return (*normalised(b, x, _all_but_channels(x), eps, order_of_channels(b, x)), True)
    (work,) = widened(b, x)
    center, spread = (_channelwise(b, b.to_dtype(v, work.dtype), x) for v in (mean, var))
    factor = b.rsqrt(b.add(spread, eps))
    return b.mul(b.sub(work, center), factor), factor, False


def _all_but_channels(x: Any) -> tuple[int, ...]:
    """All dimensions but that of the channels."""
    return (0, *range(2, len(x.shape)))


def _channelwise(b: Any, values: Any, x: Any) -> Any:
    return b.reshape(values, (1, values.shape[0], *(1,) * (len(x.shape) - 2)))


def _weighted(b: Any, g: Any, weight: Any) -> Any:
    (work,) = widened(b, g)
    if weight is None:
        return work
    return b.mul(work, _channelwise(b, b.to_dtype(weight, wide(g.dtype)), g))


def _flowing(b: Any, slope: Any, made: Any, factor: Any, dims: tuple[int, ...]) -> Any:
    """The gradient of what was normalised over ``dims``."""
    level = b.mean(slope, dims, True)
    along = b.mul(made, b.mean(b.mul(slope, made), dims, True))
    return b.mul(b.sub(b.sub(slope, level), along), factor)


def _factor(b: Any, factor: Any, weight: Any, g: Any) -> Any:
    """By what the cotangent is multiplied after all: the norm's factor times its weight."""
    if weight is None:
        return factor
    return b.mul(factor, _channelwise(b, b.to_dtype(weight, wide(g.dtype)), g))


def _over_pictures(b: Any, g: Any, dims: tuple[int, ...] | None = None) -> Any:
    """A sum for each channel, made of those over ``dims``, which an input's gradient takes."""
    sums = b.sum(g, dims or _all_but_channels(g), True)
    if dims and dims != _all_but_channels(g):
        sums = b.sum(sums, _all_but_channels(g), True)
    return b.reshape(sums, (g.shape[1],))


def _of_bias(b: Any, g: Any, y: Any, *rest: Any, **options: Any) -> Any:
    return _over_pictures(b, *widened(b, g))


# ---- batch norm ----------------------------------------------------------------------------------
def _batch_input(b: Any, g: Any, y: Any, x: Any, mean: Any, var: Any, *rest: Any) -> Any:
    made, factor, flows = _batch(b, x, mean, var, *rest)
    factor = _factor(b, factor, rest[0] if rest else None, g)
    (work,) = widened(b, g)
    return _flowing(b, work, made, factor, _all_but_channels(x)) if flows else b.mul(work, factor)


def _batch_weight(b: Any, g: Any, y: Any, x: Any, mean: Any, var: Any, *rest: Any) -> Any:
    made, _, _ = _batch(b, x, mean, var, *rest)
    return _over_pictures(b, b.mul(*widened(b, g), made))


BATCH_NORM = {"input": _batch_input, "weight": _batch_weight, "bias": _of_bias}


# ---- instance norm -------------------------------------------------------------------------------
class _Instances(NamedTuple):
    """The arguments of instance norm. ``own``: are its statistics those of its input?"""

    x: Any
    mean: Any = None
    var: Any = None
    weight: Any = None
    bias: Any = None
    own: bool = True
    momentum: Any = 0.1
    eps: Any = 1e-5

    def pixels(self) -> tuple[int, ...]:
        """The dimensions behind the channels."""
        return tuple(range(2, len(self.x.shape)))

    def normalised(self, b: Any) -> tuple[Any, Any]:
        """What is made of the input before its weight, and by what it multiplies."""
        return normalised(b, self.x, self.pixels(), self.eps, order_of_instances(self.x))


def _instance_input(b: Any, g: Any, y: Any, *given: Any) -> Any:
    norm = _Instances(*given)
    if not norm.own:
        return _batch_input(b, g, y, *norm)
    made, factor = norm.normalised(b)
    (work,) = widened(b, g)
    return _flowing(b, work, made, _factor(b, factor, norm.weight, g), norm.pixels())


def _instance_weight(b: Any, g: Any, y: Any, *given: Any) -> Any:
    norm = _Instances(*given)
    if not norm.own:
        return _batch_weight(b, g, y, *norm)
    made, _ = norm.normalised(b)
    return _over_pictures(b, b.mul(*widened(b, g), made), norm.pixels())


def _instance_bias(b: Any, g: Any, y: Any, *given: Any) -> Any:
    norm = _Instances(*given)
    (work,) = widened(b, g)
    return _over_pictures(b, work, norm.pixels() if norm.own else None)


INSTANCE_NORM = {"input": _instance_input, "weight": _instance_weight, "bias": _instance_bias}


# ---- group norm ----------------------------------------------------------------------------------
def _grouped(b: Any, x: Any, groups: Any) -> Any:
    n, channels, *space = x.shape
    return b.reshape(x, (n, groups, channels // groups * numel(space)))


def _group_input(
    b: Any,
    g: Any,
    y: Any,
    x: Any,
    groups: Any,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
) -> Any:
    slope = _grouped(b, _weighted(b, g, weight), groups)
    made, factor = normalised(b, _grouped(b, x, groups), (2,), eps, order_of_groups(b, x))
    return b.reshape(_flowing(b, slope, made, factor, (2,)), x.shape)


def _group_weight(
    b: Any,
    g: Any,
    y: Any,
    x: Any,
    groups: Any,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
) -> Any:
    made, _ = normalised(b, _grouped(b, x, groups), (2,), eps, order_of_groups(b, x))
    return _over_pictures(b, b.mul(*widened(b, g), b.reshape(made, g.shape)))


GROUP_NORM = {"input": _group_input, "weight": _group_weight, "bias": _of_bias}
