"""A Triton kernel of your own in the middle of what is compiled.

Launch it in a `torch.library.custom_op`: one node of the graph, whatever the sizes. What is around
it is fused up to it. `register_autograd` gives it gradients; where they are recorded, eager torch
runs the graph around it, and a warning says so. Without a GPU, Triton's interpreter runs the kernel
on the CPU (slowly: it is for tests).
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read where triton is first imported

import triton
import triton.language as tl

import anyshape

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def swish_kernel(x, out, count, beta, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x + at, mask=inside)
    tl.store(out + at, value / (1 + tl.exp(-beta * value)), mask=inside)


@torch.library.custom_op("recipes::swish", mutates_args=())
def swish(x: torch.Tensor, beta: float) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():  # a grid has no size 0
        swish_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), beta, BLOCK=128)
    return out


@swish.register_fake
def _(x: torch.Tensor, beta: float) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.beta = inputs[1]


def gradient(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    (x,) = ctx.saved_tensors
    gate = torch.sigmoid(ctx.beta * x)
    return grad * (gate + ctx.beta * x * gate * (1 - gate)), None


swish.register_autograd(gradient, setup_context=keep)


def program(x: torch.Tensor) -> torch.Tensor:
    return swish((x * 3).sin() * 2, 1.5).exp() + 1


def written_out(x: torch.Tensor) -> torch.Tensor:
    y = (x * 3).sin() * 2
    return (y * torch.sigmoid(1.5 * y)).exp() + 1


fast = anyshape.compile(program, fullgraph=True)
with torch.no_grad():
    for rows in (3, 1, 0, 50):
        x = torch.randn(rows, 7, device=DEVICE)
        torch.testing.assert_close(fast(x), written_out(x))
    assert fast.stats().specializations == 1

ours = torch.randn(5, 7, device=DEVICE, requires_grad=True)
theirs = ours.detach().clone().requires_grad_()
fast(ours).sum().backward()
written_out(theirs).sum().backward()
torch.testing.assert_close(ours.grad, theirs.grad)
print(fast.stats())
