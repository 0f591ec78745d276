"""Integer arguments of operators, wherever the integer comes from: handed in, a size, computed of
sizes, read from data. One compiled function serves them all, right or with a graph break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape

Program = Callable[[Tensor, Any], Any]

# fmt: off
PROGRAMS: dict[str, Program] = {
    "group_norm": lambda x, k: F.group_norm(x, k),
    "group_norm of channels": lambda x, k: F.group_norm(x[:, :k], k),
}
# fmt: on

SOURCES: dict[str, Callable[[Tensor], Any]] = {
    "a size": lambda s: s.shape[0],
    "of a size": lambda s: (2 * s.shape[0] + 1) // 2,
    "a quotient": lambda s: 12 // s.shape[0],
    "data": lambda s: s.sum().item(),
    "a size from data": lambda s: s.nonzero().shape[0],
}
NUMBERS = (2, 3, 1, 4)


def agrees(program: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    """One compiled function does what eager does: results and exceptions."""
    fast = anyshape.compile(program)
    for call in calls:
        expected, got = outcome(program, call), outcome(fast, call)
        if isinstance(expected, type) or isinstance(got, type):
            assert got is expected, call
        else:
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def outcome(program: Callable[..., Any], call: tuple[Any, ...]) -> Any:
    try:
        return program(*call)
    except Exception as error:
        return type(error)


@torch.no_grad()
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_is_handed_in(name: str) -> None:
    x = torch.randn(2, 12, 4, 4)
    agrees(PROGRAMS[name], [(x, k) for k in NUMBERS])


@torch.no_grad()
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_the_program_has(name: str, source: str) -> None:
    def program(x: Tensor, s: Tensor) -> Any:
        return PROGRAMS[name](x, SOURCES[source](s))

    x = torch.randn(2, 12, 4, 4)
    agrees(program, [(x, torch.ones(k, dtype=torch.int64)) for k in NUMBERS])
