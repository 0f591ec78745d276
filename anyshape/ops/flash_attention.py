"""Attention where gradients are recorded: the kernel that eager takes, whose gradients need the
logsumexp of each row of scores and no weights (``eager_attention.py``); elsewhere the products
(``ops/gradients/products.py``).

    scaled_dot_product_attention(%q, %k, %v)
    ->
    %y, %l = flash_attention(%q, %k, %v)      gradients: flash_attention_gradients(%g, %q, ..., %l)
"""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import bool_, float32, float64
from anyshape.ir.graph import HOST, TensorType
from anyshape.ops.context import TypeContext
from anyshape.ops.gradients import products
from anyshape.ops.layout import preserved_strides, strides_in_order
from anyshape.ops.rules import tensor
from anyshape.ops.table import CausalMask, Extern, op

ORDER = (3, 1, 2, 0)
"""The dimensions of what the flash kernel makes, innermost first: heads lie inside lengths."""


def differentiated_attention(
    b: Any, q: Any, k: Any, v: Any, mask: Any, dropout_p: Any, causal: Any, **named: Any
) -> Any:
    """Eager's attention without dropout, by rows that have gradients."""
    keys, values, grouped = k, v, named["enable_gqa"]
    if grouped and q.type.device == HOST:
        keys, values = (products.repeated_heads(b, t, q) for t in (k, v))
    if _takes_flash(b, q, keys, values, mask, grouped):
        return b.call("flash_attention", q, keys, values, mask, causal, scale=named["scale"])[0]
    return b.call("attention_by_products", q, k, v, mask, dropout_p, causal, **named)


def _takes_flash(b: Any, q: Any, k: Any, v: Any, mask: Any, grouped: bool) -> bool:
    """Whether eager may take such a kernel, as far as types tell; sizes decide at run time.
    ``grouped``: heads of keys and values may be shared."""
    chosen = b.modes is None or not b.modes.sdpa_backends
    kinds = [t.type for t in (q, k, v)]
    same = b.cx.same
    return (
        chosen
        and all(t.device == q.type.device and t.rank == 4 and t.dtype is q.dtype for t in kinds)
        and q.dtype.is_floating
        and all(same(t.shape[0], q.shape[0]) for t in kinds)
        and all(same(t.shape[1], (k if grouped else q).shape[1]) for t in kinds[1:])
        and all(same(t.shape[3], q.shape[3]) and t.strides[3] == 1 for t in kinds)
        and (mask is None or (mask.type.rank in (2, 4) and mask.dtype in (bool_, q.dtype)))
    )


def _type(
    cx: TypeContext, q: Any, k: Any, v: Any, mask: Any, causal: Any, *, scale: Any = None
) -> tuple[TensorType, TensorType]:
    t = tensor(q)
    shape = t.shape[:3]
    sums = float64 if t.dtype is float64 else float32
    order = (1, 2, 0) if t.device == HOST else (2, 1, 0)
    return (
        TensorType(t.dtype, t.device, t.shape, preserved_strides(cx, t)),
        TensorType(sums, t.device, shape, strides_in_order(shape, order)),
    )


def _gradient_types(
    cx: TypeContext, g: Any, q: Any, k: Any, v: Any, *rest: Any, **named: Any
) -> tuple[TensorType, ...]:
    kinds = (tensor(value) for value in (q, k, v))
    return tuple(
        TensorType(t.dtype, t.device, t.shape, strides_in_order(t.shape, ORDER)) for t in kinds
    )


def _part(position: int) -> Any:
    def gradient(
        b: Any, g: Any, y: Any, q: Any, k: Any, v: Any, mask: Any, causal: Any, *, scale: Any = None
    ) -> Any:
        result, sums = y
        parts = (g[0], q, k, v, result, sums, mask, causal)
        return b.call("flash_attention_gradients", *parts, scale=scale)[position]

    return gradient


def _of_mask(
    b: Any, g: Any, y: Any, q: Any, k: Any, v: Any, mask: Any, causal: Any, *, scale: Any = None
) -> Any:
    of = products.ATTENTION["attn_mask"]
    shared = not b.cx.same(q.shape[1], k.shape[1])
    return of(b, g[0], y[0], q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=shared)


op(
    "flash_attention",
    "query, key, value, mask, causal, *, scale=None",
    torch="anyshape.eager_attention.flash_attention",
    type=_type,
    lower=Extern("anyshape.eager_attention.flash_attention"),
    vjp={"query": _part(0), "key": _part(1), "value": _part(2), "mask": _of_mask},
    causal=CausalMask(mask=3, flag=4),
)
op(
    "flash_attention_gradients",
    "gradient, query, key, value, result, logsumexp, mask, causal, *, scale=None",
    torch="anyshape.eager_attention.flash_attention_gradients",
    type=_gradient_types,
    lower=Extern("anyshape.eager_attention.flash_attention_gradients"),
    causal=CausalMask(mask=6, flag=7, query=1),
)
