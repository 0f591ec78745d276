"""Sums over long rows are as near the truth as eager's: at most twice its error and one unit."""

from __future__ import annotations

import pytest
import torch

import anyshape
from anyshape.tools.accuracy import judge
from benchmarks.programs import PROGRAMS

SIZES = [(2048, 1024), (3000, 1024), (5000, 7), (7, 5000), (3, 20000), (1, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", ["cross entropy", "softmax", "masked softmax", "layer norm + gelu", "sum over rows"]
)
def test_errors_of_long_sums_are_of_eagers_size(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program.run, fullgraph=True)
    for size in SIZES:
        inputs = program.inputs(*size, dtype)
        wide = (x.double() if x.is_floating_point() else x for x in inputs)
        verdict = judge(fast(*inputs), program.run(*inputs), program.run(*wide))
        assert verdict.right, (size, verdict)
