"""An iterator over a mapping or a set that lives across a break stays one over the same container:
it sees what is written there later, and says that the container has changed its size.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

ITERATORS: dict[str, Callable[[Any], Any]] = {
    "keys": lambda d: iter(d),
    "values": lambda d: iter(d.values()),
    "items": lambda d: iter(d.items()),
    "keys backwards": lambda d: reversed(d),
    "values backwards": lambda d: reversed(d.values()),
    "items backwards": lambda d: reversed(d.items()),
    "in enumerate": lambda d: enumerate(d.values()),
}


def _said(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error).__name__, str(error)


def _write(d: Any, change: str) -> None:
    if change == "add":
        d["new"] = 5
    elif change == "set":
        for key in d:
            d[key] = 9
    elif change == "delete":
        del d["b"]


def over_an_outside_mapping(x: Any, d: Any, way: str, change: str) -> Any:
    it = ITERATORS[way](d)
    y = x + 1
    first = next(it)
    os.getpid()
    _write(d, change)
    left = [_said(lambda: next(it)) for _ in range(4)]
    return first, type(it).__name__, left, y


def over_a_mapping_made_inside(x: Any, d: Any, way: str, change: str) -> Any:
    return over_an_outside_mapping(x, d.copy(), way, change)


def over_a_mapping_written_before(x: Any, d: Any, way: str, change: str) -> Any:
    d["c"] = 4
    del d["a"]
    d["a"] = 7
    return over_an_outside_mapping(x, d, way, change)


def over_a_set(x: Any, d: Any, way: str, change: str) -> Any:
    members = set(d)
    it = iter(members)
    y = x + 1
    first = next(it)
    os.getpid()
    if change == "add":
        members.add("new")
    elif change == "delete":
        members.discard("b")
    left = [_said(lambda: next(it)) for _ in range(4)]
    return first, type(it).__name__, left, y


@pytest.mark.parametrize("change", ["nothing", "add", "set", "delete"])
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize(
    "program",
    [
        over_an_outside_mapping,
        over_a_mapping_made_inside,
        over_a_mapping_written_before,
        over_a_set,
    ],
)
def test_an_iterator_sees_what_is_written_after_a_break(
    program: Callable[..., Any], kind: Any, change: str
) -> None:
    x = torch.ones(2)
    for way in ITERATORS:
        fast = Compiled(program, Options(), ByReference)
        for _ in range(2):
            wanted = program(x, kind(a=1, b=2, c=3), way, change)
            found = fast(x, kind(a=1, b=2, c=3), way, change)
            assert repr(found) == repr(wanted), way
        assert not fast.mistakes


def exhausted(x: Any, d: Any) -> Any:
    it = iter(d.values())
    list(it)
    y = x + 1
    os.getpid()
    d["new"] = 5
    return y, type(it).__name__, list(it)


def held_by_what_it_goes_over(x: Any, d: Any) -> Any:
    d = dict(d)
    d["a"] = iter(d)
    y = x + 1
    os.getpid()
    return y, list(d["a"])


def put_outside_before_a_write(x: Any, d: Any) -> Any:
    held: list[Any] = []
    KEPT.append(iter(d))
    y = x + 1
    d["new"] = 5
    os.getpid()
    return y, _said(lambda: next(KEPT.pop())), held


def branched(x: Any, d: Any) -> Any:
    """A branch on sizes runs both sides, each with an iterator of its own."""
    it = iter(d.values())
    next(it)
    y = x * 2 if x.shape[0] > 3 else x * 3
    for key in d:
        d[key] = 9
    return y, type(it).__name__, list(it)


KEPT: list[Any] = []


@pytest.mark.parametrize(
    "program", [exhausted, held_by_what_it_goes_over, put_outside_before_a_write, branched]
)
def test_an_iterator_is_that_of_its_container(program: Callable[..., Any]) -> None:
    fast = Compiled(program, Options(), ByReference)
    for size in (2, 5):
        x = torch.ones(size)
        wanted = program(x, dict(a=1, b=2, c=3))
        assert repr(fast(x, dict(a=1, b=2, c=3))) == repr(wanted)
    assert not fast.mistakes


class Plain:
    pass


def class_body_with_a_break(x: Any, o: Any) -> Any:
    class Made:
        os.getpid()

        def own(self) -> Any:
            return __class__  # type: ignore[name-defined]

    return x + 1


def class_body_with_a_break_that_goes_on(x: Any, o: Any) -> Any:
    class Made:
        os.getpid()

        def own(self) -> Any:
            return __class__  # type: ignore[name-defined]

    y = x + 1
    os.getpid()
    return y, Made().own() is Made


@pytest.mark.parametrize("program", [class_body_with_a_break, class_body_with_a_break_that_goes_on])
@pytest.mark.parametrize("breaks", [{}, {"break_every": 1}, {"break_every": 3}])
def test_a_class_is_in_its_cell_where_its_body_has_a_break(
    program: Callable[..., Any], breaks: Any
) -> None:
    """The second run of the segment that makes the class finds an empty cell, as the first did."""
    fast = Compiled(program, Options(**breaks), ByReference)
    for size in (2, 3, 4):
        x = torch.ones(size)
        assert repr(fast(x, Plain())) == repr(program(x, Plain()))
    assert not fast.mistakes


def cell_written_and_read(x: Any, put: Callable[[Any], Any]) -> Any:
    put(x.shape[0])
    return x + 1, put.__closure__[0].cell_contents


def test_a_cell_from_outside_holds_what_was_written_to_it() -> None:
    held: Any = None

    def put(value: Any) -> None:
        nonlocal held
        held = value

    fast = Compiled(cell_written_and_read, Options(fullgraph=True), ByReference)
    for size in (2, 3):
        assert fast(torch.ones(size), put)[1] == size == held


@pytest.mark.parametrize("way", [{"fullgraph": True}, {}, {"options": {"break_every": 1}}])
def test_the_next_of_an_iterator_leaves_with_it(way: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        following = iter(x).__next__
        return following, x * 2

    fast = anyshape.compile(program, **way)
    for first in range(3):
        x = torch.arange(3.0) + first
        following, _ = fast(x)
        assert [following().item() for _ in x] == x.tolist()
        with pytest.raises(StopIteration):
            following()
