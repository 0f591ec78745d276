"""In-place operators beside sizes, and lazy functions of the standard library: the object stays the
same one, errors are C's own and come when C's come."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.capture.by_reference import compiled


def _said(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error).__name__, str(error)


def _items(values: Any) -> Iterator[Any]:
    yield from values


def _same(fn: Callable[..., Any]) -> None:
    """The same natively and compiled, for numbers that are constants and for those that are not."""
    fast = compiled(fn)
    for count in (1, 2, 4):
        given = torch.ones(count), count + 1
        assert fast(*given) == fn(*given)


def test_a_list_times_a_size_in_place_is_the_list() -> None:
    def program(x: Any, n: Any) -> Any:
        values, text, queue = [n], bytearray(b"a"), deque([1])
        others = values, text, queue
        values *= x.shape[0]
        text *= x.shape[0]
        queue *= n
        return [a is b for a, b in zip(others, (values, text, queue), strict=True)], others

    _same(program)


def test_operators_that_refuse_sizes_name_themselves() -> None:
    def program(x: Any, n: Any) -> Any:
        def union(a: Any, b: Any) -> None:
            a |= b

        def added(a: Any, b: Any) -> None:
            a += b

        size = x.shape[0]
        pairs = [({}, size), (n, {}), ([], n), (size, []), ("a", n), (n, "a"), ((), size)]
        return [_said(lambda a=a, b=b: do(a, b)) for a, b in pairs for do in (union, added)]

    _same(program)


def test_what_cannot_be_deleted_from_is_refused_as_c_refuses_it() -> None:
    def program(x: Any, n: Any) -> Any:
        def without(a: Any) -> None:
            del a[0]

        return [_said(lambda a=a: without(a)) for a in (None, 3, (1,), "a", iter([]), object())]

    _same(program)


def test_arguments_of_lazy_functions_are_refused_when_they_are_called() -> None:
    def program(x: Any, n: Any) -> Any:
        calls = [
            lambda: itertools.islice(_items([n])),
            lambda: itertools.islice(_items([n]), "a") and 1,
            lambda: itertools.islice(_items([n]), -1) and 1,
            lambda: itertools.zip_longest(_items([n]), fill=1),
            lambda: itertools.product(_items([n]), repeat="a"),
            lambda: itertools.product(3, _items([n])),
            lambda: itertools.starmap(len),
            lambda: itertools.chain(3) and 1,
        ]
        return [_said(call) for call in calls]

    _same(program)


def test_groups_are_taken_as_they_are_asked_for() -> None:
    def program(x: Any, n: Any) -> Any:
        log: list[Any] = []
        values = (log.append(v) or v // 2 for v in range(6 + n))
        for key, group in itertools.groupby(values, lambda v: v % 3):
            log.append(("key", key))
            log.extend(itertools.islice(group, 1))
        parts = [group for _, group in itertools.groupby([n, n, x.shape[0]])]
        return log, [list(part) for part in parts]

    _same(program)


def test_what_writes_items_says_itself_that_it_lacks_arguments() -> None:
    def program(x: Any, n: Any) -> Any:
        values, text = [n], bytearray(b"a")
        told = []
        for write in (values.__setitem__, text.__setitem__, values.__delitem__, text.__delitem__):
            told.append(_said(write))
        return told, values, text

    _same(program)
