"""The fused kernels that benchmarks/programs.py measures, right at every size from one compile."""

from __future__ import annotations

import pytest
import torch

import anyshape
from anyshape.tools.accuracy import judge
from benchmarks.programs import PROGRAMS, Program

SIZES = ((5, 33), (1, 1), (2, 3), (3, 16), (1, 64), (64, 1), (7, 130), (33, 257), (130, 70))
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# What takes more than one kernel: ids are checked before anything is read with them.
KERNELS = {"embedding + add": 2}
COUNTED = sorted(set(PROGRAMS) - {"cross entropy"})


def truth_of(program: Program, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return program.run(*(x.double() if x.is_floating_point() else x for x in inputs))


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compile_is_right_at_every_size(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program.run, fullgraph=True, options={"fallback": "error"})
    wrong = []
    for size in SIZES:
        inputs = program.inputs(*size, dtype)
        verdict = judge(fast(*inputs), program.run(*inputs), truth_of(program, inputs))
        if not verdict.right:
            wrong.append((size, verdict))
    assert wrong == []
    assert fast.stats().specializations == 1


@torch.no_grad()
@pytest.mark.parametrize("name", COUNTED)
def test_one_expression_is_one_kernel(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program.run, fullgraph=True)
    fast(*program.inputs(7, 130, torch.float32))
    assert (fast.stats().kernels, fast.stats().externs, fast.stats().eager_ops) == (
        KERNELS.get(name, 1),
        0,
        0,
    )


NO_ROWS = (
    "layer norm + gelu",
    "softmax",
    "rms norm",
    "swiglu",
    "add mul tanh",
    "cat + relu",
    "sum over rows",
)


@torch.no_grad()
@pytest.mark.parametrize("name", NO_ROWS)
def test_no_rows_are_an_ordinary_size(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program.run, fullgraph=True)
    for rows in (3, 0, 1):
        inputs = program.inputs(rows, 5, torch.float32)
        torch.testing.assert_close(fast(*inputs), program.run(*inputs))
    assert fast.stats().specializations == 1


@torch.no_grad()
def test_products_alone_are_compiled_too() -> None:
    weight = torch.randn(4, 4)
    fast = anyshape.compile(lambda x: torch.mm(torch.mm(x, weight), weight), fullgraph=True)
    for rows in (5, 1, 0, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x), torch.mm(torch.mm(x, weight), weight))
    assert fast.stats().specializations == 1
