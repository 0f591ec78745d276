"""Rules of convolutions and of pooling, each for a number of spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.ops.context import NoRow
from anyshape.ops.gradients.elementwise import zeros
from anyshape.ops.layout import numel

Rule = Callable[..., Any]


def gradients(n: int) -> Mapping[str, Rule]:
    """Those of a convolution over ``n`` dimensions, each done by the library."""

    def given(
        part: str,
        b: Any,
        g: Any,
        other: Any,
        shape: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Any = 1,
    ) -> Any:
        if isinstance(padding, str) or len(g.shape) != n + 2:
            raise NoRow("a convolution with named padding, or without a batch")
        name = f"conv{n}d_{part}_gradient"
        return b.call(name, g, other, shape, stride, padding, dilation, groups)

    def of_bias(b: Any, g: Any, y: Any, *rest: Any) -> Any:
        channel = len(g.shape) - n - 1
        return b.sum(g, tuple(d for d in range(len(g.shape)) if d != channel), False)

    return {
        "input": lambda b, g, y, x, w, bias=None, *r: given("input", b, g, w, x.shape, *r),
        "weight": lambda b, g, y, x, w, bias=None, *r: given("weight", b, g, x, w.shape, *r),
        "bias": of_bias,
    }


def max_pool(n: int) -> Mapping[str, Rule]:
    """The cotangent goes to where the greatest element was."""

    def rule(b: Any, g: Any, y: Any, x: Any, *options: Any) -> Any:
        (slope, _), (_, indices) = g, y
        if slope is None:
            return zeros(b, x)
        lead, count = x.shape[: len(x.shape) - n], len(x.shape) - n
        flat = (*lead, numel(x.shape[count:]))
        windows = (*lead, numel(slope.shape[count:]))
        start = b.full(flat, 0, slope.dtype, slope.type.device)
        at, given = b.reshape(indices, windows), b.reshape(slope, windows)
        return b.reshape(b.scatter_add(start, count, at, given), x.shape)

    return {"input": rule}
