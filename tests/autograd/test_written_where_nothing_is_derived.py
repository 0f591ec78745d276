"""What an operator without a derivative has read is written behind the call: eager names the one or
the other, by which of them its backward comes to first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "alone": lambda x: torch.unique_consecutive(x),
    "in front of what is saved": lambda x: torch.unique_consecutive(x).sin(),
    "behind what is saved": lambda x: torch.unique_consecutive(x.sin()),
    "in front of a distance": lambda x: torch.cdist(x, x),
}
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "of another shape": lambda x, y: torch.eq(y, y[:1], out=x),
    "of its own shape": lambda x, y: torch.eq(y[0], y[0], out=x),
}


def raised(program: Callable[..., Any], written: Tensor) -> str:
    try:
        program(written, torch.arange(32.0).view(2, 4, 4)).sum().backward()
    except RuntimeError as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("write", WRITES)
def test_the_error_is_eagers(name: str, write: str) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        made = PROGRAMS[name](x)
        WRITES[write](x, y)
        return made

    fast = anyshape.compile(program)
    for seed in range(2):
        given = [torch.randn(4, 4, generator=torch.manual_seed(seed)) for _ in range(2)]
        ours, eagers = (raised(f, x.requires_grad_()) for f, x in zip((fast, program), given))
        assert ours == eagers
        assert ours
