"""Losses of class labels, and of probabilities of classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anyshape.ir.dtypes import float64
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.layout import numel
from anyshape.ops.losses.reductions import finish, promoted, reduction_of
from anyshape.ops.reduce import cast, wide
from anyshape.ops.rules import new, of_numbers, require_sizes, tensor
from anyshape.ops.table import op
from anyshape.symbolic import Dim, minimum


def _cross_entropy_expand(
    b: Any, x: Any, target: Any, weight: Any = None, size_average: Any = None,
    ignore_index: Any = -100, reduce: Any = None, reduction: Any = "mean",
    label_smoothing: Any = 0.0,
) -> Any:  # fmt: skip
    chosen = reduction_of(size_average, reduce, reduction)
    dim = 0 if len(x.shape) == 1 else 1
    logs = b.log_softmax(cast(b, x, wide(x.dtype)), dim)
    if target.dtype.is_floating:
        dtype = promoted(x, target, weight)
        return _soft_labels(b, logs, target, weight, dim, chosen, label_smoothing, dtype)
    return _nll(b, logs, target, weight, ignore_index, dim, chosen, label_smoothing, x.dtype)


def _share(smoothing: Any, classes: Dim) -> Any:
    """What smoothing gives to each class."""
    return of_numbers("truediv", smoothing, classes) if classes != 0 else math.inf


def _if_smoothed(b: Any, smoothing: Any, plain: Any, smoothed: Callable[[], Any]) -> Any:
    """Eager ignores an amount that is not above 0; of one that is computed only a call tells."""
    if isinstance(smoothing, (int, float)):
        return smoothed() if smoothing > 0 else plain
    amount = b.full((), smoothing, float64, plain.type.device)
    return b.where(b.gt(amount, 0), smoothed(), plain)


def _soft_labels(
    b: Any, logs: Any, target: Any, weight: Any,
    dim: int, reduction: Arg, smoothing: Any, dtype: Any,
) -> Any:  # fmt: skip
    logs = cast(b, logs, wide(dtype))
    goal = cast(b, target, logs.dtype)
    rest, share = of_numbers("sub", 1.0, smoothing), _share(smoothing, logs.shape[dim])
    goal = _if_smoothed(b, smoothing, goal, lambda: b.add(b.mul(goal, rest), share))
    if weight is not None:
        goal = b.mul(goal, _over_classes(b, weight, logs, dim))
    loss = b.neg(b.sum(b.mul(logs, goal), (dim,)))
    if reduction == "mean":  # of no classes it is NaN, whatever the rest of the shape
        count = numel([n for d, n in enumerate(logs.shape) if d != dim])
        return cast(b, b.div(b.sum(loss), count * minimum(logs.shape[dim], 1)), dtype)
    return finish(b, loss, reduction, dtype)


def _over_classes(b: Any, weight: Any, logs: Any, dim: int) -> Any:
    shape = tuple(n if d == dim else 1 for d, n in enumerate(logs.shape))
    return b.reshape(cast(b, weight, logs.dtype), shape)


def _nll(
    b: Any, logs: Any, target: Any, weight: Any, ignore_index: Any,
    dim: int, reduction: Arg, smoothing: Any, dtype: Any,
) -> Any:  # fmt: skip
    """Negative log likelihood of integer targets; those equal to ``ignore_index`` do not count."""
    counts = b.ne(target, ignore_index)
    safe = b.where(counts, target, b.full((), 0, target.dtype, target.type.device))
    picked = b.neg(b.squeeze(b.gather(logs, dim, b.unsqueeze(safe, dim)), dim))
    zero = b.full((), 0, logs.dtype, logs.type.device)
    scale = None
    if weight is not None:
        flat = b.index_select(cast(b, weight, logs.dtype), 0, b.reshape(safe, (-1,)))
        scale = b.reshape(flat, safe.shape)
        picked = b.mul(picked, scale)
    loss = b.where(counts, picked, zero)

    def smoothed() -> Any:
        weighted = logs if weight is None else b.mul(logs, _over_classes(b, weight, logs, dim))
        smooth = b.where(counts, b.neg(b.sum(weighted, (dim,))), zero)
        rest, share = of_numbers("sub", 1.0, smoothing), _share(smoothing, logs.shape[dim])
        return b.add(b.mul(loss, rest), b.mul(smooth, share))

    loss = _if_smoothed(b, smoothing, loss, smoothed)
    if reduction != "mean":
        return finish(b, loss, reduction, dtype)
    ones = cast(b, counts, logs.dtype) if scale is None else b.where(counts, scale, zero)
    return cast(b, b.div(b.sum(loss), b.sum(ones)), dtype)


def _nll_type(cx: TypeContext, x: Any, target: Any, weight: Any, reduction: Arg) -> TensorType:
    """The losses of the labels are row-major; probabilities lose the class dimension."""
    t, labels = tensor(x), tensor(target)
    if not t.rank:
        raise OpError("a loss of classes needs a dimension of them")
    dim = 0 if t.rank == 1 else 1
    shape = tuple(n for d, n in enumerate(t.shape) if d != dim)
    if labels.dtype.is_floating:
        require_sizes(cx, labels.shape, t.shape, "Expected probabilities of the input's shape")
    else:
        require_sizes(cx, labels.shape, shape, "Expected a label for each row of classes")
    if weight is not None:
        classes = t.shape[dim : dim + 1]
        require_sizes(cx, tensor(weight).shape, classes, "Expected a weight for each class")
    dtype = promoted(x, target, weight) if labels.dtype.is_floating else t.dtype
    return new(cx, t, shape if reduction == "none" else (), dtype)


def _cross_entropy_type(
    cx: TypeContext, x: Any, target: Any, weight: Any, size_average: Arg, ignore: Arg,
    reduce: Arg, reduction: Arg, smoothing: Arg = 0.0,
) -> TensorType:  # fmt: skip
    return _nll_type(cx, x, target, weight, reduction_of(size_average, reduce, reduction))


op(
    "cross_entropy",
    "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, "
    "reduction='mean', label_smoothing=0.0",
    torch="torch.nn.functional.cross_entropy",
    vjp="expansion",
    type=_cross_entropy_type,
    expand=_cross_entropy_expand,
)


def _nll_loss_expand(
    b: Any,
    x: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: Any = -100,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    chosen = reduction_of(size_average, reduce, reduction)
    dim = 0 if len(x.shape) == 1 else 1
    return _nll(
        b, cast(b, x, wide(x.dtype)), target, weight, ignore_index, dim, chosen, 0.0, x.dtype
    )


op(
    "nll_loss",
    "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, "
    "reduction='mean'",
    torch="torch.nn.functional.nll_loss",
    vjp="expansion",
    type=_cross_entropy_type,
    expand=_nll_loss_expand,
)
