"""Whole numbers of a program that differ from call to call, below zero and out of range too: pads
that cut, distances between points, the row of a table that learns nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape

PADS = (
    (1, 1),
    (2, 1),
    (1, 2),
    (-1, 1),
    (1, -2),
    (0, -1),
    (3, 3),
    (-2, -2),
    (0, 0),
    (-2, 1),
    (4, 0),
)
IDS = torch.tensor([0, 1, 3])


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate", "constant"])
def test_pads_may_cut_in_a_later_call(mode: str) -> None:
    def program(x: Tensor, low: int, high: int) -> Tensor:
        return F.pad(x, (low, high, high, low), mode=mode)

    fast = anyshape.compile(program)
    for low, high in PADS:
        _assert_alike(fast, program, torch.arange(60.0).view(1, 3, 4, 5), low, high)


PROGRAMS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "trapezoid": lambda x, n: torch.trapezoid(x, dx=n),
    "trapz": lambda x, n: torch.trapz(x, dx=n, dim=0),
    "cumulative_trapezoid": lambda x, n: torch.cumulative_trapezoid(x, dx=n),
    "padding_idx": lambda x, n: F.embedding(IDS, x, padding_idx=n),
    "padding_idx of many": lambda x, n: F.embedding(IDS, x, n, None, 2.0, True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_of_a_later_call_is_taken_or_refused(name: str) -> None:
    fast = anyshape.compile(PROGRAMS[name])
    for number in (1, 2, 3, -1, 0, -4, 5, 4, -5, 2):
        _assert_alike(fast, PROGRAMS[name], torch.arange(20.0).view(4, 5), number)
    assert fast.stats().internal_errors == 0


def test_a_constant_row_outside_of_the_table_is_refused() -> None:
    def program(x: Tensor) -> Tensor:
        return F.embedding(IDS, x, padding_idx=7)

    fast = anyshape.compile(program)
    for rows in (4, 8, 4, 7, 9):
        _assert_alike(fast, program, torch.arange(rows * 2.0).view(rows, 2))


def _assert_alike(fast: Callable[..., Tensor], program: Callable[..., Tensor], *given: Any) -> None:
    try:
        wanted = program(*given)
    except (RuntimeError, AssertionError) as error:
        with pytest.raises(type(error)):
            fast(*given)
        return
    torch.testing.assert_close(fast(*given), wanted)
