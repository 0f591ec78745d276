"""The rest of torch.nn.functional: dropout, attention, bilinear forms, shuffles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import HOST, Arg, TensorType
from anyshape.nouns import replace
from anyshape.ops.context import NoRow, OpError, TypeContext, Undecided
from anyshape.ops.flash_attention import differentiated_attention
from anyshape.ops.gradients import products
from anyshape.ops.image_layout import suggests_channels_last
from anyshape.ops.layout import (
    Shape,
    channels_last_strides,
    contiguous_strides,
    is_contiguous,
    numel,
    preserved_strides,
)
from anyshape.ops.random import times_noise
from anyshape.ops.reduce import cast, wide
from anyshape.ops.rules import (
    is_any_zero,
    is_empty,
    like,
    new,
    of_numbers,
    require_sizes,
    tensor,
)
from anyshape.ops.table import CausalMask, Extern, op
from anyshape.ops.view import Normal
from anyshape.symbolic import Condition, Dim, eq, floordiv, ge, minimum, mod, ne

# --- dropout: nothing in eval mode, random otherwise (random.py has native_dropout) ---


def _dropout_expand(
    b: Any, x: Any, p: Any = 0.5, training: Any = True, inplace: Any = False
) -> Any:
    return b.random_dropout(x, p) if training else x


def _normal_dropout(
    cx: TypeContext, x: Any, p: Arg = 0.5, training: Arg = True, inplace: Arg = False
) -> Normal:
    return (x, p, _drops(cx, x, p, training), inplace), {}


def _drops(cx: TypeContext, x: Any, p: Arg, training: Arg) -> bool:
    """Is there anything that can be dropped? Else eager gives back its argument."""
    return bool(training) and p != 0 and not is_empty(cx, tensor(x))


op(
    "dropout",
    "input, p=0.5, training=True, inplace=False",
    torch="torch.nn.functional.dropout",
    normalize=_normal_dropout,
    inline=True,
    expand=_dropout_expand,
    alias="maybe",
)
for _name, _torch in (
    ("torch_dropout", "torch.dropout"),
    ("feature_dropout", "torch.feature_dropout"),
    ("alpha_dropout", "torch.alpha_dropout"),
):
    op(
        _name,
        "input, p, train",
        torch=_torch,
        alias="maybe",
        normalize=lambda cx, x, p, train: ((x, p, _drops(cx, x, p, train)), {}),
        inline=True,
        expand=lambda b, x, p, train, name=_name: _eval_only(b, x, p, train, name),
    )


BATCHED = {"dropout1d": 3, "dropout3d": 5}
"""Dimensions of a batch; what has fewer or more is made one, and the result is a view of it."""


def _eval_only(b: Any, x: Any, p: Any, train: Any, name: str) -> Any:
    if name == "dropout1d" and len(x.shape) not in (2, 3):
        raise OpError(f"dropout1d: Expected 2D or 3D input, but received a {len(x.shape)}D input")
    if not train:
        is_batch = len(x.shape) == BATCHED.get(name, len(x.shape))
        return x if is_batch else b.squeeze(b.unsqueeze(x, 0), (0,))
    function = name.removeprefix("torch_").removeprefix("nn_")
    if function == "feature_dropout":
        function = "dropout2d"
    return b.call(f"random_{function}", x, p)


def _dropout_noise(b: Any, x: Any, p: Any) -> Any:
    """What dropout multiplies by. Of what is drawn a byte for each element decides the gradient."""
    kept = b.dropout_kept(x, p)
    return b.where(kept, b.div(b.to_dtype(kept, x.dtype), of_numbers("sub", 1, p)), 0)


op(
    "random_dropout",
    "input, p",
    torch="anyshape.eager.random_dropout",
    type=times_noise,
    random=True,
    lower=Extern("anyshape.eager.random_dropout"),
    expand=lambda b, x, p: b.mul(x, _dropout_noise(b, x, p)),
    vjp="expansion",
)
op(
    "dropout_kept",
    "input, p",
    torch="anyshape.eager.dropout_kept",
    type=lambda cx, x, p: replace(like(0)(cx, x), dtype=bool_),
    random=True,
    differentiable=False,
    lower=Extern("anyshape.eager.dropout_kept"),
)
for _name, _training in (
    ("dropout1d", True),
    ("dropout2d", True),
    ("dropout3d", True),
    ("nn_alpha_dropout", False),
    ("feature_alpha_dropout", False),
):
    _function = _name.removeprefix("nn_")
    op(
        _name,
        f"input, p=0.5, training={_training}, inplace=False",
        torch=f"torch.nn.functional.{_function}",
        normalize=_normal_dropout,
        inline=True,
        alias="maybe",
        expand=lambda b, x, p=0.5, training=True, inplace=False, name=_name: _eval_only(
            b, x, p, training, name
        ),
    )

# --- attention ---

_SDPA = (
    "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, "
    "enable_gqa=False"
)


def _normal_sdpa(
    cx: TypeContext,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    *,
    scale: Any = None,
    enable_gqa: Any = False,
) -> Normal:
    return (q, k, v, mask, dropout_p, is_causal), {"scale": scale, "enable_gqa": bool(enable_gqa)}


def _sdpa_type(
    cx: TypeContext,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    dropout_p: Any,
    is_causal: Any,
    *,
    scale: Any,
    enable_gqa: Any,
) -> TensorType:
    """ATen's flash kernel of the host lays its result out as the query lies."""
    query, key, value = tensor(q), tensor(k), tensor(v)
    for t in (key, value):
        if t.dtype is not query.dtype:
            raise OpError("Expected query, key, and value to have the same dtype")
        if t.rank < 2:
            raise OpError("query, key and value must have at least two dimensions")
    if mask is not None and is_causal is True:
        raise OpError("Explicit attn_mask should not be set when is_causal=True")
    _equal(cx, query.shape[-1], key.shape[-1])
    _equal(cx, key.shape[-2], value.shape[-2])
    batch = query.shape[:-2]
    if enable_gqa:
        for t in (key, value):
            _shares_heads(cx, query, t)
    else:
        batch = cx.broadcast_shapes((query.shape[:-2], key.shape[:-2], value.shape[:-2]))
    shape = (*batch, query.shape[-2], value.shape[-1])
    _refuse_nothing(cx, query, value, batch)
    strides = contiguous_strides(cx, shape)
    if _may_be_flash(query, key, value, mask, dropout_p):
        if any(t.requires_grad for t in (query, key, value)):
            _rely_on_flash_sizes(cx, query, key, value, bool(enable_gqa))
        as_query = _as_query(cx, query)
        is_plain = as_query == contiguous_strides(cx, query.shape)
        if not is_plain and _are_flash_sizes(cx, query, key, value, bool(enable_gqa)):
            strides = as_query
    return TensorType(query.dtype, query.device, shape, strides)


def _refuse_nothing(cx: TypeContext, query: TensorType, value: TensorType, batch: Shape) -> None:
    """Where there is nothing to look at or to compute, eager broadcasts no batch."""
    own = query.shape[:-2]
    if len(own) == len(batch) and all(map(cx.same, own, batch)):
        return
    if not (is_any_zero(cx, (*query.shape[:-1], value.shape[-1])) or is_empty(cx, value)):
        return
    if len(own) != len(batch) or not all(cx.decide(eq(a, b)) for a, b in zip(own, batch)):
        raise NoRow("attention of nothing, whose batch is another than its query's")


def _as_query(cx: TypeContext, query: TensorType) -> Shape:
    """In the format of the query whose heads come behind its rows."""
    order = (0, 2, 1, 3)
    shape, strides = (tuple(dims[d] for d in order) for dims in (query.shape, query.strides))
    turned = replace(query, shape=shape, strides=strides)
    rows = is_contiguous(cx, turned)
    made = contiguous_strides(cx, shape) if rows else preserved_strides(cx, turned)
    return tuple(made[d] for d in order)


def _equal(cx: TypeContext, a: Dim, b: Dim) -> None:
    if a is not b and a != b:
        cx.require(eq(a, b), "query, key and value have sizes that do not go together")


def _shares_heads(cx: TypeContext, query: TensorType, shared: TensorType) -> None:
    """Each of its heads is that of as many queries' heads: none is left."""
    if min(query.rank, shared.rank) < 3:
        raise OpError("grouped heads need three dimensions")
    heads, groups = query.shape[-3], shared.shape[-3]
    if heads is not groups and heads != groups and not cx.decide(eq(groups, 0)):
        whole = cx.facts.simplify(groups * floordiv(heads, groups))
        cx.require(eq(whole, heads), "the heads of keys and values must divide those of queries")


def _may_be_flash(q: TensorType, k: TensorType, v: TensorType, mask: Any, dropout_p: Any) -> bool:
    """The conditions of ``sdp::use_flash_attention_cpp`` that no unknown size decides."""
    return (
        q.rank == k.rank == v.rank == 4
        and dropout_p in (0, 0.0)
        and q.dtype.is_floating
        and all(t.strides[-1] == 1 for t in (q, k, v))
        and (mask is None or tensor(mask).rank in (2, 4))
        and 0 not in (q.shape[-2], k.shape[-2])
    )


def _are_flash_sizes(
    cx: TypeContext, q: TensorType, k: TensorType, v: TensorType, grouped: bool
) -> bool:
    """Its conditions on sizes, by a guard where they are not known: no batch is broadcast, and
    results are as wide as queries."""
    return all(cx.decide(condition) for condition in _flash_sizes(q, k, v, grouped))


def _flash_sizes(
    q: TensorType, k: TensorType, v: TensorType, grouped: bool
) -> Iterator[Condition | bool]:
    yield eq(q.shape[-1], v.shape[-1])
    yield from (eq(q.shape[d], t.shape[d]) for d in ((0,) if grouped else (0, 1)) for t in (k, v))


def _rely_on_flash_sizes(
    cx: TypeContext, q: TensorType, k: TensorType, v: TensorType, grouped: bool
) -> None:
    """Gradients take eager's own kernel where its conditions are known to hold: capture guards them
    where they hold for the example, and relies on nothing where they do not."""
    unknown = [c for c in _flash_sizes(q, k, v, grouped) if cx.known(c) is not True]
    if cx.on_guard is not None and all(cx.hint(condition) for condition in unknown):
        for condition in unknown:
            cx.decide(condition)


def _dropping_row(q: TensorType, p: Any) -> str | None:
    """The row of attention that drops weights. Devices other than the host draw in their
    kernels, for forward and backward alike: eager's own is run, under its autograd."""
    if p in (0, 0.0):
        return None
    return "attention_with_dropout" if q.device == HOST else "attention_with_dropout_in_kernels"


op(
    "scaled_dot_product_attention",
    _SDPA,
    torch="torch.nn.functional.scaled_dot_product_attention",
    vjp="expansion",
    normalize=_normal_sdpa,
    type=_sdpa_type,
    lower=Extern("torch.nn.functional.scaled_dot_product_attention", "new"),
    overload=lambda q, k, v, mask, p, *rest, **named: _dropping_row(tensor(q), p),
    expand=lambda b, *args, **named: differentiated_attention(b, *args, **named),
    causal=CausalMask(mask=3, flag=5),
)
op(
    "attention_by_products",
    _SDPA,
    torch="anyshape.eager_attention.attention_by_products",
    vjp=products.ATTENTION,
    normalize=_normal_sdpa,
    type=_sdpa_type,
    lower=Extern("torch.nn.functional.scaled_dot_product_attention", "new"),
)
op(
    "attention_with_dropout",
    _SDPA,
    torch="torch.ops.aten.scaled_dot_product_attention.default",
    normalize=_normal_sdpa,
    type=_sdpa_type,
    random=True,
    vjp="expansion",
    lower=Extern("torch.nn.functional.scaled_dot_product_attention"),
    expand=lambda b, *args, **named: _dropped_attention(b, *args, **named),
)
op(
    "attention_with_dropout_in_kernels",
    _SDPA,
    torch="anyshape.eager_attention.attention_with_dropout_in_kernels",
    normalize=_normal_sdpa,
    type=_sdpa_type,
    random=True,
    lower=Extern("torch.nn.functional.scaled_dot_product_attention"),
)


def _dropped_attention(
    b: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    dropout_p: Any,
    is_causal: Any,
    *,
    scale: Any,
    enable_gqa: Any,
) -> Any:
    """ATen's own composition, which draws for each weight and is wide up to its result."""
    if enable_gqa:
        k, v = (products.repeated_heads(b, t, q) for t in (k, v))
    weights = _attention_weights(b, q, k, mask, is_causal, scale)
    kept = b.random_dropout(weights, dropout_p)
    return cast(b, b.matmul(kept, cast(b, v, wide(q.dtype))), q.dtype)


def _attention_weights(b: Any, q: Any, k: Any, mask: Any, is_causal: Any, scale: Any) -> Any:
    """Who sees whom, and how much, in the dtype that is computed in."""
    work = wide(q.dtype)
    size = q.shape[-1]
    query, key = (cast(b, t, work) for t in (q, k))
    factor = b.pow(b.full((), size, work, q.type.device), -0.5) if scale is None else scale
    scores = b.matmul(b.mul(query, factor), b.transpose(key, -2, -1))
    scores = _masked(b, scores, mask, is_causal)
    weights = b.softmax(scores, -1)
    if mask is not None and mask.dtype is bool_:  # a row that sees nothing is 0, not NaN
        empty = b.logical_not(b.any(mask, -1, True))
        weights = b.masked_fill(weights, empty, 0.0)
    return weights


def _explicit_expand(
    b: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    dropout_p: Any,
    is_causal: Any,
    *,
    scale: Any,
    enable_gqa: Any,
) -> Any:
    if dropout_p not in (0, 0.0):
        raise NoRow("attention with dropout has no row")
    if enable_gqa:
        k, v = (products.repeated_heads(b, t, q) for t in (k, v))
    weights = _attention_weights(b, q, k, mask, is_causal, scale)
    return cast(b, b.matmul(weights, cast(b, v, wide(q.dtype))), q.dtype)


def _masked(b: Any, scores: Any, mask: Any, is_causal: Any) -> Any:
    if mask is not None:
        return (
            b.masked_fill(scores, b.logical_not(mask), float("-inf"))
            if mask.dtype is bool_
            else b.add(scores, mask)
        )
    return products.without_later_keys(b, scores, is_causal)


op(
    "explicit_attention",
    _SDPA,
    torch="anyshape.eager.explicit_attention",
    normalize=_normal_sdpa,
    type=lambda cx, q, k, v, *rest, **kw: new(
        cx, tensor(q), _sdpa_type(cx, q, k, v, *rest, **kw).shape
    ),
    expand=_explicit_expand,
)

# --- linear forms, distances, shuffles ---


def _bilinear_expand(b: Any, x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    for t in (x, y):
        b.cx.require(ne(t.shape[-1], 0), "cannot reshape tensor of 0 elements into shape [-1, 0]")
    require_sizes(b.cx, x.shape[:-1], y.shape[:-1], "bilinear(): input batches do not match")
    made = b.einsum("...i,oij,...j->...o", (x, weight, y))
    return made if bias is None else b.add(made, bias)


op(
    "bilinear",
    "input1, input2, weight, bias=None",
    torch="torch.nn.functional.bilinear",
    vjp="expansion",
    spellings=("torch.bilinear",),
    expand=_bilinear_expand,
)


def _pairwise_distance_expand(
    b: Any, x: Any, y: Any, p: Any = 2.0, eps: Any = 1e-6, keepdim: bool = False
) -> Any:
    return b.vector_norm(b.add(b.sub(x, y), eps), p, -1, keepdim)


op(
    "pairwise_distance",
    "x1, x2, p=2.0, eps=1e-06, keepdim=False",
    torch="torch.nn.functional.pairwise_distance",
    expand=_pairwise_distance_expand,
    spellings=("torch.pairwise_distance",),
    by_value=("p",),
    vjp="expansion",
)


def _pixel_shuffle_expand(b: Any, x: Any, factor: int) -> Any:
    *batch, channels, height, width = x.shape
    n = len(batch)
    split = b.reshape(
        x, (*batch, floordiv(channels, factor * factor), factor, factor, height, width)
    )
    moved = b.permute(split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return b.reshape(
        moved, (*batch, floordiv(channels, factor * factor), height * factor, width * factor)
    )


def _image_like(cx: TypeContext, t: TensorType, shape: Shape) -> TensorType:
    """A new tensor; channels stay innermost where those of ``t`` are."""
    made = new(cx, t, shape)
    last = suggests_channels_last(cx, t)
    return replace(made, strides=channels_last_strides(shape)) if last else made


def _pixel_unshuffle_expand(b: Any, x: Any, factor: int) -> Any:
    *batch, channels, height, width = x.shape
    n = len(batch)
    rows, columns = floordiv(height, factor), floordiv(width, factor)
    split = b.reshape(x, (*batch, channels, rows, factor, columns, factor))
    moved = b.permute(split, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return b.reshape(moved, _pixel_unshuffle_type(b.cx, x, factor).shape)


def _pixel_shuffle_type(cx: TypeContext, x: Any, factor: int) -> TensorType:
    *batch, channels, height, width = tensor(x).shape
    cx.require(ge(factor, 1), f"pixel_shuffle expects a positive upscale_factor, got {factor}")
    cx.require(
        eq(mod(channels, factor * factor), 0),
        "pixel_shuffle expects channels divisible by the factor's square",
    )
    shuffled = (*batch, floordiv(channels, factor * factor), height * factor, width * factor)
    return _image_like(cx, tensor(x), shuffled)


def _pixel_unshuffle_type(cx: TypeContext, x: Any, factor: int) -> TensorType:
    *batch, channels, height, width = tensor(x).shape
    cx.require(ge(factor, 1), f"pixel_unshuffle expects a positive downscale_factor, got {factor}")
    for size in (height, width):
        cx.require(
            eq(mod(size, factor), 0), "pixel_unshuffle expects sizes divisible by the factor"
        )
    rows, columns = floordiv(height, factor), floordiv(width, factor)
    unshuffled = (*batch, channels * factor * factor, rows, columns)
    if tensor(x).device == HOST:
        unshuffled = _unless_empty(cx, unshuffled, tensor(x).shape)
    return _image_like(cx, tensor(x), unshuffled)


def _unless_empty(cx: TypeContext, shape: Shape, before: Shape) -> Shape:
    """The shape; eager's kernel of the host leaves that of a tensor without elements as it was."""
    count = numel(before)
    try:
        return shape if cx.decide(ne(count, 0)) else before
    except Undecided:
        some = minimum(count, 1)
        made = tuple(was + (size - was) * some for size, was in zip(shape, before, strict=True))
        cx.require(eq(numel(made), numel(shape)), "as many elements")  # true, but hard to see
        return made


def _channel_shuffle_type(cx: TypeContext, x: Any, groups: int) -> TensorType:
    t = tensor(x)
    if t.rank < 3:
        raise OpError(f"channel_shuffle expects input with > 2 dims, but got input of {t.rank}D")
    cx.require(ge(groups, 1), "Number of groups must be positive")
    cx.require(eq(mod(t.shape[1], groups), 0), "Number of channels must be divisible by groups")
    # without a kernel of its own, as on other devices, it is a view that is turned and copied
    return _image_like(cx, t, t.shape) if t.device == HOST else new(cx, t, t.shape)


op(
    "pixel_shuffle",
    "input, upscale_factor",
    torch="torch.nn.functional.pixel_shuffle",
    vjp="expansion",
    spellings=("torch.pixel_shuffle",),
    expand=_pixel_shuffle_expand,
    type=_pixel_shuffle_type,
)
op(
    "pixel_unshuffle",
    "input, downscale_factor",
    torch="torch.nn.functional.pixel_unshuffle",
    image_order="input",
    vjp="expansion",
    spellings=("torch.pixel_unshuffle",),
    expand=_pixel_unshuffle_expand,
    type=_pixel_unshuffle_type,
)
op(
    "channel_shuffle",
    "input, groups",
    torch="torch.nn.functional.channel_shuffle",
    image_order="input",
    vjp="expansion",
    spellings=("torch.channel_shuffle",),
    expand=lambda b, x, groups: b.reshape(
        b.transpose(
            b.reshape(x, (x.shape[0], groups, floordiv(x.shape[1], groups), *x.shape[2:])), 1, 2
        ),
        x.shape,
    ),
    type=_channel_shuffle_type,
)
