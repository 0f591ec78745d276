"""Operators between a number of the call and one of another class: never decided without it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import anyshape
from anyshape.errors import GraphBreakError

SIZES = (3, 5, 4, 3)
OTHERS = (3 + 0j, 3 + 1j, Decimal(3), Fraction(3), np.complex64(3), np.array([1, 2, 3]), "3", [3])
PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "equal": lambda n, item, c: (n == c, item == c, (n > 3) == c),
    "the other one first": lambda n, item, c: (c == n, c == item, c == (n > 3)),
    "unequal": lambda n, item, c: (n != c, c != item),
    "in a list": lambda n, item, c: (n in [c], c in [item]),
    "less": lambda n, item, c: n < c,
    "less, the other one first": lambda n, item, c: c < n,
    "a product": lambda n, item, c: (n * c, c * n),
    "a sum": lambda n, item, c: n + c,
    "a sum of floats": lambda n, item, c: item + c,
    "divmod": lambda n, item, c: divmod(n, c),
}


def outcome(function: Callable[..., Any], *args: Any) -> str:
    try:
        return repr(function(*args))
    except (TypeError, ValueError) as error:
        return repr(error)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_it_is_what_python_says(other: Any, name: str, fullgraph: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        return PROGRAMS[name](x.shape[0], x.sum().item(), other), x + 1

    fast = anyshape.compile(program, fullgraph=fullgraph)
    for n in SIZES:
        x = torch.full((n,), 3 / n)
        expected = outcome(program, x)
        try:
            assert outcome(fast, x) == expected
        except GraphBreakError:
            assert fullgraph


def test_a_complex_number_is_compared_in_the_graph() -> None:
    def program(x: torch.Tensor, c: complex) -> Any:
        return x.shape[0] == c, c != x.shape[0], x + 1

    fast = anyshape.compile(program, fullgraph=True)
    for n in SIZES:
        x = torch.zeros(n)
        assert fast(x, 3 + 0j)[:2] == program(x, 3 + 0j)[:2]
    assert fast.stats().specializations == 1
