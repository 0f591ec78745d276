"""Convolution, pooling and resizing: externs with type rules; global average pooling is a mean.

Sizes are floor divisions of symbolic sizes. Results are row-major, or channels-last where the input
(for convolutions: or the weight) is; but means over volumes are row-major.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from anyshape.ir.dtypes import int64
from anyshape.ir.graph import HOST, Arg, TensorType
from anyshape.nouns import replace
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.gradients import convolution
from anyshape.ops.image_layout import suggests_channels_last
from anyshape.ops.layout import Shape, channels_last_strides, contiguous_strides
from anyshape.ops.rules import tensor
from anyshape.ops.table import Extern, op
from anyshape.ops.view import sequence
from anyshape.symbolic import Dim, ceildiv, eq, floordiv, ge, le, ne


def spread(value: Any, count: int) -> tuple[Any, ...]:
    """One number for each spatial dimension; eager refuses other counts than one or all."""
    values = tuple(sequence(value))
    if len(values) not in (1, count):
        raise OpError(f"expected one number or {count}, got {len(values)}")
    return values * count if len(values) == 1 else values


def _positive(cx: TypeContext, *given: tuple[Any, ...]) -> None:
    """Eager refuses windows of no elements, and steps that lead nowhere."""
    for number in (number for numbers in given for number in numbers):
        cx.require(ge(number, 1), "sizes, strides and dilations of windows have to be positive")


def _image(cx: TypeContext, t: TensorType, shape: Shape, last: bool) -> TensorType:
    strides = channels_last_strides(shape) if last else contiguous_strides(cx, shape)
    return TensorType(t.dtype, t.device, shape, strides)


def _pooled_image(cx: TypeContext, t: TensorType, shape: Shape, *, lines: bool) -> TensorType:
    """``lines``: they are pooled as images (N, C, 1, length)."""
    if t.rank != 3 or not lines:
        return _image(cx, t, shape, suggests_channels_last(cx, t))
    row = _of_one_row(t)
    made = _image(cx, row, (*shape[:2], 1, shape[2]), suggests_channels_last(cx, row))
    return replace(made, shape=shape, strides=(*made.strides[:2], made.strides[3]))


def _of_one_row(t: TensorType) -> TensorType:
    """Lines (N, C, length) as images (N, C, 1, length)."""
    (*outer, length), (*steps, along) = t.shape, t.strides
    return replace(t, shape=(*outer, 1, length), strides=(*steps, along * length, along))


def _image_of(cx: TypeContext, t: TensorType, batch: Shape, shape: Shape, last: bool) -> TensorType:
    """As of a batch of one where there is none."""
    if batch:
        return _image(cx, t, (*batch, *shape), last)
    made = _image(cx, t, (1, *shape), last)
    return replace(made, shape=shape, strides=made.strides[1:])


# --- convolution ---


def _window(size: Dim, kernel: Dim, stride: Any, padding: Any, dilation: Any) -> Dim:
    return floordiv(size + 2 * padding - dilation * (kernel - 1) - 1, stride) + 1


def _conv_type(n: int) -> Callable[..., TensorType]:
    def rule(
        cx: TypeContext,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Any = 1,
    ) -> TensorType:
        t, w = tensor(x), tensor(weight)
        if t.rank not in (n + 1, n + 2) or w.rank != n + 2:
            raise OpError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to conv{n}d")
        if t.dtype is not w.dtype:
            raise OpError(f"Input type ({t.dtype}) and weight type ({w.dtype}) should be the same")
        channels = t.shape[-n - 1]
        cx.require(
            eq(channels, w.shape[1] * groups), "Given groups, expected input to have other channels"
        )
        _require_groups(cx, w, groups)
        if bias is not None:
            text = "expected bias to have as many elements as there are output channels"
            cx.require(eq(tensor(bias).shape[0], w.shape[0]), text)
        strides, gaps = spread(stride, n), spread(dilation, n)
        sizes: list[Dim] = []
        for d in range(n):
            size, kernel = t.shape[d - n], w.shape[d + 2]
            if padding == "same":
                sizes.append(size)
                continue
            pad = 0 if padding == "valid" else spread(padding, n)[d]
            made = _window(size, kernel, strides[d], pad, gaps[d])
            text = "Calculated padded input size is smaller than the kernel"
            cx.require(ge(size + 2 * pad, gaps[d] * (kernel - 1) + 1), text)
            sizes.append(cx.facts.simplify(made))
        last = _lies_innermost(cx, t, w)
        made = 0 if _is_of_nothing(cx, channels) else w.shape[0]
        return _image_of(cx, t, t.shape[: t.rank - n - 1], (made, *sizes), last)

    return rule


def _lies_innermost(cx: TypeContext, t: TensorType, w: TensorType) -> bool:
    """Does the result keep its channels innermost? Of lines, which eager takes for images of one
    row, the input is laid out in rows first, so that the weight alone decides."""
    if w.rank == 3:
        return suggests_channels_last(cx, _of_one_row(w))
    image = t if t.rank == w.rank else _of_one_image(t)
    return suggests_channels_last(cx, image) or suggests_channels_last(cx, w)


def _of_one_image(t: TensorType) -> TensorType:
    """An image (C, *spatial) as a batch of it, as ``unsqueeze(0)`` makes it."""
    return replace(t, shape=(1, *t.shape), strides=(t.shape[0] * t.strides[0], *t.strides))


def _is_of_nothing(cx: TypeContext, channels: Dim) -> bool:
    """Has the input no channels? Then eager's result has none either, whatever the weight's are.
    Where nobody knows, that is a check, and eager does what fails it."""
    nothing = eq(channels, 0)
    if cx.known(nothing) or cx.hint(nothing):
        return cx.decide(nothing)
    cx.require(ne(channels, 0), "a convolution of no channels has no channels")
    return False


def _require_groups(cx: TypeContext, weight: TensorType, groups: Dim) -> None:
    text = "expected weight to be at least as many as there are groups at dimension 0"
    cx.require(ge(weight.shape[0], groups), text)


def _transposed_type(n: int) -> Callable[..., TensorType]:
    def rule(
        cx: TypeContext,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: Any = 1,
        dilation: Any = 1,
    ) -> TensorType:
        t, w = tensor(x), tensor(weight)
        _require_groups(cx, w, groups)
        steps, pads = spread(stride, n), spread(padding, n)
        extra, gaps = spread(output_padding, n), spread(dilation, n)
        sizes = [
            (t.shape[d - n] - 1) * steps[d]
            - 2 * pads[d]
            + gaps[d] * (w.shape[d + 2] - 1)
            + extra[d]
            + 1
            for d in range(n)
        ]
        last = _lies_innermost(cx, t, w)
        shape = (w.shape[1] * groups, *sizes)
        return _image_of(cx, t, t.shape[: t.rank - n - 1], shape, last)

    return rule


def _conv_gradient_type(
    cx: TypeContext, g: Any, other: Any, shape: Shape, *rest: Arg
) -> TensorType:
    t = tensor(g)
    last = suggests_channels_last(cx, t) or suggests_channels_last(cx, tensor(other))
    return _image(cx, t, shape, last)


def _conv_gradients_type(
    cx: TypeContext, g: Any, image: Any, weight: Any, *rest: Arg
) -> tuple[TensorType, TensorType]:
    """Of the image and of the weight."""
    t, x, w = tensor(g), tensor(image), tensor(weight)
    last = suggests_channels_last(cx, x) or suggests_channels_last(cx, w)
    return _image(cx, t, x.shape, last), _image(cx, t, w.shape, last)


for _n in (1, 2, 3):
    op(
        f"conv{_n}d",
        "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
        torch=f"torch.nn.functional.conv{_n}d",
        image_order="input",
        spellings=(f"torch.conv{_n}d",),
        type=_conv_type(_n),
        lower=Extern(f"torch.nn.functional.conv{_n}d", "new"),
        vjp=convolution.gradients(_n),
    )
    for _part in ("input", "weight"):
        op(
            f"conv{_n}d_{_part}_gradient",
            "g, other, shape, stride, padding, dilation, groups",
            torch=f"anyshape.eager_convolutions.conv{_n}d_{_part}_gradient",
            type=_conv_gradient_type,
            lower=Extern(f"anyshape.eager_convolutions.conv{_n}d_{_part}_gradient"),
        )
    op(
        f"conv{_n}d_gradients",
        "g, input, weight, stride, padding, dilation, groups",
        torch=f"anyshape.eager_convolutions.conv{_n}d_gradients",
        type=_conv_gradients_type,
        lower=Extern(f"anyshape.eager_convolutions.conv{_n}d_gradients"),
    )
    op(
        f"conv_transpose{_n}d",
        "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
        torch=f"torch.nn.functional.conv_transpose{_n}d",
        image_order="input",
        spellings=(f"torch.conv_transpose{_n}d",),
        type=_transposed_type(_n),
        lower=Extern(f"torch.nn.functional.conv_transpose{_n}d"),
    )

# --- pooling ---


def _pooled(
    cx: TypeContext, size: Dim, kernel: Any, stride: Any, pad: Any, gap: Any, ceil: Any
) -> Dim:
    """ATen's ``pooling_output_shape``: with ``ceil`` the last window must start inside."""
    reach = size + 2 * pad - gap * (kernel - 1) - 1
    if not ceil:
        cx.require(ge(reach, 0), "Given input size, the calculated output size is too small")
        return cx.facts.simplify(floordiv(reach, stride) + 1)
    count = ceildiv(reach, stride) + 1
    inside = cx.decide(le((count - 1) * stride, size + pad - 1))
    return count if inside else count - 1


def _pool_type(n: int, with_indices: bool) -> Callable[..., Any]:
    def rule(
        cx: TypeContext, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any
    ) -> Any:
        t = tensor(x)
        if t.rank not in (n + 1, n + 2):
            raise OpError(f"Expected {n + 1}D or {n + 2}D input to pooling")
        dilation, ceil, indices = (
            (rest[0], rest[1], rest[2]) if with_indices else (1, rest[0], False)
        )
        kernels = spread(kernel_size, n)
        steps = spread(kernel_size if stride in (None, ()) else stride, n)
        pads, gaps = spread(padding, n), spread(dilation, n)
        _positive(cx, kernels, steps, gaps)
        sizes = [
            _pooled(cx, t.shape[d - n], kernels[d], steps[d], pads[d], gaps[d], ceil)
            for d in range(n)
        ]
        rows = with_indices and not indices and not t.requires_grad and t.device == HOST
        shape = (*t.shape[: t.rank - n], *sizes)
        if n == 3 and not with_indices:
            made = _image(cx, t, shape, False)
        else:
            made = _pooled_image(cx, t, shape, lines=n == 1 and not rows)
        return (made, TensorType(int64, t.device, made.shape, made.strides)) if indices else made

    return rule


def _with_indices(n: int) -> Callable[..., Any]:
    """What decides its gradient: where the greatest elements lie."""

    def expand(b: Any, x: Any, *options: Any) -> Any:
        values, indices = b.call(f"max_pool{n}d_with_indices", x, *options[:5], True)
        return (values, indices) if options[5] else values

    return expand


def _aten_pool(n: int) -> Callable[..., str]:
    """Autocast knows the pool that gives no indices."""

    def name(x: Any, *options: Any, return_indices: Any = False, **_: Any) -> str:
        with_indices = return_indices or options[5:6] == (True,)
        return f"max_pool{n}d_with_indices" if with_indices else f"max_pool{n}d"

    return name


for _n in (1, 2, 3):
    op(
        f"max_pool{_n}d",
        "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, "
        "return_indices=False",
        torch=f"anyshape.eager.max_pool{_n}d",
        image_order="input",
        spellings=(f"torch.nn.functional.max_pool{_n}d", f"torch.nn.functional._max_pool{_n}d"),
        type=_pool_type(_n, True),
        lower=Extern(f"anyshape.eager.max_pool{_n}d"),
        expand=_with_indices(_n),
        vjp="expansion",
        aten=_aten_pool(_n),
    )
    op(
        f"torch_max_pool{_n}d",
        "input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False",
        torch=f"torch.max_pool{_n}d",
        image_order="input",
        type=lambda cx, x, k, s, p, g, c, n=_n: _pool_type(n, True)(cx, x, k, s, p, g, c, False),
        lower=Extern(f"torch.max_pool{_n}d"),
        aten=_aten_pool(_n),
    )
    op(
        f"max_pool{_n}d_with_indices",
        "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, "
        "return_indices=False",
        torch=f"torch.nn.functional.max_pool{_n}d_with_indices",
        image_order="input",
        type=lambda cx, x, k, s, p, g, c, r, n=_n: _pool_type(n, True)(cx, x, k, s, p, g, c, True),
        lower=Extern(f"torch.nn.functional.max_pool{_n}d_with_indices"),
        vjp=convolution.max_pool(_n),
    )
    _tail = "" if _n == 1 else ", divisor_override=None"
    op(
        f"avg_pool{_n}d",
        "input, kernel_size, stride=None, padding=0, ceil_mode=False, "
        f"count_include_pad=True{_tail}",
        torch=f"anyshape.eager.avg_pool{_n}d",
        image_order="input",
        type=_pool_type(_n, False),
        spellings=(f"torch.nn.functional.avg_pool{_n}d",),
        lower=Extern(f"anyshape.eager.avg_pool{_n}d"),
    )


def _adaptive_sizes(t: TensorType, size: Any, n: int) -> Shape:
    wanted = spread(size, n)
    return tuple(t.shape[d - n] if wanted[d] is None else wanted[d] for d in range(n))


def _adaptive_type(n: int) -> Callable[..., Any]:
    def rule(cx: TypeContext, x: Any, output_size: Any, return_indices: Any = False) -> Any:
        t = tensor(x)
        shape = (*t.shape[: t.rank - n], *_adaptive_sizes(t, output_size, n))
        if n == 3:
            made = _image(cx, t, shape, False)
        else:
            made = _pooled_image(cx, t, shape, lines=n == 1)
        return (
            (made, TensorType(int64, t.device, made.shape, made.strides))
            if return_indices
            else made
        )

    return rule


def _adaptive_avg_expand(n: int) -> Callable[..., Any]:
    def expand(b: Any, x: Any, output_size: Any) -> Any:
        sizes = _adaptive_sizes(x.type, output_size, n)
        if any(size != 1 for size in sizes):
            return NotImplemented
        rank = len(x.shape)
        return b.mean(x, tuple(range(rank - n, rank)), True)

    return expand


for _n in (1, 2, 3):
    op(
        f"adaptive_avg_pool{_n}d",
        "input, output_size",
        torch=f"torch.nn.functional.adaptive_avg_pool{_n}d",
        image_order="input",
        spellings=("torch.adaptive_avg_pool1d",) if _n == 1 else (),
        type=_adaptive_type(_n),
        expand=_adaptive_avg_expand(_n),
        vjp="expansion",
    )
    op(
        f"adaptive_max_pool{_n}d",
        "input, output_size, return_indices=False",
        torch=f"torch.nn.functional.adaptive_max_pool{_n}d",
        image_order="input",
        type=_adaptive_type(_n),
        lower=Extern(f"torch.nn.functional.adaptive_max_pool{_n}d"),
    )

# --- resizing ---


def _scaled(size: Dim, factor: Any) -> Dim:
    """``int(size * factor)``, where the product is a rounded float."""
    if not isinstance(factor, (int, float)):
        raise NoRow("interpolate with a symbolic scale factor has no row")
    if isinstance(size, int):
        return int(float(size) * factor)
    if not 0 < factor < math.inf:
        raise NoRow("interpolate with a scale factor that is no positive number has no row")
    ratio = Fraction(factor).limit_denominator(LARGEST_DENOMINATOR)
    if float(ratio) != factor or not _rounds_to_whole(ratio, Fraction(factor)):
        raise NoRow("interpolate with a factor whose products round either way has no row")
    return floordiv(size * ratio.numerator, ratio.denominator)


LARGEST_DENOMINATOR = 1000
"""So that a product which is no whole number is too far from one to be rounded to it."""


def _rounds_to_whole(ratio: Fraction, factor: Fraction) -> bool:
    """Whether ``size * factor`` is rounded to ``size * ratio`` wherever that is a whole number: it
    is not below it, or by less than half of the least distance between floats, relative to them."""
    return factor >= ratio or (ratio - factor) / ratio < Fraction(1, 2**54)


def _interpolate_type(
    cx: TypeContext,
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: Any = "nearest",
    *rest: Any,
) -> TensorType:
    t = tensor(x)
    n = t.rank - 2
    if size is not None:
        sizes: Shape = spread(size, n)
    else:
        factors = spread(scale_factor, n)
        sizes = tuple(_scaled(t.shape[d + 2], factors[d]) for d in range(n))
    last = suggests_channels_last(cx, t) and (n != 3 or mode != "area")
    return _image(cx, t, (*t.shape[:2], *sizes), last)


op(
    "interpolate",
    "input, size=None, scale_factor=None, mode='nearest', align_corners=None, "
    "recompute_scale_factor=None, antialias=False",
    torch="torch.nn.functional.interpolate",
    image_order="input",
    spellings=("torch.nn.functional.upsample",),
    type=_interpolate_type,
    lower=Extern("torch.nn.functional.interpolate"),
)


def _grid_sample_type(cx: TypeContext, x: Any, grid: Any, *rest: Arg) -> TensorType:
    t, g = tensor(x), tensor(grid)
    return _image(cx, t, (*t.shape[:2], *g.shape[1:-1]), False)


op(
    "grid_sample",
    "input, grid, mode='bilinear', padding_mode='zeros', align_corners=None",
    torch="torch.nn.functional.grid_sample",
    type=_grid_sample_type,
    lower=Extern("torch.nn.functional.grid_sample"),
)


def _patches_type(
    cx: TypeContext, x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> TensorType:
    t = tensor(x)
    kernels, gaps, pads, steps = (spread(v, 2) for v in (kernel_size, dilation, padding, stride))
    _positive(cx, kernels, gaps, steps)
    windows: Dim = 1
    for d in range(2):
        windows = windows * _window(t.shape[d - 2], kernels[d], steps[d], pads[d], gaps[d])
    shape = (*t.shape[:-3], t.shape[-3] * kernels[0] * kernels[1], windows)
    return TensorType(t.dtype, t.device, shape, contiguous_strides(cx, shape))


op(
    "patches",
    "input, kernel_size, dilation=1, padding=0, stride=1",
    torch="torch.nn.functional.unfold",
    type=_patches_type,
    lower=Extern("torch.nn.functional.unfold"),
)


def _fold_type(
    cx: TypeContext, x: Any, output_size: Any, kernel_size: Any, *rest: Arg
) -> TensorType:
    t = tensor(x)
    kernels = spread(kernel_size, 2)
    _positive(cx, kernels)
    channels = floordiv(t.shape[-2], kernels[0] * kernels[1])
    shape = (*t.shape[:-2], channels, *spread(output_size, 2))
    return TensorType(t.dtype, t.device, shape, contiguous_strides(cx, shape))


op(
    "fold",
    "input, output_size, kernel_size, dilation=1, padding=0, stride=1",
    torch="torch.nn.functional.fold",
    type=_fold_type,
    lower=Extern("torch.nn.functional.fold"),
)
