"""Keys of the program's classes are asked by `__hash__` and `__eq__` as often as CPython asks them, in
the order in which it does: capture, guards and what explains a failed guard look up nothing among
them. Each program runs natively and compiled, and every question is written down.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape.errors import GraphBreakError

ASKED: list[tuple[Any, ...]] = []


class Key:
    """All have the hash of 5."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def __eq__(self, other: Any) -> bool:
        ASKED.append(("eq", self.n, other if type(other) in (int, str) else other.n))
        return type(other) is type(self) and bool(self.n == other.n)

    def __hash__(self) -> int:
        ASKED.append(("hash", self.n))
        return hash(5)


class Name(Key):
    """Has the hash of a text, which it does not equal."""

    def __hash__(self) -> int:
        ASKED.append(("hash", self.n))
        return hash(self.n)


class Held:
    attr: int


def item(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    return x + d[k]


def get(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    return x + d.get(5, 1)


def searched(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    return x + (k in d) + (k in s) + (5 in s) + (5 in d) + (k in frozenset(s))


def stored(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    d[5] = 7
    d[k] = 3
    return x + d[5] + d[k]


def added(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    s.add(5)
    s.discard(k)
    return x + len(s | {5})


def taken(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    return x + d.pop(5, 2) + d.setdefault(k, 5) + d.pop(k)


def iterated(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    for key in d:
        x = x + d[key]
    return x


def read(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    return x + o.attr + o.__dict__["attr"] + hasattr(o, "attr") + getattr(o, "other", 2)


def set_and_read(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    o.attr = 3
    return x + o.attr


def deleted(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    del o.attr
    return x + 1


def copied(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    e = {**d}
    e[5] = 3
    return x + e[k] + OrderedDict(d)[k] + Counter([k, 5, k])[k]


def made(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    e, f = {k: 1, 5: 2}, {k, 5}
    return x + e[k] + e[5] + (5 in f) + (k in f)


def compared(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    return x + (d == {k: 2}) + (s == {k, 5})


def over_a_break(x: Any, d: Any, s: Any, k: Any, o: Any) -> Any:
    a = d[k]
    print(end="")
    x = x + a
    print(end="")
    d[5] = 9
    return x + d[5] + d[k]


PROGRAMS = [
    item,
    get,
    searched,
    stored,
    added,
    taken,
    iterated,
    read,
    set_and_read,
    deleted,
    copied,
]
PROGRAMS += [made, compared, over_a_break]


def arguments(call: int) -> tuple[Any, ...]:
    first, second = Key(1), Key(2)
    o = Held()
    o.__dict__[Name("attr")] = 9  # type: ignore[index]
    o.attr = 4
    key = second if call % 2 else Key(1)
    return {first: 2, second: 3}, {first, second}, key, o


def later_arguments(call: int) -> tuple[Any, ...]:
    """Keys of the program's come in a later call only, which a guard of the first must not ask."""
    if call >= 2:
        return {Key(7): 1, 5: 3 + call}, {Key(7), 5}, 5, Held()
    return {1: 2, 5: 3}, {1, 5}, 5, Held()


Given = Callable[[int], tuple[Any, ...]]


def run(fn: Callable[..., Any], given: Given) -> list[Any]:
    found = []
    for call in range(5):
        args = given(call)
        ASKED.clear()
        result = fn(torch.ones(2), *args)
        found.append((result.tolist(), [*ASKED]))
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_keys_are_asked_as_natively(program: Callable[..., Any], fullgraph: bool) -> None:
    wanted = run(program, arguments)
    try:
        assert run(anyshape.compile(program, fullgraph=fullgraph), arguments) == wanted
    except GraphBreakError:
        assert fullgraph


@pytest.mark.parametrize("program", [item, get, searched], ids=lambda program: program.__name__)
def test_guards_do_not_ask_keys_that_came_later(program: Callable[..., Any]) -> None:
    wanted = run(program, later_arguments)
    assert run(anyshape.compile(program), later_arguments) == wanted


def test_a_failed_guard_is_explained_without_asking_them() -> None:
    fast = anyshape.compile(get)
    for call in range(3):
        fast(torch.ones(2), *later_arguments(call))
    ASKED.clear()
    assert str(fast.recompiles())
    assert str(fast.guards())
    assert not ASKED
