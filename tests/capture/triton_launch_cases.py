"""The program's own Triton kernels inside compiled functions, in Triton's interpreter, beside the same functions
without a compiler.

Run by `test_triton_launches.py` in a process of its own (TRITON_INTERPRET=1 must be set before triton is imported).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import wrap_triton

import anyshape
from tests.triton_interpreter import mend

mend()
LENGTHS = (5, 100, 1, 17, 0, 64)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr = 16):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def scale(x, factor, n, CAST: tl.constexpr, TWICE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = (tl.load(x + i, mask=i < n) * factor).to(CAST)
    if TWICE:
        v = v * 2
    tl.store(x + i, v, mask=i < n)


@triton.jit
def rows(x, out, columns, stride, out_stride, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + j, mask=j < columns, other=0.0)
    tl.store(out + row * out_stride + j, v / tl.sum(tl.abs(v), 0), mask=j < columns)


@triton.jit
def through_a_table(table, x, n):
    """Writes nothing here, but might."""
    p = tl.load(table)
    if p > 0:
        tl.store(p.to(tl.pointer_type(tl.float32)), tl.load(x))


@triton.heuristics({"BLOCK": lambda given: 32 if given["n"] > 20 else 16})
@triton.jit
def add_by_heuristics(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def timed(call: Callable[[], object], quantiles: object) -> list[float]:
    """The last configuration is the fastest."""
    call()
    TIMES.append(1.0 / (1 + len(TIMES)))
    return [TIMES[-1]] * 3


TIMES: list[float] = []


@triton.autotune(
    [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 64})], key=["n"], do_bench=timed
)
@triton.jit
def add_tuned(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def plain(x: Tensor, y: Tensor) -> Tensor:
    z, out, n = x * 2, torch.empty_like(x), x.numel()
    add[(triton.cdiv(n, 16),)](z, y, out, n, BLOCK=16)
    return out + 1


def grid_is_a_function(x: Tensor, y: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return torch.relu(out)


def two_sizes_of_blocks(x: Tensor, y: Tensor) -> Tensor:
    z, out, n = torch.empty_like(x), torch.empty_like(x), x.numel()
    add[(triton.cdiv(n, 16), 1)](x, y, out=z, n=n)
    add[(triton.cdiv(n, 32), 1, 1)](z, y, out, n, 32)
    return out


def into_an_argument(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    n, before, row = x.numel(), x * 3, x[1:]
    add[(triton.cdiv(n, 16),)](x, y, x, n)
    return before + x, row * 1


def into_what_was_made(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z, n = x * 2, x.numel()
    before = z + 0
    scale[(triton.cdiv(n, 16),)](z, 0.5, n, tl.float32, TWICE=n > 20, BLOCK=16)
    return z, before


def with_heuristics(x: Tensor, y: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    add_by_heuristics[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out * 2


def tuned(x: Tensor, y: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    add_tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out * 2


def wrapped(x: Tensor, y: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    wrap_triton(add)[(triton.cdiv(n, 16),)](x, y, out, n)
    return out


def parts_of_one_tensor(x: Tensor, y: Tensor) -> Tensor:
    both = torch.cat((x, y))
    one, other = both.chunk(2) if x.shape[0] else (both, both)
    out, n = torch.empty_like(one), one.numel()
    add[(triton.cdiv(n, 16),)](one, other, out, n)
    return out


PROGRAMS = (
    *(plain, grid_is_a_function, two_sizes_of_blocks, into_an_argument, into_what_was_made),
    *(with_heuristics, tuned, wrapped, parts_of_one_tensor),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_launches_are_part_of_the_graph(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for n in LENGTHS:
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        given = x.clone(), y.clone()
        expected, found = program(x, y), fast(*given)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(given, (x, y), rtol=0, atol=0)
        assert [a._version for a in given] == [a._version for a in (x, y)]  # a launch counts none
    assert fast.stats().specializations <= 2 and fast.stats().internal_errors == 0


def test_an_address_that_was_read_from_memory_may_be_any_tensors() -> None:
    def program(x: Tensor, table: Tensor) -> Tensor:
        through_a_table[(1,)](table, x, x.numel())
        return x * 1

    fast = anyshape.compile(program, fullgraph=True)
    for n in (5, 9):
        x, y = torch.randn(n), torch.zeros(2, dtype=torch.int64)
        fast(x, y)
    (line,) = (
        line for line in fast.graphs()[0].split("\n") if "functional.anyshape_kernels" in line
    )
    made, _, _ = line.partition(" = ")
    assert made.count(",") == 1, line  # new values of both


def test_overlapping_parts_of_which_one_is_written_run_natively() -> None:
    def program(x: Tensor) -> Tensor:
        z = x * 2
        add[(1,)](z[1:], z[:-1], z[1:], z.shape[0] - 1)
        return z + 1

    fast = anyshape.compile(program)
    for n in (5, 9, 2):
        x = torch.randn(n)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().graph_breaks > 0


def test_rows_of_any_length_and_strides() -> None:
    """The strides are handed on as numbers; a block has as many elements as the next power of two."""

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x * 1
        wide = torch.zeros(x.shape[0], x.shape[1] + 3)
        out = wide[:, 1:-2]
        block = triton.next_power_of_2(x.shape[1])
        rows[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=block)
        return wide + 1, out

    fast = anyshape.compile(program, fullgraph=True)
    for n, m in ((3, 5), (1, 1), (2, 64), (4, 65), (7, 130), (0, 9)):
        x = torch.randn(n, m)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations <= 3  # the strides of one row or none are others


def test_a_launch_records_no_gradients() -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out, n = torch.empty_like(x), x.numel()
        add[(triton.cdiv(n, 16),)](x, y, out, n)
        return out * 2, (x * out).sum()

    fast = anyshape.compile(program, fullgraph=True)
    for n in (5, 1, 40):
        (x, y), (a, b) = ([torch.randn(n).requires_grad_() for _ in range(2)] for _ in range(2))
        with torch.no_grad():
            a.copy_(x), b.copy_(y)
        (made, loss), (wanted, expected) = fast(x, y), program(a, b)
        assert made.requires_grad is wanted.requires_grad is False
        torch.testing.assert_close((made, loss), (wanted, expected))
        loss.backward(), expected.backward()
        torch.testing.assert_close(x.grad, a.grad)
        assert y.grad is None and b.grad is None


def test_what_is_only_read_is_not_copied() -> None:
    fast = anyshape.compile(plain, fullgraph=True)
    fast(torch.randn(4), torch.randn(4))
    lines = (line.strip() for line in fast.graphs()[0].split("\n"))
    (line,) = (line for line in lines if "functional.anyshape_kernels." in line and " = " in line)
    made, _, _ = line.partition(" = ")
    assert "," not in made, line  # one new value, of one argument


def test_kernels_of_one_name_are_two() -> None:
    def made(sign: int) -> Any:
        if sign > 0:

            @triton.jit
            def kernel(x, n):
                i = tl.arange(0, 16)
                tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
        else:

            @triton.jit
            def kernel(x, n):
                i = tl.arange(0, 16)
                tl.store(x + i, tl.load(x + i, mask=i < n) - 1, mask=i < n)

        return kernel

    kernels = made(1), made(-1)

    def program(x: Tensor, which: int) -> Tensor:
        x = x * 2
        kernels[which][(1,)](x, x.numel())
        return x

    fast = anyshape.compile(program, fullgraph=True)
    for n, which in ((5, 0), (5, 1), (7, 0), (9, 1)):
        x = torch.randn(n)
        torch.testing.assert_close(fast(x, which), program(x, which))


def test_a_launch_of_what_differs_from_call_to_call_runs_natively() -> None:
    def program(x: Tensor) -> Tensor:
        x = x * 2
        scale[(1,)](x, 2.0, x.numel(), CAST=tl.float32, TWICE=[], BLOCK=16)
        return x + 1

    fast = anyshape.compile(program)
    x = torch.randn(7)
    with pytest.warns(anyshape.errors.PerformanceWarning, match="E230"):
        torch.testing.assert_close(fast(x), program(x))
