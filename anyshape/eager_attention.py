"""What the rows of attention and its gradients mean, on eager torch: the kernel that eager takes,
as sizes, strides and settings decide, where ``KERNELS`` has it; else eager's attention, which is
computed again for its gradients.

Shapes: query (batch, heads, n, width), key and value (batch, heads, m, width). The logsumexp, of
shape (batch, heads, n), is what the gradients need of the forward; where it is products that are
taken it is 0 and means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Gradients: TypeAlias = "tuple[Tensor, Tensor, Tensor]"
aten = torch.ops.aten
_choose = torch._fused_sdp_choice  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Kernel:
    """``forward(query, key, value, mask, causal, scale)`` gives the result and the logsumexp,
    ``backward(gradient, query, key, value, result, logsumexp, mask, causal, scale)`` gradients."""

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., Gradients]


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: Any, *, scale: Any = None
) -> tuple[Tensor, Tensor]:
    """The result, laid out as the query, and the logsumexp."""
    kernel = _kernel(query, key, value, mask, causal, scale)
    if kernel is not None:
        return kernel.forward(query, key, value, mask, bool(causal), scale)
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
) -> Gradients:
    """The gradients of query, key and value, each laid out as (batch, n, heads, width)."""
    kernel = _kernel(query, key, value, mask, causal, scale)
    if kernel is not None:
        given = (gradient, query, key, value, result, logsumexp)
        return kernel.backward(*given, mask, bool(causal), scale)
    with torch.enable_grad():
        q, k, v = (t.detach().requires_grad_() for t in (query, key, value))
        again = F.scaled_dot_product_attention(q, k, v, mask, 0.0, bool(causal), scale=scale)
        found = torch.autograd.grad(again, (q, k, v), gradient)
    first, second, third = (_by_length(t) for t in found)
    return first, second, third


def attention_by_products(*args: Any, **kwargs: Any) -> Tensor:
    """As eager computes it; its gradients are compiled as products over weights."""
    return F.scaled_dot_product_attention(*args, **kwargs)


def _kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: Any, scale: Any
) -> Kernel | None:
    """The one that eager takes, where its gradients can be asked for by themselves."""
    chosen = _choose(query, key, value, mask, 0.0, bool(causal), scale=scale)
    kernel = KERNELS.get((query.device.type, chosen))
    if kernel is None or query.device.type == "cpu":
        return kernel
    whole = mask is None and query.shape[-1] % PADDED_TO == 0
    return kernel if whole else None


def _host_forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: bool, scale: Any
) -> tuple[Tensor, Tensor]:
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
    bias = _added(mask, query)
    made: tuple[Tensor, Tensor] = forward(
        query, key, value, 0.0, causal, attn_mask=bias, scale=scale
    )
    return made


def _host_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    logsumexp: Tensor,
    mask: Any,
    causal: bool,
    scale: Any,
) -> Gradients:
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001
    given = (gradient, query, key, value, result, logsumexp)
    made: Gradients = backward(*given, 0.0, causal, attn_mask=_added(mask, query), scale=scale)
    return made


def _flash_forward(
    query: Tensor, key: Tensor, value: Tensor, mask: None, causal: bool, scale: Any
) -> tuple[Tensor, Tensor]:
    forward = aten._scaled_dot_product_flash_attention.default  # noqa: SLF001
    result, logsumexp, *_ = forward(query, key, value, 0.0, causal, scale=scale)
    return result, logsumexp


def _flash_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    logsumexp: Tensor,
    mask: None,
    causal: bool,
    scale: Any,
) -> Gradients:
    backward = aten._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001
    given = (gradient, query, key, value, result, logsumexp)
    lengths = (None, None, query.shape[-2], key.shape[-2])
    made: Gradients = backward(*given, *lengths, 0.0, causal, *_no_draws(query), scale=scale)
    return made


def _cudnn_forward(
    query: Tensor, key: Tensor, value: Tensor, mask: None, causal: bool, scale: Any
) -> tuple[Tensor, Tensor]:
    forward = aten._scaled_dot_product_cudnn_attention.default  # noqa: SLF001
    result, logsumexp, *_ = forward(query, key, value, None, True, 0.0, causal, scale=scale)
    return result, logsumexp.reshape(query.shape[:-1])


def _cudnn_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    logsumexp: Tensor,
    mask: None,
    causal: bool,
    scale: Any,
) -> Gradients:
    backward = aten._scaled_dot_product_cudnn_attention_backward.default  # noqa: SLF001
    if gradient.stride() != result.stride():  # cuDNN's plans are kept by the layouts of the others
        gradient = torch.empty_like(result).copy_(gradient)
    given = (gradient, query, key, value, result, logsumexp.unsqueeze(-1))
    lengths = (None, None, None, query.shape[-2], key.shape[-2])
    made: Gradients = backward(*given, *_no_draws(query), *lengths, 0.0, causal, scale=scale)
    return made


def _no_draws(query: Tensor) -> tuple[Tensor, Tensor]:
    """What a kernel without dropout is given as its seed and offset, and does not read."""
    nothing = query.new_empty(2, dtype=torch.int64)
    return nothing, nothing


PADDED_TO = 8
"""Eager pads widths of heads to a multiple of this before it calls a GPU's kernels."""
FLASH, CUDNN = 1, 3
"""Of ``torch.nn.attention.SDPBackend``."""
KERNELS: Mapping[tuple[str, int], Kernel] = {
    ("cpu", FLASH): Kernel(_host_forward, _host_backward),
    ("cuda", FLASH): Kernel(_flash_forward, _flash_backward),
    ("cuda", CUDNN): Kernel(_cudnn_forward, _cudnn_backward),
}
"""By the type of the device and eager's choice."""


def _added(mask: Any, query: Tensor) -> Any:
    """What is added to the scores: 0 or -inf for a mask of who sees whom."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    seen = torch.zeros((), dtype=query.dtype, device=query.device)
    return torch.where(mask, seen, float("-inf"))


def _by_length(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)
