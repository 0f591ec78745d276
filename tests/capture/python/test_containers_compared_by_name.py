"""`super().__eq__(other)` and its like in subclasses of `list`, `tuple` and `dict`: the methods of
the subclass are not asked, what lies in the containers is. And what resembles it: orderings that
are refused, functions of a C module that was imported anew, classes that cannot be hashed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Log = list[Any]


class Table(dict[Any, Any]):
    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return super().__ne__(other)

    __hash__ = None  # type: ignore[assignment]


class Row(list[Any]):
    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __lt__(self, other: list[Any]) -> bool:
        return list.__lt__(self, other)

    __hash__ = None  # type: ignore[assignment]


class Pair(tuple[Any, ...]):
    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    def __hash__(self) -> int:
        return tuple.__hash__(self)


class Asked:
    def __init__(self, log: Log, value: int) -> None:
        self.log, self.value = log, value

    def __eq__(self, other: object) -> bool:
        self.log.append(("eq", self.value))
        return isinstance(other, Asked) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class Unordered:
    def __lt__(self, other: object) -> Any:
        return NotImplemented


def tables(log: Log) -> Any:
    one, two = Table(a=1, b=[2]), Table(a=1, b=[2])
    return one == two, one != two, one == {"a": 1}, dict.__eq__(one, [1]), one == 3


def tables_of_what_is_asked(log: Log) -> Any:
    table = Table()
    table["a"], table["b"] = Asked(log, 1), Asked(log, 2)
    return table == {"a": Asked(log, 1), "b": Asked(log, 3)}


def rows(log: Log) -> Any:
    row = Row()
    row.append(Asked(log, 1))
    return Row([1, 2]) == Row([1, 2]), Row([1]) < [2], row == [Asked(log, 1)], row == 3


def pairs(log: Log) -> Any:
    return Pair((1, 2)) == (1, 2), Pair((1,)) == Pair((2,)), Pair((1,)) == [1]


def refused(log: Log) -> Any:
    said = []
    for other in (3, None, "a", [], Unordered()):
        try:
            said.append(Unordered() < other)
        except TypeError as error:
            said.append(str(error))
    return said


PROGRAMS = [tables, tables_of_what_is_asked, rows, pairs, refused]


def both(program: Callable[[Log], Any], **options: Any) -> None:
    def compiled(x: Tensor, log: Log) -> Any:
        y = x + 1
        found = program(log)
        return y * 2, found

    fast: Any = anyshape.compile(compiled, **options)
    for _ in range(2):
        wanted: Log = []
        found: Log = []
        assert fast(torch.ones(3), found)[1] == program(wanted)
        assert found == wanted
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_one_graph(program: Callable[[Log], Any]) -> None:
    both(program, fullgraph=True)


def test_a_module_of_c_that_was_imported_anew_is_known() -> None:
    known = sys.modules.pop("_heapq")
    try:
        again = importlib.import_module("_heapq")
    finally:
        sys.modules["_heapq"] = known
    assert again.heapify is not known.heapify

    def program(log: Log) -> Any:
        heap = [3, 1, 2]
        again.heapify(heap)
        return again.heappop(heap), heap

    both(program, fullgraph=True)


class Meta(type):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


class OfMeta(metaclass=Meta):
    value = 2


def test_a_class_that_cannot_be_hashed_is_a_break_and_no_mistake_of_ours() -> None:
    def made_inside(log: Log) -> Any:
        class Inside(metaclass=Meta):
            value = 3

        return Inside().value, isinstance(Inside(), Inside), type(Inside()).__name__

    def from_outside(log: Log) -> Any:
        made = OfMeta()
        made.name = 1  # type: ignore[attr-defined]
        return made.value, made.name, isinstance(made, OfMeta)  # type: ignore[attr-defined]

    both(made_inside)
    both(from_outside)

    def handed_in(x: Tensor, made: OfMeta) -> Tensor:
        return x + made.value

    fast = anyshape.compile(handed_in)
    for _ in range(2):
        assert torch.equal(fast(torch.ones(2), OfMeta()), torch.ones(2) + 2)
    assert fast.stats().internal_errors == 0


def entries_come(made: list[Any]) -> None:
    table = {"a": 1, "b": 2}

    class Adds:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            table["c"] = 3
            return True

    made.append(dict.__eq__(table, {"a": Adds(), "b": Adds()}))
    made.append(table == {"a": Adds(), "b": Adds(), "c": 3})


def entries_go(made: list[Any]) -> None:
    table: dict[str, Any] = {}

    class Clears:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            table.clear()
            return True

    table["a"], table["b"] = Clears(), Clears()
    made.append(dict.__eq__(table, {"a": 1, "b": 2}))


@pytest.mark.parametrize("program", [entries_come, entries_go])
def test_a_table_that_changes_while_it_is_compared(program: Any) -> None:
    """C goes on by positions, and raises nothing."""
    ours, natives = [], []  # type: ignore[var-annotated]
    anyshape.compile(program)(ours)
    program(natives)
    assert ours == natives
