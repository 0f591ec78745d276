"""Kernels that make floats of truths, as dropout does: GCC makes vectors of them."""

from __future__ import annotations

import platform
import subprocess
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ir import dtypes
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
