"""What `empty` and its like hold where deterministic algorithms are asked for: as in eager torch NaN,
the largest integer, or True."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

DTYPES = (
    *(torch.float32, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.uint8, torch.int16, torch.int64),
)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def unwritten(x: Tensor) -> list[Tensor]:
    made = [torch.empty(len(x), 2, dtype=dtype) for dtype in DTYPES]
    return [*made, torch.empty_like(x), torch.empty_like(x, dtype=torch.int32), x.new_empty(3)]


@pytest.mark.usefixtures("deterministic")
def test_memory_that_nobody_has_written_holds_what_eager_fills_it_with() -> None:
    compiled: Any = anyshape.compile(unwritten)
    for size in (3, 1, 0, 5):
        x = torch.ones(size)
        for result, expected in zip(compiled(x), unwritten(x), strict=True):
            torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    assert compiled.stats().specializations == 1
