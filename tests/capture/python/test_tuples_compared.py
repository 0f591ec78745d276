"""Tuples of two lengths are compared element by element, as C does; lists are not."""

from __future__ import annotations

import pytest
import torch

import anyshape


class Counting:
    """Counts how often it is compared."""

    def __init__(self) -> None:
        self.asked = 0

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return True

    __hash__ = None  # type: ignore[assignment]


def compared(x: torch.Tensor, one: Counting) -> tuple[torch.Tensor, bool, bool, bool, int]:
    tuples = (one,) == (1, 2)
    return x + 1, tuples, [one] == [1, 2], (one, 1) != (one,), one.asked


def test_elements_are_asked_as_often_as_c_asks_them() -> None:
    fast = anyshape.compile(compared, fullgraph=True)
    for _ in range(2):
        assert fast(torch.ones(2), Counting())[1:] == compared(torch.ones(2), Counting())[1:]


def test_a_tensor_of_several_elements_has_no_truth_in_a_tuple_either() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return x + 1, (x,) == (1, 2, 3)

    with pytest.raises(RuntimeError, match="ambiguous"):
        anyshape.compile(program)(torch.ones(3))
