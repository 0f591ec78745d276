"""Kinds of objects crossed with what finds them by which object they are: what was found under one
says nothing of another.
"""

from __future__ import annotations

import collections
import functools
import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.capture.by_reference import compiled, same


class Thing:
    def method(self) -> None:
        """Bound anew at each read."""


class Row(list[int]):
    """Rows are equal, their methods are not."""

    def method(self) -> None:
        """Bound anew at each read."""


class Pair(tuple[int, int]):
    """Pairs are equal, their methods are not."""

    def method(self) -> None:
        """Bound anew at each read."""


def local() -> Callable[..., Any]:
    kept = [0]

    def scaled(x: Any, by: Any = kept) -> Any:
        return x * by[0]

    return scaled


MADE: dict[str, Callable[[], Any]] = {
    "instance": Thing,
    "object": object,
    "function": local,
    "class": lambda: type("Made", (), {}),
    "method": lambda: Thing().method,
    "method of a list": lambda: Row().method,
    "method of a tuple": lambda: Pair((1, 2)).method,
    "slot of C": lambda: Thing().__str__,
    "method of C": lambda: [0].append,
    "method of C of a tuple": lambda: tuple([1, 2]).count,
    "module": torch.nn.Identity,
    "partial": lambda: functools.partial(local()),
    "tuple": lambda: (1, (Thing(), "x")),
    "frozenset": lambda: frozenset([Thing()]),
}


def by_key(x: Tensor, h: Any, table: Any, keys: Any, order: Any) -> Any:
    known = h in table, h in keys, table[h] if h in table else 0, h in table.keys()
    made = {(k, 1): v for k, v in table.items()}.get((h, 1), 8)
    twin = types.MappingProxyType(table).get(h, 3), collections.OrderedDict(table).get(h, 2)
    return x * table.get(h, 7), known, made, twin, dict(table).setdefault(h, 4)


def one_by_one(x: Tensor, h: Any, table: Any, keys: Any, order: Any) -> Any:
    found = h in order, order.count(h), h in tuple(order), collections.deque(order).count(h)
    position = order.index(h) if h in order else -1
    return x + position, found, [v for k, v in table.items() if k is h], order[0] == h


def in_sets(x: Tensor, h: Any, table: Any, keys: Any, order: Any) -> Any:
    sizes = (
        len({h} & table.keys()),
        len(keys | {h}),
        len({*order, h}),
        len(dict.fromkeys([h, *order])),
    )
    return x + len(keys - {h}), sizes, keys.isdisjoint([h]), order[:1] == [h], keys == {h}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [by_key, one_by_one, in_sets])
def test_what_is_found_is_that_of_the_object(program: Callable[..., Any]) -> None:
    for make in MADE.values():
        a, b, other = make(), make(), make()
        table, keys, order = {a: 3, b: 5}, {b}, [a, b]
        fast = compiled(lambda x, h: program(x, h, table, keys, order), fullgraph=False)
        x = torch.rand(2)
        for h in (a, b, other, a, b):
            for again in (h, bound_again(h)):
                wanted = program(x, again, table, keys, order)
                same(fast(x, again), wanted)


def bound_again(method: Any) -> Any:
    """The method anew, as each read makes it; anything else as it is."""
    owner = getattr(method, "__self__", None)
    return method if owner is None else getattr(owner, method.__name__)


METHODS_OF_NUMBERS = [(3).__add__, (4).__add__, (3).__sub__, (1000).__add__, int("1000").__add__]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"break_every": 1}], ids=str)
def test_methods_of_numbers_are_told_from_each_other(options: dict[str, int]) -> None:
    table, order = {METHODS_OF_NUMBERS[0]: 1}, METHODS_OF_NUMBERS[::3]

    def program(x: Tensor, h: Any) -> Any:
        held = [h]
        return x + len({**table, h: 2}), h in table, len({h, *order}), h is held[0], order.count(h)

    fast = compiled(program, fullgraph=False, **options)
    for h in METHODS_OF_NUMBERS * 2:
        same(fast(torch.ones(1), h), program(torch.ones(1), h))


def test_those_that_are_not_found_are_one_specialization() -> None:
    kept, table, names = [Thing(), Thing()], {}, {}
    table.update(dict.fromkeys(kept, 2))

    def program(x: Tensor, h: Any) -> Any:
        seen = {h}
        names[0] = h in seen
        return x * table.get(h, 7), h in table, h in kept

    fast = compiled(program)
    x = torch.rand(2)
    for h in [Thing() for _ in range(6)]:
        same(fast(x, h), program(x, h))
    assert fast.stats().specializations == 1
    for h in kept:
        same(fast(x, h), program(x, h))


BOUND_TO_NO_OBJECT: list[Any] = [None.__repr__, object().__hash__, (7).__repr__, math.__repr__]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", BOUND_TO_NO_OBJECT, ids=["None", "object", "int", "module"])
def test_methods_of_none_and_of_modules_are_told_from_others(first: Any) -> None:
    def program(x: Tensor, m: Any) -> Any:
        names = {None.__repr__: 1, math.__repr__: 2}
        return x + 1, m == None.__repr__, names.get(m), m in {None.__repr__}

    fast = compiled(program, fullgraph=False)
    for m in [first, *BOUND_TO_NO_OBJECT]:
        same(fast(torch.ones(1), m), program(torch.ones(1), m))


@pytest.mark.parametrize("numbers", [(3, 4), (1.5, 2.5)], ids=repr)
def test_a_method_of_a_number_stays_one_of_c(numbers: Any) -> None:
    def program(x: Tensor, m: Any) -> Any:
        return x + 1, type(m).__name__, hasattr(m, "__func__"), m.__self__, m()

    fast = compiled(program)
    for number in numbers:
        m = number.as_integer_ratio
        same(fast(torch.ones(1), m), program(torch.ones(1), m))
