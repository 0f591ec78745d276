"""Strides of results, where sizes are 0 and 1, of programs that read numbers and sizes from data:
what these decide is no reason to leave the other results as their types say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "an index": lambda x, i: (x.unsqueeze(0)[int(i)] * 2, x * 2),
    "an index in a tensor": lambda x, i: (x[:, :1].t()[i] * 2, x * 2),
    "factors": lambda x, i: (x * i.float().item(), x + i.item(), x * bool(i + 1), x * 2),
    "a shift": lambda x, i: (x.roll(int(i), 0) * 2, x.T * 2),
    "a start": lambda x, i: (x.unsqueeze(0).narrow(0, int(i), 1) * 2, x * 2),
    "a count": lambda x, i: (x * 2, x.T.expand(int(i) + 1, *x.T.shape) * 2),
    "a remainder": lambda x, i: x + torch.zeros(x.long().sum().item() % 5),
    "a remainder in front": lambda x, i: x * torch.ones(x.long().sum().item() % 4, 1, 1),
    "a minimum": lambda x, i: x + torch.zeros(min(x.long().sum().item(), 4)),
    "a multiple": lambda x, i: x + torch.zeros(x.long().sum().item() * 2),
    "positions": lambda x, i: (x * torch.ones(len(torch.argwhere(x)), 1, 1), torch.argwhere(x)),
    "parts of positions": lambda x, i: (x * 2, torch.argwhere(x) * 2, x.nonzero().t() + 1),
    "what is selected": lambda x, i: (x[x > 0], x[:, x.sum(0) > 0] * 1, x * 2),
}
SHAPES = (1, 4), (1, 3), (1, 1), (4, 1), (3, 4), (0, 3), (1, 0), (4, 4)


def _described(run: Callable[[Tensor, Tensor], Any], rows: int, columns: int) -> Any:
    """Shapes and strides, or the class of what is raised."""
    try:
        made = run(torch.ones(rows, columns), torch.tensor(0))
    except (RuntimeError, IndexError) as error:
        return type(error)
    results = made if isinstance(made, tuple) else (made,)
    return [(tuple(t.shape), t.stride()) for t in results]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_beside_what_data_decides_lie_as_eagers(name: str) -> None:
    program = lambda x, i: PROGRAMS[name](x.t(), i)
    fast = anyshape.compile(program)
    for shape in SHAPES:
        assert _described(fast, *shape) == _described(program, *shape), shape
    assert fast.stats().internal_errors == 0
