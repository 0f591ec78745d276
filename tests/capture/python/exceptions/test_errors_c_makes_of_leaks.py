"""What native code meets of ours in the middle of a call ends the segment, also where C catches it
and makes an error of its own of it: `type.__new__` does so of what a `__set_name__` raises."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any

import pytest
import torch

import anyshape


def of_a_size(x: Any) -> Any:
    class Sizes(Enum):
        ROWS = x.shape[0]
        OTHER = "other"

    return x + 1, Sizes.ROWS.value, Sizes(x.shape[0]) is Sizes.ROWS, [s.name for s in Sizes]


def of_sizes_in_a_tuple(x: Any) -> Any:
    class Sizes(Enum):
        BOTH = (x.shape[0], x.shape[0] + 1)

    return x * Sizes.BOTH.value[1], str(Sizes.BOTH)


def of_numbers(x: Any) -> Any:
    class Sizes(IntEnum):
        ROWS = x.shape[0]
        TWICE = 2 * x.shape[0]

    return x + Sizes.TWICE, Sizes.ROWS < Sizes.TWICE


def caught(x: Any) -> Any:
    try:

        class Sizes(Enum):
            ROWS = x.shape[0]

        return x + Sizes.ROWS.value
    except (RuntimeError, IndexError):
        return x - 1


def by_a_functional_call(x: Any) -> Any:
    made = Enum("made", {"A": x.shape[0], "B": 3})  # type: ignore[misc]
    return x + made.A.value, made(3) is made.B  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "program", [of_a_size, of_sizes_in_a_tuple, of_numbers, caught, by_a_functional_call]
)
def test_classes_made_of_sizes(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program)
    for length in (4, 5, 6, 4):
        x = torch.ones(length)
        found, wanted = fast(x), program(x)
        if isinstance(wanted, tuple):
            assert torch.equal(found[0], wanted[0])
            assert found[1:] == wanted[1:]
        else:
            assert torch.equal(found, wanted)
    assert fast.stats().internal_errors == 0
