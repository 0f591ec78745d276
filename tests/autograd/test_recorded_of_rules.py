"""Operators with a gradient rule that has no formula for the arguments: autograd records them, and
refuses what it has saved where the caller has written it since.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

PROGRAMS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "the size of a complex number": lambda x: (t := torch.complex(x, x), t.abs()),
    "its angle": lambda x: (t := torch.complex(x, x), t.angle()),
    "a complex product": lambda x: (t := torch.complex(x, x), (t * t).real * 1),
    "a complex sum, which keeps nothing": lambda x: (t := torch.complex(x, x), (t + 1).real * 1),
    "a complex power, whose result is kept": lambda x: (
        t := torch.complex(x, x).exp(),
        t.real * 1,
    ),
    "the size of a view": lambda x: (t := torch.complex(x, x), t[0].abs()),
    "a norm of order 3": lambda x: (t := x * 2, t.norm(3)),
    "named padding": lambda x: (
        w := x[None, None, :3, :3] * 1,
        F.conv2d(x.view(1, 1, 4, 4) * 2, w, padding="same"),
    ),
    "padding that makes another image": lambda x: (
        t := x.view(1, 1, 4, 4) * 2,
        F.conv2d(t, x[None, None, :2, :2], padding="same"),
    ),
    "no batch": lambda x: (t := x[None] * 2, F.conv2d(t, x[None, None, :2, :2])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_autograd_has_saved_is_refused_where_the_caller_has_written_it(name: str) -> None:
    def outcome(run: Callable[[Tensor], tuple[Tensor, Tensor]]) -> str:
        x = torch.randn(4, 4, requires_grad=True)
        seen, result = run(x)
        with torch.no_grad():
            seen.mul_(2)
        try:
            result.sum().backward()
        except RuntimeError as refused:
            return str(refused)[:60]
        return ""

    fast = anyshape.compile(PROGRAMS[name], fullgraph=True)
    assert outcome(fast) == outcome(PROGRAMS[name])
    assert fast.stats().recorded
