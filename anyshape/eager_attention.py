"""What the rows of attention and its gradients mean, on eager torch: the kernel that eager takes,
as sizes, strides and settings decide, where ``KERNELS`` has it; else eager's attention, which is
computed again for its gradients.

Shapes: query (batch, heads, n, width), key and value (batch, heads, m, width), or fewer heads, each
of which so many heads of the query share. The logsumexp, of shape (batch, heads, n), is what the
gradients need of the forward; where it is products that are taken it is 0 and means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F

from anyshape.nouns import frozen, replace

Tensor = torch.Tensor
Gradients: TypeAlias = "tuple[Tensor, Tensor, Tensor]"
aten = torch.ops.aten
_choose = torch._fused_sdp_choice  # noqa: SLF001


@frozen
class Given:
    """What attention is handed."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool
    scale: float | None

    @property
    def shared(self) -> int:
        """How many heads of the query share one of the keys."""
        heads = self.key.shape[1]
        return 1 if self.query.dim() != 4 or not heads else self.query.shape[1] // heads

    def repeated(self) -> Given:
        """The same with a head of the keys and values for each of the query."""
        key, value = (t.repeat_interleave(self.shared, 1) for t in (self.key, self.value))
        return replace(self, key=key, value=value)

    def attended(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Eager's attention of these, with the same mask."""
        return F.scaled_dot_product_attention(
            query, key, value, self.mask, 0.0, self.causal, scale=self.scale
        )


@frozen
class Kernel:
    """``forward(given)`` gives the result and the logsumexp, ``backward(given, gradient, result,
    logsumexp)`` the gradients."""

    forward: Callable[[Given], tuple[Tensor, Tensor]]
    backward: Callable[[Given, Tensor, Tensor, Tensor], Gradients]


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: Any, *, scale: Any = None
) -> tuple[Tensor, Tensor]:
    """The result, laid out as the query, and the logsumexp."""
    given = Given(query, key, value, mask, bool(causal), scale)
    kernel = _kernel(given)
    if kernel is None and given.shared > 1:
        given = given.repeated()
        kernel = _kernel(given)
    if kernel is not None:
        return kernel.forward(given)
    batch, heads, length, _ = query.shape
    dtype = torch.promote_types(query.dtype, torch.float32)
    nothing = torch.zeros((batch, length, heads), dtype=dtype, device=query.device)
    products = given.attended(query, key, value)
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
    given = Given(query, key, value, mask, bool(causal), scale)
    kernel = _kernel(given)
    if kernel is None and given.shared > 1:
        return _summed(key.shape[1], _gradients(given.repeated(), gradient, result, logsumexp))
    return _gradients(given, gradient, result, logsumexp)


def _summed(heads: int, gradients: Gradients) -> Gradients:
    """Those of keys and values, of each head the sum over the heads of the query that share it."""
    query, *others = gradients
    key, value = (_by_length(t.unflatten(1, (heads, -1)).sum(2)) for t in others)
    return query, key, value


def _gradients(given: Given, gradient: Tensor, result: Tensor, logsumexp: Tensor) -> Gradients:
    kernel = _kernel(given)
    if kernel is not None:
        return kernel.backward(given, gradient, result, logsumexp)
    with torch.enable_grad():
        tensors = (given.query, given.key, given.value)
        leaves = [t.detach().requires_grad_() for t in tensors]
        attended = given.attended(*leaves)
        found = torch.autograd.grad(attended, leaves, _laid_as(gradient, attended))
    first, second, third = (_by_length(t) for t in found)
    return first, second, third


def attention_with_dropout_in_kernels(*args: Any, **kwargs: Any) -> Tensor:
    """Eager's attention, whose kernels draw which weights they drop."""
    return F.scaled_dot_product_attention(*args, **kwargs)


def attention_by_products(*args: Any, **kwargs: Any) -> Tensor:
    """As eager computes it; its gradients are compiled as products over weights."""
    return F.scaled_dot_product_attention(*args, **kwargs)


def _kernel(given: Given) -> Kernel | None:
    """The one that eager takes, where its gradients can be asked for by themselves.

    Of nothing there is none: eager asks no kernel, and the host's divides by the number of heads.
    """
    g = given
    if not all(t.numel() for t in (g.query, g.key, g.value)):
        return None
    named: dict[str, Any] = {"scale": g.scale, "enable_gqa": g.shared > 1}
    chosen = _choose(g.query, g.key, g.value, g.mask, 0.0, g.causal, **named)
    kernel = KERNELS.get((g.query.device.type, chosen))
    if kernel is None or g.query.device.type == "cpu":
        return kernel
    whole = g.mask is None and g.query.shape[-1] % PADDED_TO == 0
    return kernel if whole else None


def _host_forward(g: Given) -> tuple[Tensor, Tensor]:
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
    named = {"attn_mask": _added(g.mask, g.query), "scale": g.scale}
    made: tuple[Tensor, Tensor] = forward(g.query, g.key, g.value, 0.0, g.causal, **named)
    return made


def _host_backward(g: Given, gradient: Tensor, result: Tensor, logsumexp: Tensor) -> Gradients:
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001
    tensors = (gradient, g.query, g.key, g.value, result, logsumexp)
    named = {"attn_mask": _added(g.mask, g.query), "scale": g.scale}
    made: Gradients = backward(*tensors, 0.0, g.causal, **named)
    return made


def _flash_forward(g: Given) -> tuple[Tensor, Tensor]:
    forward = aten._scaled_dot_product_flash_attention.default  # noqa: SLF001
    result, logsumexp, *_ = forward(g.query, g.key, g.value, 0.0, g.causal, scale=g.scale)
    return result, logsumexp


def _flash_backward(g: Given, gradient: Tensor, result: Tensor, logsumexp: Tensor) -> Gradients:
    backward = aten._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001
    tensors = (gradient, g.query, g.key, g.value, result, logsumexp)
    lengths = (None, None, g.query.shape[-2], g.key.shape[-2])
    draws = _no_draws(g.query)
    made: Gradients = backward(*tensors, *lengths, 0.0, g.causal, *draws, scale=g.scale)
    return made


def _cudnn_forward(g: Given) -> tuple[Tensor, Tensor]:
    forward = aten._scaled_dot_product_cudnn_attention.default  # noqa: SLF001
    given = (g.query, g.key, g.value, None, True, 0.0, g.causal)
    result, logsumexp, *_ = forward(*given, scale=g.scale)
    return result, logsumexp.reshape(g.query.shape[:-1])


def _cudnn_backward(g: Given, gradient: Tensor, result: Tensor, logsumexp: Tensor) -> Gradients:
    backward = aten._scaled_dot_product_cudnn_attention_backward.default  # noqa: SLF001
    gradient = _laid_as(gradient, result)
    tensors = (gradient, g.query, g.key, g.value, result, logsumexp.unsqueeze(-1))
    lengths = (None, None, None, g.query.shape[-2], g.key.shape[-2])
    draws = _no_draws(g.query)
    made: Gradients = backward(*tensors, *draws, *lengths, 0.0, g.causal, scale=g.scale)
    return made


def _laid_as(gradient: Tensor, result: Tensor) -> Tensor:
    """cuDNN keeps plans by the layouts of all but the gradient, which it takes to lie as the result
    does."""
    if gradient.stride() == result.stride():
        return gradient
    return torch.empty_like(result).copy_(gradient)


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
