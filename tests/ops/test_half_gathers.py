"""Rows of halves picked by data: sixteen cells share an address only where it is known before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum of rows": lambda x, m: x[m].sum(),
    "greatest of rows": lambda x, m: x[m.nonzero()[:, 0]].exp().amax(0),
    "rows": lambda x, m: x[m] * 2,
    "written rows": lambda x, m: torch.zeros_like(x).index_put((m.nonzero()[:, 0],), x[m] + 1),
    "sum of rows and columns": lambda x, m: (x[m].sum(1), x[:, m[: x.shape[1]]].sum(0)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_picked_by_data_are_eagers(name: str, dtype: torch.dtype) -> None:
    fast = anyshape.compile(PROGRAMS[name], fullgraph=True)
    for n in (4, 1, 40, 133):
        x = torch.arange(n * n, dtype=torch.float32).reshape(n, n).remainder(8).to(dtype) / 8
        mask = torch.arange(n) % 3 != 1
        found, wanted = fast(x, mask), PROGRAMS[name](x, mask)
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
