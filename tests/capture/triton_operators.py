"""Operators made of Triton kernels, with another implementation on a CPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton_op("anyshape_triton_tests::add", mutates_args={})
def add(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    wrap_triton(kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=16)
    return out


@triton_op("anyshape_triton_tests::add_into", mutates_args={"x"})
def add_into(x: Tensor, y: Tensor) -> None:
    n = x.numel()
    wrap_triton(kernel)[(triton.cdiv(n, 16),)](x, y, x, n, BLOCK=16)


@add.register_kernel("cpu")
def _(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@add_into.register_kernel("cpu")
def _(x: Tensor, y: Tensor) -> None:
    x.add_(y)
