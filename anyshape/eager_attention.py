"""What the rows of attention and its gradients mean, on eager torch: ATen's flash kernel of the
host where eager takes it, as sizes and strides decide, else its products.

Shapes: query (batch, heads, n, width), key and value (batch, heads, m, width). The logsumexp, of
shape (batch, heads, n), is what the gradients need of the forward; where it is products that are
taken it is 0 and means nothing.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001
_choose = torch._fused_sdp_choice  # noqa: SLF001
FLASH = 1
"""Of ``torch.nn.attention.SDPBackend``."""


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: Any, *, scale: Any = None
) -> tuple[Tensor, Tensor]:
    """The result, laid out as the query, and the logsumexp."""
    if _is_flash(query, key, value, mask, causal, scale):
        made: tuple[Tensor, Tensor] = _FORWARD(
            query, key, value, 0.0, bool(causal), attn_mask=_added(mask, query), scale=scale
        )
        return made
    batch, heads, length, _ = query.shape
    dtype = torch.promote_types(query.dtype, torch.float32)
    nothing = torch.zeros((batch, length, heads), dtype=dtype, device=query.device)
    products = F.scaled_dot_product_attention(
        query, key, value, mask, 0.0, bool(causal), scale=scale
    )
    return torch.empty_like(query).copy_(products), nothing.transpose(1, 2)


def flash_attention_gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    logsumexp: Tensor,
    mask: Any,
    causal: Any,
    *,
    scale: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, each laid out as (batch, n, heads, width)."""
    if _is_flash(query, key, value, mask, causal, scale):
        made: tuple[Tensor, Tensor, Tensor]
        made = _BACKWARD(
            *(gradient, query, key, value, result, logsumexp, 0.0, bool(causal)),
            attn_mask=_added(mask, query),
            scale=scale,
        )
        return made
    with torch.enable_grad():
        q, k, v = (t.detach().requires_grad_() for t in (query, key, value))
        again = F.scaled_dot_product_attention(q, k, v, mask, 0.0, bool(causal), scale=scale)
        found = torch.autograd.grad(again, (q, k, v), gradient)
    first, second, third = (_by_length(t) for t in found)
    return first, second, third


def attention_by_products(*args: Any, **kwargs: Any) -> Tensor:
    """As eager computes it; its gradients are compiled as products over weights."""
    return F.scaled_dot_product_attention(*args, **kwargs)


def _is_flash(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: Any, scale: Any
) -> bool:
    chosen = _choose(query, key, value, mask, 0.0, bool(causal), scale=scale)
    return chosen == FLASH


def _added(mask: Any, query: Tensor) -> Any:
    """What is added to the scores: 0 or -inf for a mask of who sees whom."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    seen = torch.zeros((), dtype=query.dtype, device=query.device)
    return torch.where(mask, seen, float("-inf"))


def _by_length(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)
