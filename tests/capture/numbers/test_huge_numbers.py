"""Numbers of more digits than Python writes in decimal (`sys.set_int_max_str_digits`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

HUGE = 10**5000
PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "less": lambda x: x.shape[0] < HUGE,
    "equal": lambda x: x.shape[0] == HUGE,
    "sum": lambda x: x.shape[0] + HUGE,
    "difference": lambda x: x.shape[0] - HUGE > 0,
    "product": lambda x: x.shape[0] * HUGE,
    "quotient": lambda x: HUGE // x.shape[0],
    "remainder": lambda x: (x.shape[0] * HUGE) % 7,
    "power": lambda x: x.shape[0] ** 9 * HUGE,
    "bits": lambda x: x.shape[0] & HUGE,
    "shifted": lambda x: HUGE << x.shape[0],
    "smaller": lambda x: min(x.shape[0], HUGE),
    "branch": lambda x: x + 1 if x.shape[0] * HUGE > HUGE * 2 else x - 1,
    "float": lambda x: x.shape[0] * 0.5 < HUGE,
    "float of a quotient": lambda x: x.shape[0] / HUGE,
    "data": lambda x: int(x.sum()) * HUGE,
    "quotient of data": lambda x: (int(x.sum()) + HUGE) // HUGE,
    "compared with data": lambda x: x.sum().item() < HUGE,
    "slice": lambda x: x[:HUGE] * 2,
    "added": lambda x: x + HUGE,
    "index": lambda x: x[HUGE],
    "text": lambda x: str(x.shape[0] + HUGE),
}


@pytest.fixture(params=(sys.get_int_max_str_digits(), sys.int_info.str_digits_check_threshold))
def _digits(request: pytest.FixtureRequest) -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(request.param)
    yield
    sys.set_int_max_str_digits(before)


def outcome(program: Callable[[Tensor], Any], x: Tensor) -> Any:
    try:
        return program(x)
    except (OverflowError, ValueError, IndexError) as error:
        return type(error)


@pytest.mark.usefixtures("_digits")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_has_no_decimal_text_is_a_number(name: str) -> None:
    program = lambda x: (x * 2, PROGRAMS[name](x))
    fast = anyshape.compile(program)
    for rows in (3, 4, 3, 1):
        x = torch.ones(rows)
        ours, eager = outcome(fast, x), outcome(program, x)
        if isinstance(eager, tuple):
            assert torch.equal(ours[0], eager[0])
            ours, eager = ours[1], eager[1]
        assert torch.equal(ours, eager) if isinstance(eager, Tensor) else ours == eager
    assert fast.stats().internal_errors == 0
