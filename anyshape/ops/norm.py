"""Normalisations: layer, RMS, group, instance and batch norm, and their relatives.

All are computed in float32 where the input is smaller and rounded once, as ATen's kernels do.
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import DType, float64, int64
from anyshape.ir.graph import HOST, Arg, TensorType
from anyshape.nouns import replace
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.gradients import norms, reductions
from anyshape.ops.gradients.reductions import (
    center_and_factor,
    moments,
    normalised,
    order_of_channels,
    order_of_groups,
    order_of_instances,
    order_of_rows,
)
from anyshape.ops.image_layout import suggests_channels_last
from anyshape.ops.layout import (
    contiguous_strides,
    is_contiguous,
    numel,
    pointwise_strides,
    preserved_strides,
)
from anyshape.ops.reduce import cast, count_of, wide
from anyshape.ops.rules import (
    RowMajorRule,
    contiguous_like,
    dim_of,
    is_empty,
    of_numbers,
    require_sizes,
    sizes_of,
    tensor,
)
from anyshape.ops.table import Reduce, op
from anyshape.ops.variance import degrees_of_freedom
from anyshape.ops.view import Normal, sequence
from anyshape.symbolic import Dim, eq, floordiv, ge, minimum, mod, ne

# --- moments ---

op(
    "moment",
    "input, dims, keepdim, mean, squares=None, *, order, part",
    torch="anyshape.eager_norms.moment",
    type=lambda cx, x, dims, keepdim, mean, squares=None, *, order, part: tensor(mean),
    lower=Reduce("moment"),
    vjp=reductions.MOMENT,
)

# --- layer and RMS norm ---


def _layer_norm_type(cx: TypeContext, x: Any, shape: Any, *rest: Arg) -> TensorType:
    t = tensor(x)
    sizes = sizes_of(shape)
    if len(sizes) > t.rank or not sizes:
        raise OpError(f"Given normalized_shape={sizes}, expected input with as many dimensions")
    message = f"Given normalized_shape={sizes}, expected input and weights with that shape"
    require_sizes(cx, t.shape[t.rank - len(sizes) :], sizes, message)
    for affine in rest[:2]:
        if affine is not None and hasattr(affine, "shape"):
            require_sizes(cx, tensor(affine).shape, sizes, message)
    return TensorType(t.dtype, t.device, t.shape, contiguous_strides(cx, t.shape))


def _last_dims(x: Any, shape: Any) -> tuple[int, ...]:
    rank = len(x.shape)
    return tuple(range(rank - len(sequence(shape)), rank))


def _affine(b: Any, x: Any, weight: Any, bias: Any) -> Any:
    """``x * weight + bias`` in the dtype of ``x``."""
    if weight is not None:
        x = b.mul(x, cast(b, weight, x.dtype))
    return x if bias is None else b.add(x, cast(b, bias, x.dtype))


def _layer_norm_expand(
    b: Any, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5
) -> Any:
    scaled, _ = normalised(b, x, _last_dims(x, shape), eps, order_of_rows(x))
    return cast(b, _affine(b, scaled, weight, bias), x.dtype)


op(
    "layer_norm",
    "input, normalized_shape, weight=None, bias=None, eps=1e-05",
    torch="torch.nn.functional.layer_norm",
    vjp=reductions.LAYER_NORM,
    type=RowMajorRule(_layer_norm_type),
    expand=_layer_norm_expand,
)
op(
    "torch_layer_norm",
    "input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True",
    torch="torch.layer_norm",
    vjp="expansion",
    type=RowMajorRule(_layer_norm_type),
    expand=lambda b, x, shape, w=None, bias=None, eps=1e-5, cudnn=True: b.layer_norm(
        x, shape, w, bias, eps
    ),
)

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _rms_norm_type(
    cx: TypeContext, x: Any, shape: Any, weight: Any = None, eps: Any = None
) -> TensorType:
    """Row-major, but for images with their channels innermost, and what is row-major already, but
    for strides that no element depends on: eager multiplies these as they lie."""
    made, t = _layer_norm_type(cx, x, shape, weight), tensor(x)
    as_it_lies = is_contiguous(cx, t) or suggests_channels_last(cx, t)
    if not as_it_lies or t.strides == made.strides:
        return made
    averaged = not all(cx.same(size, 1) for size in sizes_of(shape))  # else means are of its shape
    return replace(made, strides=pointwise_strides(cx, t.shape, (t,), averaged))


def _rms_norm_expand(b: Any, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    dims = _last_dims(x, shape)
    wider = cast(b, x, wide(x.dtype))
    mean_square = b.div(b.sum(b.mul(wider, wider), dims, True), count_of(x.shape, dims))
    floor = EPSILON[wider.dtype.name] if eps is None else eps
    scaled = b.mul(wider, b.rsqrt(b.add(mean_square, floor)))
    return cast(b, _affine(b, scaled, weight, None), x.dtype)


op(
    "rms_norm",
    "input, normalized_shape, weight=None, eps=None",
    torch="torch.nn.functional.rms_norm",
    image_order="input",
    vjp=reductions.RMS_NORM,
    spellings=("torch.rms_norm",),
    type=_rms_norm_type,
    expand=_rms_norm_expand,
)

# --- batch, instance and group norm ---


def _channelwise(b: Any, values: Any, x: Any, dtype: DType) -> Any:
    """A vector over channels, shaped to broadcast with (N, C, ...)."""
    return b.reshape(cast(b, values, dtype), (1, values.shape[0], *(1,) * (len(x.shape) - 2)))


def _batch_norm_expand(
    b: Any,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    wider = cast(b, x, wide(x.dtype))
    if training or mean is None:
        dims = (0, *range(2, len(x.shape)))
        scaled, _ = normalised(b, x, dims, eps, order_of_channels(b, x))
    else:
        center = _channelwise(b, mean, x, wider.dtype)
        spread = _channelwise(b, var, x, wider.dtype)
        scaled = b.mul(b.sub(wider, center), b.rsqrt(b.add(spread, eps)))
    rows = [None if v is None else _channelwise(b, v, x, wider.dtype) for v in (weight, bias)]
    return cast(b, _affine(b, scaled, *rows), x.dtype)


def _channel_norm_type(cx: TypeContext, x: Any, *vectors: Arg) -> TensorType:
    """Like the picture; every vector has an element for each channel."""
    t = tensor(x)
    if t.rank < 2:
        raise OpError(f"expected an input of 2 dimensions at least, got {t.rank}")
    for vector in vectors:
        if vector is not None and hasattr(vector, "shape"):
            message = f"expected {t.shape[1]} elements, one for each channel"
            require_sizes(cx, tensor(vector).shape, t.shape[1:2], message)
    return _image_like(cx, x)


def _group_norm_type(
    cx: TypeContext, x: Any, groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5
) -> TensorType:
    t = tensor(x)
    cx.require(ge(groups, 1), f"Expected num groups to be greater than 0, got {groups}")
    divides = eq(mod(t.shape[1], groups), 0)
    cx.require(divides, "Expected number of channels in input to be divisible by num_groups")
    each = t.shape[0] * cx.facts.simplify(floordiv(t.shape[1], groups)) * numel(t.shape[2:])
    cx.require(ne(each, 1), "Expected more than 1 value per channel when training")
    return _channel_norm_type(cx, x, weight, bias)


def _is_a_librarys(t: TensorType, weight: Any, bias: Any) -> bool:
    """Does eager make the results of an image's layout, on the host and by a library of the device?
    Its own kernels, which take the rest there, make them lie as the argument."""
    if t.device == HOST:
        return True
    if weight is None or bias is None or t.rank < 3:
        return False
    kinds = {t.dtype.name, tensor(weight).dtype.name}
    return "bfloat16" not in kinds and kinds != {"float16"}


def _batch_norm_type(
    cx: TypeContext, x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: Arg, *rest: Arg
) -> TensorType:
    if not training and (mean is None or var is None):
        raise OpError("running_mean and running_var must be defined in evaluation mode")
    made = _channel_norm_type(cx, x, mean, var, weight, bias)
    if not _is_a_librarys(made, weight, bias):
        made = replace(made, strides=preserved_strides(cx, tensor(x)))
    n, channels, *space = made.shape
    if training:
        cx.require(ne(n * numel(space), 1), "Expected more than 1 value per channel when training")
    if weight is not None or bias is not None:
        cx.require(ne(channels, 0), "select(): index 0 out of range for tensor of size [0]")
    return made


def _instance_norm_type(
    cx: TypeContext,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any,
    bias: Any,
    use_input_stats: Arg,
    *rest: Arg,
) -> TensorType:
    if not use_input_stats and (mean is None or var is None):
        raise OpError("Expected running_mean and running_var to be defined")
    _channel_norm_type(cx, x, mean, var, weight, bias)
    n, channels, *space = tensor(x).shape
    if use_input_stats:
        cx.require(ne(numel(space), 1), "Expected more than 1 spatial element when training")
    if weight is not None or bias is not None:
        cx.require(ne(n * channels, 0), "select(): index 0 out of range for tensor of size [0]")
    return contiguous_like(0)(cx, x)


def _image_like(cx: TypeContext, x: Any, *rest: Arg, **kwargs: Arg) -> TensorType:
    t = tensor(x)
    keep = suggests_channels_last(cx, t)
    strides = preserved_strides(cx, t) if keep else contiguous_strides(cx, t.shape)
    return TensorType(t.dtype, t.device, t.shape, strides)


def _normal_batch_norm(
    cx: TypeContext,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: Arg = False,
    momentum: Arg = 0.1,
    eps: Arg = 1e-5,
) -> Normal:
    return (x, mean, var, weight, bias, bool(training), momentum, eps), {}


def _batch_norm_row(
    x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: Any, *rest: Any
) -> str | None:
    """The row that a call of ``batch_norm`` means."""
    if tensor(x).rank == 1 and weight is None and bias is None:
        return "batch_norm_of_nothing"
    return "batch_norm_training" if training and mean is not None else None


op(
    "batch_norm",
    "input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, "
    "eps=1e-05",
    torch="torch.nn.functional.batch_norm",
    vjp=norms.BATCH_NORM,
    overload=_batch_norm_row,
    normalize=_normal_batch_norm,
    type=_batch_norm_type,
    expand=_batch_norm_expand,
)


def _batch_norm_of_nothing(b: Any, x: Any, *rest: Any) -> Any:
    """Without a dimension of channels there may be no element either."""
    b.cx.require(eq(x.shape[0], 0), "Dimension out of range")
    return b.clone(x)


op(
    "batch_norm_of_nothing",
    "input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, "
    "eps=1e-05",
    torch="anyshape.eager_norms.batch_norm_of_nothing",
    inline=True,
    expand=_batch_norm_of_nothing,
)


def _batch_norm_moved(
    b: Any,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: Any = True,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    """Normalises by the batch; the running statistics, moved towards it, come after the result."""
    made = b.batch_norm(x, None, None, weight, bias, True, momentum, eps)
    dims = (0, *range(2, len(x.shape)))
    # The sums that the result is made of, so that they are read once.
    center, squares = moments(b, cast(b, x, wide(x.dtype)), dims, order_of_channels(b, x))
    spread = b.div(squares, degrees_of_freedom(count_of(x.shape, dims), 1))
    if spread.dtype is not float64:
        spread = cast(b, spread, x.dtype)
    center, spread = (b.reshape(v, x.shape[1:2]) for v in (cast(b, center, x.dtype), spread))
    moved = _moved(b, mean, center, momentum, numel(x.shape))
    return made, moved, _moved(b, var, spread, momentum, numel(x.shape))


def _moved(b: Any, running: Any, now: Any, momentum: Any, count: Dim) -> Any:
    """``running`` moved towards ``now``; as it is where ``count`` is 0."""
    message = "expected running statistics with an element for each channel"
    require_sizes(b.cx, running.shape, now.shape, message)
    stays = of_numbers("sub", 1.0, momentum)
    work = float64 if now.dtype is float64 else running.dtype
    parts = b.mul(cast(b, now, work), momentum), b.mul(cast(b, running, work), stays)
    blended = cast(b, b.add(*parts), running.dtype)
    if b.cx.known(ne(count, 0)) is True:
        return blended
    some = b.ne(b.full((), count, int64, running.type.device), 0)
    return b.where(some, blended, running)


def _while_training(name: str, *, counts: bool) -> Any:
    """The expansion that writes what the row ``name`` has moved; it needs no gradients. ``counts``:
    version counters move, as eager's do where torch says of an operator that it writes."""

    def expand(b: Any, x: Any, mean: Any, var: Any, *rest: Any) -> Any:
        if mean is None or var is None:
            raise NoRow("one running statistic without the other has no row")
        made, *moved = getattr(b, name)(x, mean, var, *rest)
        for running, now in zip((mean, var), moved, strict=True):
            b.copy_(running if counts else b.data(running), b.detach(now))
        return made

    return expand


_BATCH_NORM = (
    "input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, "
    "eps=1e-05"
)
op(
    "batch_norm_moved",
    _BATCH_NORM,
    torch="anyshape.eager_norms.batch_norm_moved",
    constant_results=frozenset({1, 2}),
    vjp="expansion",
    expand=_batch_norm_moved,
)
op(
    "batch_norm_training",
    _BATCH_NORM,
    torch="anyshape.eager_norms.batch_norm_training",
    inline=True,
    expand=_while_training("batch_norm_moved", counts=False),
)


def _group_norm_expand(
    b: Any, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: Any = 1e-5
) -> Any:
    wider = cast(b, x, wide(x.dtype))
    n, channels, *space = x.shape
    each = b.cx.facts.simplify(floordiv(channels, groups))
    split = b.reshape(wider, (n, groups, each * numel(space)))
    found = center_and_factor(b, split, (2,), eps, order_of_groups(b, x))
    channelwise = ((n, groups, each), (n, channels, *(1 for _ in space)))
    center, factor = (b.reshape(b.expand(v, channelwise[0]), channelwise[1]) for v in found)
    scaled = b.mul(b.sub(wider, center), factor)
    rows = [None if v is None else _channelwise(b, v, x, wider.dtype) for v in (weight, bias)]
    return cast(b, _affine(b, scaled, *rows), x.dtype)


op(
    "group_norm",
    "input, num_groups, weight=None, bias=None, eps=1e-05",
    torch="torch.nn.functional.group_norm",
    image_order="input",
    vjp=norms.GROUP_NORM,
    type=_group_norm_type,
    expand=_group_norm_expand,
)


def _instance_norm_expand(
    b: Any,
    x: Any,
    mean: Any = None,
    var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    if not use_input_stats:
        return b.batch_norm(x, mean, var, weight, bias, False, momentum, eps)
    dims = tuple(range(2, len(x.shape)))
    scaled, _ = normalised(b, x, dims, eps, order_of_instances(x))
    rows = [None if v is None else _channelwise(b, v, x, scaled.dtype) for v in (weight, bias)]
    return cast(b, _affine(b, scaled, *rows), x.dtype)


_INSTANCE_NORM = (
    "input, running_mean=None, running_var=None, weight=None, bias=None, "
    "use_input_stats=True, momentum=0.1, eps=1e-05"
)
op(
    "instance_norm",
    _INSTANCE_NORM,
    torch="torch.nn.functional.instance_norm",
    overload=lambda x, mean=None, var=None, w=None, bias=None, use_input_stats=True, *rest: (
        "instance_norm_training" if use_input_stats and (mean, var) != (None, None) else None
    ),
    normalize=lambda cx, x, mean, var, w, bias, use_input_stats, *rest: (
        (x, mean, var, w, bias, bool(use_input_stats), *rest),
        {},
    ),
    type=_instance_norm_type,
    expand=_instance_norm_expand,
    vjp=norms.INSTANCE_NORM,
)


def _instance_norm_moved(
    b: Any,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    """Normalises each picture by itself; the running statistics, moved towards their means, come
    after the result."""
    made = b.instance_norm(x, None, None, weight, bias, True, momentum, eps)
    wider, dims = cast(b, x, wide(x.dtype)), tuple(range(2, len(x.shape)))
    n, _, *space = x.shape  # pictures without elements move nothing, no pictures make it NaN
    count = numel(space) + 1 - minimum(n, 1)
    moved = _moved(b, mean, b.mean(b.mean(wider, dims), 0), momentum, count)
    spread = b.mean(b.var(wider, dims, correction=1), 0)
    return made, moved, _moved(b, var, spread, momentum, count)


op(
    "instance_norm_moved",
    _INSTANCE_NORM,
    torch="anyshape.eager_norms.instance_norm_moved",
    constant_results=frozenset({1, 2}),
    vjp="expansion",
    expand=_instance_norm_moved,
)
op(
    "instance_norm_training",
    _INSTANCE_NORM,
    torch="anyshape.eager_norms.instance_norm_training",
    inline=True,
    expand=_while_training("instance_norm_moved", counts=True),
)

# --- lengths ---


def _normalize_expand(
    b: Any, x: Any, p: Any = 2.0, dim: Any = 1, eps: Any = 1e-12, out: None = None
) -> Any:
    dims = tuple(dim_of(d, len(x.shape)) for d in sequence(dim))
    length = b.clamp(b.norm(x, p, dims, True), eps)
    return b.div(x, b.expand(length, x.shape))  # as eager, which so decides how it lies


op(
    "normalize",
    "input, p=2.0, dim=1, eps=1e-12, out=None",
    torch="torch.nn.functional.normalize",
    expand=_normalize_expand,
    by_value=("p",),
    vjp="expansion",
)


def _cosine_similarity_expand(b: Any, x: Any, y: Any, dim: int = 1, eps: Any = 1e-8) -> Any:
    shape = b.cx.broadcast_shapes((x.shape, y.shape))
    x, y = (v if v.shape == shape else b.expand(v, shape) for v in (x, y))
    x, y = (b.div(v, _at_least(b, b.vector_norm(v, 2, (dim,), True), eps)) for v in (x, y))
    return b.sum(b.mul(x, y), (dim,))


def _at_least(b: Any, length: Any, eps: Any) -> Any:
    """Where it is less than ``eps``, that, but the gradient goes through the length even so: eager
    clamps it in place, unseen by autograd."""
    nothing = b.sub(b.detach(length), length)
    raised = b.sub(b.clamp(b.detach(length), eps), nothing)
    return b.where(b.lt(length, eps), raised, length)


op(
    "cosine_similarity",
    "x1, x2, dim=1, eps=1e-08",
    torch="torch.nn.functional.cosine_similarity",
    spellings=("torch.cosine_similarity",),
    expand=_cosine_similarity_expand,
    vjp="expansion",
)


def _local_response_norm_expand(
    b: Any, x: Any, size: int, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1.0
) -> Any:
    """The squares' mean over windows of channels; one more zero than eager's pads them, so that
    there is a window where there is no channel."""
    rank = len(x.shape)
    if rank < 3:
        raise OpError(f"Expected 3D or higher dimensionality input (got {rank} dimensions)")
    if is_empty(b.cx, tensor(x)):
        return x
    if not x.dtype.is_floating:
        raise NoRow("the dtype of its result depends on whether there are elements")
    window = (size // 2, (size - 1) // 2 + 1)
    padded = b.pad(b.mul(x, x), tuple(window if d == 1 else (0, 0) for d in range(rank)), 0)
    means = b.mean(b.slice(b.unfold(padded, 1, size, 1), 1, 0, x.shape[1]), -1)
    return b.div(x, b.pow(b.add(b.mul(means, alpha), k), beta))


op(
    "local_response_norm",
    "input, size, alpha=0.0001, beta=0.75, k=1.0",
    torch="torch.nn.functional.local_response_norm",
    inline=True,
    expand=_local_response_norm_expand,
    alias="maybe",
)
