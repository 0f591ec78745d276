"""A branch of which one side only raises is expected to go the other way. Where the program then
raises at the end of that way, and this call goes the other one, nothing of ours has failed.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


class Refused:
    """Wants a ValueError, as ``assertRaises`` does."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, raised: Any, traceback: TracebackType | None) -> bool:
        if kind is None:
            raise AssertionError("nothing was raised")
        return True


def refuse_tensor(x: Tensor) -> None:
    if x > 1:
        raise ValueError(x)


def refuse_number(x: Tensor) -> None:
    if x.item() > 1:
        raise ValueError(x)


def refuse_count(x: Tensor) -> None:
    if len(x.nonzero()):
        raise ValueError(x)


REFUSALS = (refuse_tensor, refuse_number, refuse_count)


@pytest.mark.parametrize("refuse", REFUSALS)
def test_a_program_that_waits_for_the_exception_goes_on(refuse: Any) -> None:
    def waits(x: Tensor) -> Tensor:
        with Refused():
            refuse(x)
        return x + 3

    fast = anyshape.compile(waits)
    for number in (2, 5):
        assert fast(torch.tensor(number)) == number + 3
    with pytest.raises(AssertionError, match="nothing was raised"):
        fast(torch.tensor(0))
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("refuse", REFUSALS)
def test_the_other_way_raises_what_it_raises(refuse: Any) -> None:
    def waits(x: Tensor) -> Tensor:
        try:
            refuse(x)
        except ValueError:
            return x + 3
        raise KeyError("nothing was raised")

    fast = anyshape.compile(waits)
    with pytest.raises(KeyError):
        fast(torch.tensor(0))
    assert fast(torch.tensor(2)) == 5
    assert fast.stats().internal_errors == 0
