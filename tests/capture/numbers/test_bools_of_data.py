"""A bool that data decides is 0 or 1 where the program calculates with it: one graph, one
specialization, whatever the data is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


def differs(x: Tensor) -> bool:
    return bool(x[0] != x[1])


def counted(x: Tensor) -> Any:
    count = 0
    for row in (x[0] > 1, x[1] > 1, x[2] > 1):
        count += bool(row)
    return x[:count].sum(), count


def edited(x: Tensor) -> Any:
    """One row of an edit distance."""
    row = [0, 1, 2]
    for i in range(3):
        row[1] = min(row[0] + 1, row[1], row[2] + int(x[i] > 1))
        row[0], row[2] = row[1], max(row[2], row[0])
    return x * row[1], row


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "added": lambda x: x * (1 + int(x[0] != x[1])),
    "of two, the smaller": lambda x: x * min(2, int(x[0] != x[1]) + 1),
    "a branch on it": lambda x: x * (int(differs(x)) if int(differs(x)) < 1 else 3),
    "signs": lambda x: (x * -differs(x), x + ~differs(x), +differs(x), abs(differs(x))),
    "converted": lambda x: (float(differs(x)), round(differs(x)), (x[0] > 1).item() + 1),
    "two operands": lambda x: (differs(x) + 2, differs(x) * 1.5, differs(x) ** 2, 3 - differs(x)),
    "quotients": lambda x: divmod(differs(x) + 3, 2),
    "a sum": lambda x: sum(bool(v > 1) for v in x),
    "a size": lambda x: (torch.zeros(int(x[0] > 1), 2), x.new_ones(int(x.any()) + 1)),
    "an index": lambda x: x[int(x[0] > x[1])],
    "counted": counted,
    "edited": edited,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_a_number_in_one_graph(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for numbers in ([3, 1, 4], [0, 0, 0], [1, 1, 9], [2, 5, 2]):
        x = torch.tensor(numbers)
        given, expected = fast(x), program(x)
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
        assert repr(given) == repr(expected)
    assert fast.stats().specializations == 1


def test_it_is_known_to_be_0_or_1() -> None:
    def program(x: Tensor) -> Tensor:
        row = x.new_zeros(2)
        return row[int(x[0] > 1) :].expand(3, -1) if int(x[0] > 1) <= 1 else x

    fast = anyshape.compile(program, fullgraph=True)
    for first in (0.0, 2.0):
        x = torch.tensor([first, 1.0])
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1
