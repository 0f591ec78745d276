"""Variances of huge and of tiny numbers: float64 until they are rounded once, as in ATen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anyshape

SPREADS: dict[str, Callable[[Tensor], Tensor]] = {
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(1),
    "var of all": lambda x: x.var(),
    "std of all": lambda x: x.std(),
    "var of columns": lambda x: x.var(0, correction=0, keepdim=True),
    "std of columns": lambda x: x.std(0),
    "var_mean": lambda x: torch.var_mean(x, 1)[0],
    "std_mean": lambda x: torch.std_mean(x, (0, 1))[0],
}
SCALES = (1e-42, 1e-30, 1e-20, 1e-5, 1.0, 1e17, 1e19, 3e19, 1e25, 1e37)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SPREADS)
def test_variances_are_computed_in_float64(name: str, dtype: torch.dtype) -> None:
    program = SPREADS[name]
    fast = anyshape.compile(program, fullgraph=True)
    torch.manual_seed(0)
    for shape in ((4, 8), (3, 70), (40, 6), (2, 2)):
        for scale in SCALES:
            for offset in (0.0, 1e3 * scale):
                x = (torch.randn(shape, dtype=torch.float64) * scale + offset).to(dtype)
                torch.testing.assert_close(
                    fast(x),
                    program(x),
                    equal_nan=True,
                    rtol=1e-2 if dtype.itemsize == 2 else 1e-4,
                    atol=0,
                )
