"""Attention's gradients on a GPU: by the kernel that eager takes, at every length from one compile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import anyshape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

attend = F.scaled_dot_product_attention
LENGTHS = ((2, 64), (1, 1), (3, 77), (1, 256))


def causal(q: Tensor, k: Tensor) -> Tensor:
    return torch.arange(k.shape[2], device=q.device) <= torch.arange(
        q.shape[2], device=q.device
    ).unsqueeze(1)


def four_heads(x: Tensor) -> Tensor:
    """As a model says it, whose number of heads is known."""
    return x.transpose(1, 2).flatten(2).unflatten(2, (4, -1)).transpose(1, 2)


def repeated(x: Tensor) -> Tensor:
    """Each of two heads twice, as models say it."""
    b, h, n, w = x.shape
    return x[:, :, None].expand(b, h, 2, n, w).reshape(b, h * 2, n, w)


PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "plain": attend,
    "causal": lambda q, k, v: attend(q, k, v, is_causal=True),
    "causal by size": lambda q, k, v: attend(q, k, v, is_causal=q.shape[2] > 1),
    "causal mask": lambda q, k, v: attend(q, k, v, causal(q, k)),
    "mask": lambda q, k, v: attend(q, k, v, (q[..., :1] + k[..., :1].mT)[:, :1] < 2),
    "scaled": lambda q, k, v: attend(q, k, v, scale=0.3),
    "shared heads": lambda q, k, v: attend(
        four_heads(q), four_heads(k)[:, :2], four_heads(v)[:, :2], enable_gqa=True
    ),
    "repeated heads": lambda q, k, v: attend(
        four_heads(q),
        repeated(four_heads(k)[:, :2] * 2),
        repeated(four_heads(v)[:, 2:] + 1),
        is_causal=True,
    ),
}


def operands(batch: int, length: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    """(batch, heads, length, width), heads inside lengths, as models have them."""
    stream = torch.Generator("cuda").manual_seed(batch * 1000 + length)
    given = {"device": "cuda", "generator": stream}
    made = [torch.randn(batch, length, 4, width, **given) for _ in range(4)]
    return [t.to(dtype).transpose(1, 2).detach() for t in made]


def gradients(program: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    *leaves, cotangent = (t.clone().requires_grad_() for t in given)
    y = program(*leaves)
    return [y, *torch.autograd.grad(y, leaves, cotangent.detach())]


@pytest.mark.parametrize("width", [64, 128, 20])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_as_near_as_eagers(name: str, dtype: torch.dtype, width: int) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    for batch, length in LENGTHS:
        given = operands(batch, length, width, dtype)
        with sdpa_kernel([SDPBackend.MATH]):
            exact = gradients(program, [t.double() for t in given])
        theirs, ours = gradients(program, given), gradients(fast, given)
        for a, b, c in zip(ours, theirs, exact, strict=True):
            error, allowed = (a - c).abs().max(), (b - c).abs().max()
            rounding = torch.finfo(dtype).eps * c.abs().max()  # eager may take another kernel
            assert error <= 2 * allowed + rounding + 1e-5, (length, error, allowed)
    assert fast.stats().gradients > 0


def test_memory_grows_with_the_length() -> None:
    """No weights are made: 8,192 x 8,192 of 8 heads would take 2 GB."""
    fast = anyshape.compile(PROGRAMS["causal mask"])
    given = [t.requires_grad_() for t in operands(2, 8192, 64, torch.bfloat16)]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fast(*given[:3]).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 2**28
