"""Kernels that make floats of truths, as dropout does: GCC makes vectors of them."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ir import dtypes
from anyshape.ir.code import NativeFunction
from anyshape.options import Options
from anyshape.targets.cpu.build import Builder
from anyshape.targets.cpu.c import emit_c
from anyshape.targets.cpu.prelude import standing_before, texts
from tests.schedule.programs import compile_sketch, launches

HALVES = (dtypes.bfloat16, dtypes.float32)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of x86")
@pytest.mark.parametrize("processor", ("x86-64-v3", "x86-64-v4"))
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gcc_makes_vectors_of_truths_as_floats(dtype: dtypes.DType, processor: str) -> None:
    def dropped(b: Any, x: Any, kept: Any) -> Any:
        return b.mul(x, b.where(kept, b.div(b.to_dtype(kept, dtype=dtype), 0.9), 0.0))

    inputs = ("a", dtype, ()), ("a", dtypes.bool_, ())
    (launch,) = launches(compile_sketch(dropped, *inputs).program)
    text = emit_c(launch.kernel, "k")
    finished = subprocess.run(
        ("gcc", "-O3", f"-march={processor}", "-fopenmp", "-ffp-contract=off", "-fwrapv", "-w")
        + ("-fno-math-errno", "-fno-trapping-math", "-fopt-info-vec", "-S", "-o", "/dev/null")
        + ("-x", "c", "-"),
        input=standing_before(text, texts()) + text,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "loop vectorized" in finished.stderr


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_truths_as_floats(dtype: torch.dtype) -> None:
    def program(x: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
        as_floats = kept.to(dtype)
        return as_floats, x * as_floats / 0.9, as_floats.sum(0), x + kept, kept.double() - x

    fast = anyshape.compile(program, options={"fallback": "error"})
    for rows in (0, 1, 5, 70):
        stream = torch.Generator().manual_seed(rows)
        x = torch.randn(rows, 33, generator=stream).to(dtype)
        kept = torch.rand(rows, 33, generator=stream) < 0.5
        for found, expected in zip(fast(x, kept), program(x, kept), strict=True):
            torch.testing.assert_close(found, expected)


JOINED = """
void joined(const _Bool *x, _Bool *y) {
  for (int n = 0; n < 3; n++) {
    y[2 * n] = as_join_any(x, 16 << n); y[2 * n + 1] = as_join_all(x, 16 << n);
  }
}
"""


def test_truths_are_joined_as_all_and_any_of_them() -> None:
    builder = Builder.create(Options(cache=False), texts())
    function = NativeFunction(JOINED, ("pointer", "pointer"))
    joined = builder.functions({"joined": function})["joined"]
    truths, found = torch.zeros(64, dtype=torch.bool), torch.zeros(6, dtype=torch.bool)
    for most in (False, True):
        for position in (None, 0, 1, 7, 8, 15, 16, 31, 32, 40, 63):
            truths.fill_(most)
            if position is not None:
                truths[position] = not most
            joined(truths.data_ptr(), found.data_ptr())
            parts = [truths[: 16 << n] for n in range(3)]
            assert found.tolist() == [bool(f(p)) for p in parts for f in (torch.any, torch.all)]


LENGTHS = (0, 1, 2, 3, 4, 5, 15, 31, 32, 33, 63, 64, 65, 67, 130, 4095, 4096, 4099, 9001)
TOTALS: dict[str, Callable[[Tensor], Tensor]] = {
    "any": lambda x: (x > 9).any(),
    "all": lambda x: (x < 9).all(),
    "any and all": lambda x: torch.stack([(x > 9).any(), (x < 9).all(), (x > 8).any()]),
    "any of halves": lambda x: (x.half() > 9).any(),
    "any of rows": lambda x: (x.view(1, -1) > 9).any(-1),
    "maximum of truths": lambda x: torch.cat([x > 9, x[:1] > 99]).int().max(),
    "count": lambda x: (x > 3).sum(),
    "sum": lambda x: x.sum(),
    "product": lambda x: x.prod(),
    "bytes": lambda x: x.to(torch.uint8).sum(),
}


@pytest.mark.parametrize("name", TOTALS)
def test_totals_of_integers_of_any_length(name: str) -> None:
    program = TOTALS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for length in LENGTHS:
        x = torch.arange(length) % 8
        if name.startswith("maximum"):
            x = torch.cat([x, x.new_zeros(1)])
        assert torch.equal(fast(x), program(x)), length
        if length:
            x[-1] = 10
            assert torch.equal(fast(x), program(x)), length


def bodies(program: Callable[[Tensor], Tensor], x: Tensor) -> tuple[int, int]:
    """How often what a cell does is printed: in loops of vectors (three are for processors with
    masks, or for those without), and one by one."""
    fast = anyshape.compile(program, fullgraph=True)
    fast(x)
    text = fast.code()
    return text.count("#pragma omp simd"), text.count("for (i64 r0 = r0w")


def test_what_totals_of_integers_do_is_printed_for_whole_vectors_and_for_what_is_left() -> None:
    """Of truths of a whole tensor, as of indices that are looked at, once: GCC takes less than half
    of its time."""
    numbers = torch.arange(70)
    assert bodies(lambda x: ((x < 0) | (x >= 512)).any(), numbers) == (1, 0)
    assert bodies(lambda x: x.sum(), numbers) == (5, 1)
    rows = numbers.view(2, -1)
    assert bodies(lambda x: ((x < 0) | (x >= 512)).any(-1), rows) == (4, 1)
    assert bodies(lambda x: x.sum(), numbers.float()) == (5, 1), "order matters to these"
