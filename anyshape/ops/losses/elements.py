"""Losses of torch.nn.functional of elements, expanded to elementwise rows and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ir.dtypes import float32
from anyshape.ir.graph import Arg, TensorType
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.layout import preserved_strides
from anyshape.ops.losses.reductions import OLD_FLAGS, finish, promoted, reduction_of
from anyshape.ops.reduce import cast, wide
from anyshape.ops.rules import is_tensor, new, number_category, of_numbers, require_sizes, tensor
from anyshape.ops.table import op
from anyshape.symbolic import Dim, all_of, eq

Loss = Callable[..., Any]


def _loss(name: str, signature: str, body: Loss, **rest: Any) -> None:
    """A row ``name(input, target, ...)`` whose elements are ``body(b, input, target, **own)``."""

    def expand(b: Any, x: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        bound = dict(zip(names, (x, target, *args)), **kwargs)
        chosen = reduction_of(
            bound.pop("size_average"), bound.pop("reduce"), bound.pop("reduction")
        )
        own = {k: v for k, v in bound.items() if k not in names[:2]}
        work = [cast(b, v, wide(v.dtype)) for v in (x, target)]
        weight = own.get("weight")
        _require_weights(b, x, weight)
        made = body(b, *work, **own)
        dtype = promoted(x, target, weight)
        if weight is None or chosen != "mean":
            return finish(b, made, chosen, dtype)
        return cast(b, b.div(b.sum(made), b.sum(cast(b, weight, made.dtype))), dtype)

    where = f"torch.nn.functional.{name}"
    row = op(name, signature, torch=where, expand=expand, vjp="expansion", **rest)
    names = row.signature.names


def _reduced(name: str, signature: str, body: Loss, **rest: Any) -> None:
    """A row whose elements are ``body(b, ...)`` of its arguments without those on reduction."""

    def expand(b: Any, *args: Any) -> Any:
        own = dict(zip(names, args, strict=True))
        chosen = reduction_of(own.pop("size_average"), own.pop("reduce"), own.pop("reduction"))
        return finish(b, body(b, *own.values()), chosen)

    where = f"torch.nn.functional.{name}"
    row = op(name, signature, torch=where, expand=expand, vjp="expansion", **rest)
    names = row.signature.names


def _square(b: Any, x: Any) -> Any:
    return b.mul(x, x)


_loss(
    "mse_loss",
    "input, target, size_average=None, reduce=None, reduction='mean', weight=None",
    lambda b, x, y, weight=None: _weighted(b, _square(b, b.sub(x, y)), weight),
)
_loss(
    "l1_loss",
    "input, target, size_average=None, reduce=None, reduction='mean', weight=None",
    lambda b, x, y, weight=None: _weighted(b, b.abs(b.sub(x, y)), weight),
)


def _weighted(b: Any, x: Any, weight: Any) -> Any:
    if weight is None:
        return x
    dtype = promoted(x, weight)
    return b.mul(cast(b, x, dtype), cast(b, weight, dtype))


def _require_weights(b: Any, x: Any, weight: Any) -> None:
    if weight is not None:
        require_sizes(b.cx, weight.shape, x.shape, "Weights and input must have the same size.")


def _smooth_l1(b: Any, x: Any, y: Any, beta: Any = 1.0) -> Any:
    gap = b.abs(b.sub(x, y))
    if beta == 0:
        return gap
    is_far, near = _near(b, gap, beta)
    return b.where(
        is_far,
        b.sub(gap, of_numbers("mul", 0.5, beta)),
        b.div(b.mul(b.mul(near, 0.5), near), beta),
    )


def _near(b: Any, gap: Any, least: Any) -> tuple[Any, Any]:
    """Where a gap is large, and the gap elsewhere, NaN too: there 0, as the gradient of an infinite
    square is none, even where it is not chosen."""
    is_far = b.ge(gap, least)
    return is_far, b.where(is_far, b.full((), 0, gap.dtype, gap.type.device), gap)


def _huber(b: Any, x: Any, y: Any, delta: Any = 1.0, weight: Any = None) -> Any:
    gap = b.abs(b.sub(x, y))
    is_far, gap_there = _near(b, gap, delta)
    near = b.mul(b.mul(gap_there, 0.5), gap_there)
    far = b.mul(b.sub(gap, of_numbers("mul", 0.5, delta)), delta)
    return _weighted(b, b.where(is_far, far, near), weight)


_loss(
    "smooth_l1_loss",
    "input, target, size_average=None, reduce=None, reduction='mean', beta=1.0",
    _smooth_l1,
)


def _filled(b: Any, like: Any, made: Any, reduction: Any) -> Any:
    """What eager writes into memory that it has made in the format of ``like``."""
    alike = len(made.shape) == len(like.shape) and all(map(b.cx.same, made.shape, like.shape))
    if reduction != "none" or not alike:
        return made
    return b.call("overwrite", b.call("empty_like", like, dtype=made.dtype), made)


def _huber_expand(
    b: Any, x: Any, y: Any, reduction: Any = "mean", delta: Any = 1.0, weight: Any = None
) -> Any:
    """It is of the input's type, as eager makes room for it there."""
    if not x.dtype.is_floating:
        raise OpError("the loss of what is no floating number")
    _require_weights(b, x, weight)
    made = _huber(b, x, y, delta, weight)
    made = finish(b, _filled(b, x, made, reduction) if weight is None else made, reduction)
    return cast(b, made, x.dtype if weight is None else promoted(x, weight))


op(
    "huber_loss",
    "input, target, reduction='mean', delta=1.0, weight=None",
    torch="torch.nn.functional.huber_loss",
    expand=_huber_expand,
    vjp="expansion",
)


def _kl_div(b: Any, x: Any, y: Any, log_target: Any = False) -> Any:
    if log_target:
        return b.mul(b.exp(y), b.sub(y, x))
    return b.sub(b.xlogy(y, y), b.mul(y, x))


def _kl_expand(
    b: Any,
    x: Any,
    y: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    log_target: Any = False,
) -> Any:
    chosen = reduction_of(size_average, reduce, reduction)
    made = _kl_div(b, x, y, log_target)
    if chosen != "batchmean":
        return finish(b, made, chosen)
    return b.div(b.sum(made), x.shape[0] if x.shape else 1)


op(
    "kl_div",
    f"input, target, {OLD_FLAGS}, reduction='mean', log_target=False",
    torch="torch.nn.functional.kl_div",
    expand=_kl_expand,
    vjp="expansion",
)


def _require_within(cx: TypeContext, part: Any, whole: Any) -> None:
    """What is broadcast to ``whole`` leaves its shape alone: eager writes the product there."""
    if part is not None:
        shape = cx.broadcast_shapes((part.shape, whole.shape))
        require_sizes(cx, shape, whole.shape, "output doesn't match the broadcast shape")


def _bce(b: Any, x: Any, y: Any, weight: Any = None) -> Any:
    one = b.sub(b.log1p(b.neg(x)), 0)
    hit = b.clamp(b.log(x), -100.0)
    miss = b.clamp(one, -100.0)
    return _weighted(b, b.sub(b.mul(b.sub(y, 1.0), miss), b.mul(y, hit)), weight)


def _bce_expand(
    b: Any,
    x: Any,
    y: Any,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Any:
    made = _bce(b, cast(b, x, wide(x.dtype)), cast(b, y, wide(y.dtype)), weight)
    return finish(b, made, reduction_of(size_average, reduce, reduction), x.dtype)


def _bce_logits_expand(
    b: Any,
    x: Any,
    y: Any,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    pos_weight: Any = None,
) -> Any:
    require_sizes(b.cx, y.shape, x.shape, "Target size must be the same as input size")
    if not (x.dtype.is_floating and y.dtype.is_floating):
        raise OpError("binary_cross_entropy_with_logits of what is no floating number")
    for factor in (weight, pos_weight):
        _require_within(b.cx, factor, x)
    p, q = (cast(b, v, wide(v.dtype)) for v in (x, y))
    log_weight = b.logsigmoid(p)
    if pos_weight is not None:
        factor = b.add(b.mul(b.sub(pos_weight, 1), q), 1)
        log_weight = b.mul(log_weight, factor)
    chosen, rest = reduction_of(size_average, reduce, reduction), b.rsub(q, 1)
    # eager computes it where it has put 1 - target
    unweighted = _filled(b, rest, b.sub(b.mul(rest, p), log_weight), chosen)
    return finish(b, _weighted(b, unweighted, weight), chosen, y.dtype)


_WEIGHTED = f"input, target, weight=None, {OLD_FLAGS}, reduction='mean'"


def _is_no_probability(b: Any, x: Any) -> Any:
    return b.logical_not(b.logical_and(b.ge(x, 0), b.le(x, 1)))


def _bce_type(
    cx: TypeContext, x: Any, y: Any, weight: Any, size_average: Arg, reduce: Arg, reduction: Arg
) -> TensorType:
    t = tensor(x)
    message = "Using a target size that is different to the input size"
    require_sizes(cx, tensor(y).shape, t.shape, message)
    _require_within(cx, weight, x)
    if reduction_of(size_average, reduce, reduction) != "none":
        return new(cx, t, ())
    return TensorType(t.dtype, t.device, t.shape, preserved_strides(cx, t))


op(
    "binary_cross_entropy",
    _WEIGHTED,
    torch="torch.nn.functional.binary_cross_entropy",
    expand=_bce_expand,
    type=_bce_type,
    refuses=lambda b, x, y, *rest: (_is_no_probability(b, x), _is_no_probability(b, y)),
    vjp="expansion",
)
op(
    "binary_cross_entropy_with_logits",
    f"{_WEIGHTED}, pos_weight=None",
    torch="torch.nn.functional.binary_cross_entropy_with_logits",
    expand=_bce_logits_expand,
    vjp="expansion",
)

# --- margins ---


def _hinge(b: Any, x: Any, y: Any, margin: Any) -> Any:
    zero = b.full((), 0, x.dtype, x.type.device)
    near = b.where(b.ne(y, 1), b.clamp(b.rsub(x, margin), 0), zero)
    far = b.where(b.ne(y, -1), x, zero)
    return b.add(near, far)


_reduced(
    "hinge_embedding_loss",
    f"input, target, margin=1.0, {OLD_FLAGS}, reduction='mean'",
    _hinge,
    inline=True,  # the target is only compared, and gets no gradients
)


def _margin_ranking(b: Any, x: Any, y: Any, target: Any, margin: Any) -> Any:
    return b.clamp(b.add(b.mul(b.neg(target), b.sub(x, y)), margin), 0)


_reduced(
    "margin_ranking_loss",
    f"input1, input2, target, margin=0, {OLD_FLAGS}, reduction='mean'",
    _margin_ranking,
)


def _cosine_embedding(b: Any, x: Any, y: Any, target: Any, margin: Any) -> Any:
    tiny = 1e-12
    dim = len(y.shape) - 1
    product = b.sum(b.mul(x, y), (dim,))
    lengths = [b.add(b.sum(b.mul(v, v), (dim,)), tiny) for v in (x, y)]
    cosine = b.div(product, b.sqrt(b.mul(*lengths)))
    zero = b.full((), 0, cosine.dtype, x.type.device)
    near = b.where(b.eq(target, 1), b.rsub(cosine, 1), zero)
    far = b.where(b.eq(target, -1), b.clamp(b.sub(cosine, margin), 0), zero)
    return b.add(near, far)


_reduced(
    "cosine_embedding_loss",
    f"input1, input2, target, margin=0, {OLD_FLAGS}, reduction='mean'",
    _cosine_embedding,
    inline=True,
)


def _soft_margin(b: Any, x: Any, y: Any) -> Any:
    """It is of the input's type, as eager makes room for it there, and lies as that."""
    if not x.dtype.is_floating:
        raise OpError("the loss of what is no floating number")
    _require_within(b.cx, y, x)
    return cast(b, b.log1p(b.exp(b.mul(x, b.neg(y)))), x.dtype)


_reduced("soft_margin_loss", f"input, target, {OLD_FLAGS}, reduction='mean'", _soft_margin)


def _poisson(b: Any, x: Any, y: Any, log_input: Any, full: Any, eps: Any) -> Any:
    made = b.sub(b.exp(x), b.mul(y, x)) if log_input else b.sub(x, b.mul(y, b.log(b.add(x, eps))))
    if full:
        stirling = b.add(
            b.sub(b.mul(y, b.log(y)), y), b.mul(b.log(b.mul(y, 6.283185307179586)), 0.5)
        )
        made = b.add(made, b.masked_fill(stirling, b.le(y, 1), 0))
    return made


_reduced(
    "poisson_nll_loss",
    "input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, "
    "reduction='mean'",
    _poisson,
)


def _triplet(
    b: Any, anchor: Any, positive: Any, negative: Any, margin: Any, p: Any, eps: Any, swap: Any
) -> Any:
    near = b.pairwise_distance(anchor, positive, p, eps)
    far = b.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = b.minimum(far, b.pairwise_distance(positive, negative, p, eps))
    return b.clamp(b.add(b.sub(near, far), margin), 0)


_reduced(
    "triplet_margin_loss",
    f"anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, {OLD_FLAGS}, "
    "reduction='mean'",
    _triplet,
)


def _is_of_shape(cx: TypeContext, x: Any, shape: tuple[Dim, ...]) -> bool:
    return len(x.shape) == len(shape) and cx.decide(all_of(*map(eq, x.shape, shape)))


def _own_variance(b: Any, x: Any, var: Any) -> Any:
    """As torch's Python takes it: of the input's shape, or of one element in one of its dimensions,
    which may be left out where it is the last."""
    if not is_tensor(var):
        if number_category(var) != "float":
            raise OpError("any() of a number")
        return b.mul(b.ones_like(x), var)
    if _is_of_shape(b.cx, var, x.shape):
        return var
    if _is_of_shape(b.cx, var, x.shape[:-1]):
        return b.unsqueeze(var, -1)
    unlike = [of for of, own in zip(var.shape, x.shape) if not b.cx.decide(eq(of, own))]
    if len(var.shape) == len(x.shape) and b.cx.decide(eq(sum(unlike), 1)):
        return var
    raise OpError("var is of incorrect size")


def _gaussian_nll_expand(
    b: Any, x: Any, y: Any, var: Any, full: Any = False, eps: Any = 1e-6, reduction: Any = "mean"
) -> Any:
    """Eager raises a small variance to ``eps`` where no gradient is recorded: it passes there."""
    if reduction == "elementwise_mean":
        raise OpError("elementwise_mean is not valid here")
    own = _own_variance(b, x, var)
    low = b.where(b.lt(own, eps), b.add(own, b.detach(b.rsub(own, eps))), own)
    made = b.mul(b.add(b.log(low), b.div(_square(b, b.sub(x, y)), low)), 0.5)
    if full:
        made = b.add(made, 0.9189385332046727)
    return finish(b, made, reduction)


op(
    "gaussian_nll_loss",
    "input, target, var, full=False, eps=1e-06, reduction='mean'",
    torch="torch.nn.functional.gaussian_nll_loss",
    expand=_gaussian_nll_expand,
    refuses=lambda b, x, y, var, *rest: b.lt(
        var if is_tensor(var) else b.full((), var, float32, x.type.device), 0
    ),
    vjp="expansion",
)


def _ctc_type(
    cx: TypeContext,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: Any = 0,
    reduction: Any = "mean",
    zero_infinity: Any = False,
) -> TensorType:
    t = tensor(log_probs)
    if t.rank not in (2, 3) or not t.dtype.is_floating:
        raise OpError("ctc_loss expects log_probs of (T, N, C) or (T, C)")
    return new(cx, t, t.shape[1:-1] if reduction == "none" else ())


op(
    "ctc_loss",
    "log_probs, targets, input_lengths, target_lengths, blank=0, reduction='mean', "
    "zero_infinity=False",
    torch="torch.nn.functional.ctc_loss",
    type=_ctc_type,
    raises=True,
)
