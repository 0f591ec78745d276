"""Recursion is as deep as CPython's: its error is the program's own, its depth ours to count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import anyshape


def down(x: Tensor, levels: int) -> Tensor:
    return x if levels == 0 else down(x + 1, levels - 1)


def endless(x: Tensor) -> Tensor:
    return endless(x + 1)


def test_deep_recursion_is_captured() -> None:
    fast = anyshape.compile(down, fullgraph=True)
    torch.testing.assert_close(fast(torch.zeros(2), 300), torch.full((2,), 300.0))


def test_endless_recursion_is_the_programs_own_error() -> None:
    with pytest.raises(RecursionError):
        anyshape.compile(endless)(torch.ones(2))


def test_a_program_may_handle_it() -> None:
    def handled(x: Tensor) -> Tensor:
        try:
            return endless(x)
        except RecursionError:
            return x * 2

    fast = anyshape.compile(handled)
    for size in (2, 0, 3):
        torch.testing.assert_close(fast(torch.ones(size)), torch.full((size,), 2.0))
