"""Numbers that are computed in many steps, each from the last one twice: work grows with the steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape.ir.scalars import Scalar, ScalarInput, parts_of


class Holder:
    rate = 0.5


def stepped(rate: float, count: int) -> float:
    for _ in range(count):
        rate = rate * 0.9 + rate * 0.05
    return rate


def of_a_number(x: torch.Tensor, holder: Holder, count: int) -> torch.Tensor:
    return x * stepped(holder.rate, count)


def of_a_size(x: torch.Tensor, holder: Holder, count: int) -> torch.Tensor:
    return x * stepped(x.shape[0] * 0.5, count)


def of_data(x: torch.Tensor, holder: Holder, count: int) -> torch.Tensor:
    return x * stepped(x.sum().item(), count)


def in_a_branch(x: torch.Tensor, holder: Holder, count: int) -> torch.Tensor:
    rate = stepped(holder.rate, count)
    return x * rate if x.sum() > 0 else x - rate


def kept_by_an_object(x: torch.Tensor, holder: Holder, count: int) -> float:
    holder.rate = stepped(holder.rate, count)
    return holder.rate


PROGRAMS: tuple[Callable[..., Any], ...] = (
    of_a_number,
    of_a_size,
    of_data,
    in_a_branch,
    kept_by_an_object,
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_is_as_in_eager(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program)
    mine, eager = Holder(), Holder()
    for n, rate in ((3, 0.5), (5, 0.25), (2, 0.75)):
        mine.rate = eager.rate = rate
        x = torch.arange(1.0, n + 1)
        torch.testing.assert_close(fast(x, mine, 40), program(x, eager, 40), rtol=0, atol=0)
        assert mine.rate == eager.rate
    assert fast.stats().internal_errors == 0


def test_work_grows_with_the_steps() -> None:
    def calls(count: int) -> int:
        seen = 0

        def see(frame: Any, event: str, arg: Any) -> None:
            nonlocal seen
            seen += event == "call"

        fast, holder = anyshape.compile(of_a_number), Holder()
        for rate in (0.5, 0.25):  # from the second on, it is a number that changes
            holder.rate = rate
            sys.setprofile(see)
            try:
                fast(torch.ones(2), holder, count)
            finally:
                sys.setprofile(None)
        return seen

    calls(8)
    assert calls(64) - calls(32) < 2.5 * (calls(32) - calls(16))


def test_what_is_used_twice_comes_twice() -> None:
    rate = ScalarInput("f0", "float")
    twice = Scalar("float", "add", (rate, rate))
    assert len([*parts_of(Scalar("float", "mul", (twice, twice)))]) == 7
