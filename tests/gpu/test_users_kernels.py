"""The program's own Triton kernels inside compiled functions on a GPU, plain, tuned and as operators, beside the same
functions without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

import anyshape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr = 128):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 512})], key=[])
@triton.jit
def add_tuned(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def scale(x, factor, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + i, tl.load(x + i) * factor)
    else:
        tl.store(x + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + j, mask=j < columns, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + j, e / tl.sum(e, 0), mask=j < columns)


@triton_op("anyshape_gpu_tests::add", mutates_args={})
def add_operator(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    wrap_triton(add)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
    return out


@triton_op("anyshape_gpu_tests::add_into", mutates_args={"x"})
def add_into(x: Tensor, y: Tensor) -> None:
    n = x.numel()
    wrap_triton(add)[(triton.cdiv(n, 128),)](x, y, x, n)


def plain(x: Tensor, y: Tensor) -> Tensor:
    z, out, n = x * 2, torch.empty_like(x), x.numel()
    add[(triton.cdiv(n, 128),)](z, y, out, n)
    return torch.relu(out) + 1


def tuned(x: Tensor, y: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    add_tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x * 2, y, out, n)
    return out * 2


def in_place(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z, n = x + y, x.numel()
    before = z * 1
    scale[(triton.cdiv(n, 128),)](z, 0.5, n, BLOCK=128, num_warps=8)
    return z, before


def argument(x: Tensor, y: Tensor) -> Tensor:
    n = x.numel()
    add[(triton.cdiv(n, 128),)](x, y, x, n)
    return x * 2


def rows(x: Tensor, y: Tensor) -> Tensor:
    z = (x * 3).contiguous()
    out = torch.empty_like(z)
    block = triton.next_power_of_2(z.shape[1])
    softmax[(z.shape[0],)](z, out, z.shape[1], z.shape[1], BLOCK=block)
    return out + y


def operators(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    made = add_operator(z, y)
    add_into(z, y)
    return made * z


PROGRAMS = (plain, tuned, in_place, argument, rows, operators)
SIZES = ((3, 100), (1, 1), (64, 77), (1, 128), (5, 300), (64, 77))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@torch.no_grad()
def test_launches_are_part_of_the_graph(program: Callable[..., Any], mode: str) -> None:
    fast = anyshape.compile(program, fullgraph=True, mode=mode)
    for turn in range(3):
        for size in SIZES:
            x, y = (torch.randn(size, device="cuda") for _ in range(2))
            given = x.clone(), y.clone()
            expected, found = program(x, y), fast(*given)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(given, (x, y), rtol=0, atol=0)
    assert fast.stats().specializations <= 2 and fast.stats().internal_errors == 0
    replayed = program not in (argument, operators)  # one writes an argument, one asks torch's own
    if mode == "reduce-overhead":
        assert ("not replayed" not in fast.kernels()) is replayed


@torch.no_grad()
def test_a_side_stream() -> None:
    fast = anyshape.compile(plain, fullgraph=True)
    stream = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(stream):
            x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
            torch.testing.assert_close(fast(x, y), plain(x, y))
