"""Two objects handed in that are one in a later call: what was seen of two does not hold of one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.capture.by_reference import compiled, same


class Thing:
    def __init__(self, value: int) -> None:
        self.value = value


def written(x: Tensor, a: Any, b: Any) -> Any:
    a.append(5)
    return x + len(b)


def set_in(x: Tensor, a: Any, b: Any) -> Any:
    a.value = 7
    return x + b.value


def text() -> str:
    return "".join(["he", "llo"])


def number() -> int:
    return int("1000")


def memo(x: Tensor, a: Any, b: Any) -> Any:
    return x + {id(a): 1}.get(id(b), 2)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "is": (lambda x, a, b: x + 1 if a is b else x - 1, lambda: Thing(1)),
    "is of lists": (lambda x, a, b: x + 1 if a is b else x - 1, lambda: [1]),
    "is of tensors": (lambda x, a, b: x + 1 if a is not b else x - 1, lambda: torch.ones(2)),
    "operator.is_": (lambda x, a, b: x + operator.is_(a, b), lambda: Thing(1)),
    "equality": (lambda x, a, b: x + 1 if a == b else x - 1, lambda: Thing(1)),
    "membership": (lambda x, a, b: x + (a in [b]) + (a in {b}), lambda: Thing(1)),
    "identity": (lambda x, a, b: x + (id(a) == id(b)), lambda: torch.ones(2)),
    "append": (written, lambda: [1]),
    "attribute": (set_in, lambda: Thing(1)),
}

VALUES: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "is of texts": (lambda x, a, b: x + 1 if a is b else x - 1, text),
    "is not of numbers": (lambda x, a, b: x + 1 if a is not b else x - 1, number),
    "operator.is_ of texts": (lambda x, a, b: x + operator.is_(a, b), text),
    "identity of texts": (lambda x, a, b: x + (id(a) == id(b)), text),
    "a memo of texts": (memo, text),
    "is of tuples": (lambda x, a, b: x + 1 if a is b else x - 1, lambda: (number(), 2)),
    "is of what lies in tuples": (
        lambda x, a, b: x + 1 if a[0] is b[0] else x - 1,
        lambda: (number(), 2),
    ),
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_two_equal_values_may_be_one_object(name: str, first: bool) -> None:
    """Where nobody asks which object a value is, any equal one will do."""
    program, make = VALUES[name]
    fast, a, b = compiled(program), make(), make()
    x = torch.ones(2)
    for one in (first, not first, first):
        same(fast(x, a, a if one else b), program(x, a, a if one else b))
    assert fast.stats().specializations == 2


def test_a_value_that_nobody_asks_about_may_be_another_object() -> None:
    thing = Thing(1)
    fast = compiled(lambda x, a: x + 1 if a is not None and a in [thing, 1000] else x)
    for _ in range(3):
        same(fast(torch.ones(2), number()), torch.ones(2) + 1)
    assert fast.stats().specializations == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_arguments_that_become_one(name: str) -> None:
    program, make = PROGRAMS[name]
    fast = compiled(program)
    x = torch.ones(2)
    for one in (False, True, False, True, True):
        found, expected = make(), make()
        same(
            fast(x, found, found if one else make()),
            program(x, expected, expected if one else make()),
        )
    assert fast.stats().specializations == 2


def test_an_argument_that_is_an_object_of_the_program() -> None:
    known = Thing(1)
    fast = compiled(lambda x, a: x + 1 if a is known else x - 1)
    x = torch.ones(2)
    for thing in (Thing(2), known, Thing(1), known):
        same(fast(x, thing), x + 1 if thing is known else x - 1)


def test_two_tensors_that_are_only_read_may_be_one() -> None:
    fast = compiled(lambda x, y: x * y)
    x = torch.ones(2)
    for y in (torch.ones(2), x):
        same(fast(x, y), x * y)
    assert fast.stats().specializations == 1


@pytest.mark.filterwarnings("ignore")
def test_what_is_found_by_an_object_is_found_by_this_one() -> None:
    kept, other = Thing(1), Thing(2)
    table, names = {kept: 3, other: 5}, frozenset([other])

    def program(x: Tensor, key: Any) -> Any:
        return x * table.get(key, 7), key in names, table[key] if key in table else 0

    fast = compiled(program)
    x = torch.rand(2)
    for key in (kept, other, Thing(3), kept, other):
        same(fast(x, key), program(x, key))
