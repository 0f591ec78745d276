"""Recursion is as deep as CPython's: its error is the program's own, its depth ours to count."""

from __future__ import annotations

import inspect
import sys

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


def test_a_low_limit_is_the_programs_own_frames() -> None:
    """What the program sets counts its frames, not ours; and it finds what it has set."""

    def few(levels: int) -> int:
        return 0 if levels == 0 else few(levels - 1) + 1

    def limited(x: Tensor, limit: int) -> tuple[Tensor, int, int, bool]:
        y, before = x + 1, sys.getrecursionlimit()
        sys.setrecursionlimit(limit)
        try:
            found, count = sys.getrecursionlimit(), few(4)
            try:
                few(60)
            except RecursionError:
                deep = True
            else:
                deep = False
        finally:
            sys.setrecursionlimit(before)
        return y * 2, found, count, deep

    before, limit = sys.getrecursionlimit(), len(inspect.stack(0)) + 15
    expected = limited(torch.ones(2), limit)
    fast = anyshape.compile(limited)
    for _ in range(2):
        result = fast(torch.ones(2), limit)
        torch.testing.assert_close(result[0], expected[0])
        assert result[1:] == expected[1:]
        assert sys.getrecursionlimit() == before


def test_a_limit_that_is_left_behind_is_the_programs() -> None:
    def leaves(x: Tensor) -> Tensor:
        y = x + 1
        sys.setrecursionlimit(sys.getrecursionlimit() + 7)
        return y * 2

    before = sys.getrecursionlimit()
    try:
        anyshape.compile(leaves)(torch.ones(2))
        assert sys.getrecursionlimit() == before + 7
    finally:
        sys.setrecursionlimit(before)
