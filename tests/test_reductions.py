"""Every reduction, over bools and integers of every width, at sizes 0, 1, 2, odd and large: exactly
eager's, from one compile; whole tensors, rows and columns, dense, transposed and stepped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SIZES = ((5, 33), (0, 3), (3, 0), (1, 1), (2, 18), (17, 65))
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum,
    "prod": torch.prod,
    "all": torch.all,
    "any": torch.any,
    "amax": torch.amax,
    "amin": torch.amin,
    "max": torch.max,
    "min": torch.min,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "count_nonzero": torch.count_nonzero,
    "aminmax": lambda x, dim=None: torch.aminmax(x, dim=dim),
    "cumsum": lambda x, dim=None: torch.cumsum(x.reshape(-1) if dim is None else x, dim or 0),
    "cummax": lambda x, dim=None: torch.cummax(x.reshape(-1) if dim is None else x, dim or 0),
    "median": torch.median,
    "bincount": lambda x, dim=None: torch.bincount(x.abs().reshape(-1).long()),
}
AXES: dict[str, tuple[int, ...]] = {"all": (), "rows": (1,), "columns": (0,)}


def layouts(rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
    """Small numbers of either sign, with the least and the greatest among them."""
    generator = torch.Generator().manual_seed(rows * 1000 + columns)

    def numbers(m: int, n: int) -> Tensor:
        if dtype is torch.bool:
            return torch.rand(m, n, generator=generator) < 0.5
        drawn = torch.randint(-3, 4, (m, n), generator=generator).to(dtype)
        if drawn.numel() > 2:
            info = torch.iinfo(dtype)
            drawn.view(-1)[-1], drawn.view(-1)[0] = info.max, info.min
        return drawn

    return [
        numbers(rows, columns),
        numbers(columns, rows).t(),
        numbers(rows, 2 * columns)[:, ::2],
    ]


def outcome(run: Callable[..., Any], x: Tensor) -> Any:
    try:
        result = run(x)
    except (RuntimeError, IndexError) as error:
        return type(error)
    return [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", REDUCTIONS)
@torch.no_grad()
def test_a_reduction_is_eagers_in_every_small_dtype(name: str, axis: str) -> None:
    def program(x: Tensor) -> Any:
        return REDUCTIONS[name](x, *AXES[axis])

    for dtype in DTYPES:
        fast = anyshape.compile(program, fullgraph=True)
        for rows, columns in SIZES:
            for x in layouts(rows, columns, dtype):
                found, expected = outcome(fast, x), outcome(program, x)
                at = f"{dtype}, {tuple(x.shape)}, strides {x.stride()}"
                if isinstance(expected, type):
                    assert found is expected, at
                    continue
                assert [t.dtype for t in found] == [t.dtype for t in expected], at
                torch.testing.assert_close(
                    found, expected, rtol=0, atol=0, msg=lambda text, at=at: f"{at}: {text}"
                )


def test_a_sum_of_few_gathered_rows_is_a_vector_over_their_columns() -> None:
    """Along the two rows the gathered ones leap; along the columns they step, and the rest stays."""

    def combined(rows: torch.Tensor, order: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        return (rows[order] * factors[:, None]).view(-1, 2, rows.shape[1]).sum(1)

    fast = anyshape.compile(combined, fullgraph=True)
    for count in (7, 1, 0, 100):
        given = torch.randn(5, 64), torch.randint(-5, 5, (2 * count,)), torch.randn(2 * count)
        torch.testing.assert_close(fast(*given), combined(*given))
    assert re.search(r"#pragma omp simd\s+for \(i64 i1 =", str(fast.code()).replace("\\n", "\n"))


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extremum_over_a_dimension_that_is_a_size_gives_values_and_positions(name: str) -> None:
    def over(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        values, positions = getattr(x, name)(dim)
        return values, positions

    def over_the_last_but_one(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        values, positions = getattr(torch, name)(x, x.shape[0] - 2)
        return values, positions

    for program in (over, over_the_last_but_one):
        fast = anyshape.compile(program)
        for dim in (0, 1, -1, 0):
            x = torch.randn(dim % 2 + 2, 3)
            assert all(map(torch.equal, fast(x, dim), program(x, dim)))
