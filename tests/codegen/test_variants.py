"""A kernel has variants, which sizes choose at each launch: few columns are folded, so that a vector is full. Every
variant computes the same, on both sides of each predicate, from one compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ir import dtypes
from anyshape.ir.variants import Variant
from anyshape.targets.cpu.schedules import KernelSchedule
from tests.schedule.programs import compile_sketch, launches

SHAPES = (
    *((0, 3), (3, 0), (8192, 1), (8193, 1), (4097, 2), (2731, 3), (256, 32), (257, 32)),
    *((300, 33), (40_001, 3), (9001, 31), (3, 9001)),
)
PROGRAMS: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "sum": lambda x: x.sum(0),
    "squares": lambda x: (x * x).sum(0),
    "largest": lambda x: x.amax(0) if x.shape[0] else x.sum(0),
    "var": lambda x: x.var(0),
    "mean and any": lambda x: (x.mean(0), (x > 2).any(0)),
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
ROUNDINGS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def walks(make: Callable[..., Any], shape: str = "a b") -> list[list[str]]:
    """How each kernel of a sketch on a matrix is walked, variant by variant."""
    program = compile_sketch(make, (shape, dtypes.float32, ())).program
    return [[each.schedule.walk for each in launch.variants] for launch in launches(program)]


def test_sizes_choose_the_variant() -> None:
    program = compile_sketch(lambda b, x: b.sum(x, (0,)), ("a b", dtypes.float32, ())).program
    ((few, last),) = (launch.variants for launch in launches(program))
    assert few.schedule == KernelSchedule("folded columns")
    assert last == Variant(True, KernelSchedule("columns"))
    assert str(few.predicate) == "n0 <= 32 and n0*n1 >= 8193"


def test_what_does_not_run_through_memory_as_one_axis_is_not_folded() -> None:
    assert walks(lambda b, x: b.softmax(x, 0)) == [["columns"]]  # it stores each cell
    assert walks(lambda b, x: b.argmax(x, 0)) == [["columns"]]  # reads where it is
    gaps = walks(lambda b, x: b.sum(b.slice(x, 1, 0, 2, 1), (0,)))
    assert gaps == [["shared columns"]]  # these are two
    repeated = walks(lambda b, x: b.sum(b.add(x, b.select(x, 0, 0)), (0,)))
    assert repeated == [["columns"]]  # the row that is added repeats


def moved(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A norm over the rows: it stores each cell, and reads what each column has."""
    mean, var = x.mean(0), x.var(0, correction=0)
    y = (x - mean) * (var + 1e-5).rsqrt() * weight
    return y, y.relu().sum(0), x.argmax(0)


@pytest.mark.parametrize("columns", [1, 16, 33, 64, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_threads_share_the_rows_of_few_columns(columns: int, dtype: torch.dtype) -> None:
    weight = torch.linspace(0.5, 2.0, columns).to(dtype)
    fast = anyshape.compile(lambda x: moved(x, weight), fullgraph=True)
    near = ROUNDINGS[dtype]
    for rows in (1, 127, 128, 129, 5000, 40_001):
        drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
        x = drawn.to(dtype)
        torch.testing.assert_close(fast(x), moved(x, weight), rtol=8 * near, atol=near * 200)
    assert fast.stats().specializations == 1


def test_one_block_of_columns_is_shared_by_its_rows() -> None:
    assert walks(lambda b, x: b.softmax(x, 0), "a 64") == [["shared columns"]]
    assert walks(lambda b, x: b.softmax(x, 0), "a 65") == [["columns"]]  # two blocks
    assert walks(lambda b, x: b.cumsum(b.softmax(x, 0), 0), "a 64")[-1] != ["shared columns"]
    assert walks(lambda b, x: b.sum(x, (0,)), "a 16") == [["folded columns", "columns"]]


def test_what_is_shared_is_added_in_one_order() -> None:
    x, weight = torch.randn(30_000, 48), torch.rand(48)
    fast, before = anyshape.compile(lambda x: moved(x, weight)), torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(fast(x))
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        assert all(map(torch.equal, results[0], others))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
def test_every_variant_is_eagers(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True, options={"fallback": "error"})
    near = ROUNDINGS[dtype]
    for rows, columns in SHAPES:
        drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
        x = drawn.to(dtype)
        torch.testing.assert_close(
            fast(x), program(x), rtol=4 * near, atol=near * 40, equal_nan=True
        )
        if rows and columns:
            x[rows // 2, columns - 1] = torch.nan
            torch.testing.assert_close(
                fast(x), program(x), rtol=4 * near, atol=near * 40, equal_nan=True
            )


def test_a_result_does_not_depend_on_the_number_of_threads() -> None:
    fast = anyshape.compile(lambda x: x.var(0), options={"fallback": "error"})
    x, before = torch.randn(50_000, 7), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = fast(x)
        torch.set_num_threads(2)
        assert torch.equal(one, fast(x))
    finally:
        torch.set_num_threads(before)
