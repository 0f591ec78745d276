"""What C code asks of an iterable of the program's: `__iter__`, `__len__`, how many elements, in which
order; the same natively, in one graph and with a break after each instruction.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

LOG: list[str] = []


class Sized:
    """It notes what it is asked."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        LOG.append("len")
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        LOG.append("iter")
        for item in self.items:
            LOG.append(f"gives {item}")
            yield item


class Counting(Sized):
    """Its own iterator, which is asked for its length as well."""

    def __iter__(self) -> Any:
        LOG.append("iter")
        return self

    def __next__(self) -> Any:
        LOG.append("next")
        if not self.items:
            raise StopIteration
        return self.items.pop()


class Handing(Sized):
    """Its iterator is another object, that has a length."""

    def __iter__(self) -> Any:
        LOG.append("hands")
        return Counting(self.items)


class Ready(Counting):
    """It says how much is left."""

    __len__ = None  # type: ignore[assignment]

    def __length_hint__(self) -> int:
        LOG.append("hint")
        return 2


def _set(target: Any, key: Any, value: Any) -> Any:
    target[key] = value
    return target


ASKED: dict[str, Callable[[Any], Any]] = {
    **{
        cls.__name__: cls for cls in (list, tuple, set, frozenset, deque, bytes, bytearray, Counter)
    },
    **{fn.__name__: fn for fn in (sorted, sum, max, min, any, all, math.prod, dict.fromkeys)},
    "displays": lambda o: ([*o], (*o,), {*o}, [v for v in o]),
    "calls": lambda o: (lambda *values: values)(*o),
    "unpacking": lambda o: (lambda a, *b: (a, b))(*o),
    "a slice": lambda o: _set([1, 2], slice(0, 1), o),
    "a stepped slice": lambda o: _set([1, 2, 3, 4, 5], slice(0, 5, 2), o),
    "bytes of a slice": lambda o: _set(bytearray(b"abc"), slice(0, 2), o),
    "join": lambda o: [",".join(map(str, o)), ",".join(Sized(["a", "b"]))],
    "extend": lambda o: [[].extend(o), deque().extend(o), deque().extendleft(o)],
    "in place": lambda o: ([1].__iadd__(o), deque([1]).__iadd__(o)),
    "update": lambda o: [set().update(o), {1, 2}.difference_update(o)],
    "intersection": lambda o: ({1}.intersection(o), {1, 2}.intersection(o, o), {9}.intersection(o)),
    "set questions": lambda o: (
        {1}.union(o),
        {1}.issuperset(o),
        {7}.isdisjoint(o),
        {1}.issubset(o),
    ),
    "lazy": lambda o: (list(zip(o, o)), list(map(abs, o)), list(enumerate(o)), 2 in o),
    "heapq": lambda o: (heapq.nlargest(2, o), heapq.nsmallest(1, o)),
    "pairs": lambda o: (dict([Sized([1, 2])]), {}.update([Sized(["k", "v"])])),
    "truth": lambda o: (bool(o), not o, 1 if o else 2),
}


def asked_by(x: Any, name: str) -> Any:
    LOG.append(name)
    result = ASKED[name](Sized([1, 2, 3]))
    return x + 1, result


def unpacked(x: Any, name: str) -> Any:
    a, b, c = Sized([1, 2, 3])
    d, *e = Sized([1, 2, 3])
    return x + 1, (a, b, c, d, e)


def asked_of_an_iterator(x: Any, name: str, kind: Any) -> Any:
    try:
        return x + 1, ASKED[name](kind([1, 2, 3]))
    except Exception as error:
        return x + 1, repr(error)


def unpacked_iterators(x: Any, count: str, kind: Any) -> Any:
    LOG.append(count)
    try:
        if count == "rest":
            a, *b = kind([1, 2, 3])
            return x, (a, b)
        if count == "first":
            *b, a = kind([1, 2, 3])
            return x, (a, b)
        a, b, *c, d, e = kind([1, 2, 3])
        return x, (a, b, c, d, e)
    except ValueError as error:
        return x, str(error)


def noted(call: Callable[..., Any], name: str) -> tuple[list[str], str]:
    LOG.clear()
    _, result = call(torch.ones(2), name)
    return list(LOG), repr(result)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("name", ASKED)
def test_iterables_are_asked_what_c_asks(name: str, every: int) -> None:
    fast = Compiled(asked_by, Options(break_every=every), ByReference)
    for _ in range(2):
        assert noted(fast, name) == noted(asked_by, name)
    assert not fast.mistakes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1])
def test_unpacking_asks_what_c_asks(every: int) -> None:
    fast = Compiled(unpacked, Options(break_every=every), ByReference)
    assert noted(fast, "") == noted(unpacked, "")


KINDS = (Counting, Handing, Ready)


def _asked() -> list[Any]:
    """Each kind in one graph, and one kind, in turn, with breaks: `make test-all` takes all."""
    return [
        pytest.param(name, kind, every, marks=() if taken else pytest.mark.slow)
        for number, name in enumerate(ASKED)
        for kind in KINDS
        for every in (0, 1)
        for taken in [not every or kind is KINDS[number % len(KINDS)]]
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "every"), _asked())
def test_iterators_are_asked_what_c_asks(name: str, kind: Any, every: int) -> None:
    def noted_of(call: Callable[..., Any]) -> tuple[list[str], str]:
        return noted(lambda x, name: call(x, name, kind), name)

    fast = Compiled(asked_of_an_iterator, Options(break_every=every), ByReference)
    assert noted_of(fast) == noted_of(asked_of_an_iterator)
    assert not fast.mistakes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", ["rest", "first", "too many"])
def test_unpacking_asks_iterators_what_c_asks(count: str, kind: Any, every: int) -> None:
    def noted_of(call: Callable[..., Any]) -> tuple[list[str], str]:
        return noted(lambda x, name: call(x, name, kind), count)

    fast = Compiled(unpacked_iterators, Options(break_every=every), ByReference)
    assert noted_of(fast) == noted_of(unpacked_iterators)
    assert not fast.mistakes


class Bound:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> Any:
        LOG.append(f"index {self.value!r}")
        return self.value


def stored(x: Any, what: str) -> Any:
    """The order of what is asked of bounds and of items."""
    found: list[Any] = []
    for target in ([1, 2, 3, 4, 5], bytearray(b"abcde")):
        for parts in (
            (Bound(1), Bound(3), None),
            (Bound(0), 5, Bound(2)),
            (Bound(1), 2, Bound(0)),
            (Bound("a"), 2, 1),
            (Bound(-2), "b", Bound(-1)),
            (Bound(9), Bound(-9), 1),
            (5, 2, None),
        ):
            try:
                if what == "taken":
                    found.append(target[slice(*parts)])
                else:
                    target[slice(*parts)] = Counting([7, 8, 300 if what == "wrong" else 9])
            except Exception as error:
                found.append(repr(error))
            found.append(list(target))
    return x + 1, found


def growing(items: list[Any]) -> Iterator[Any]:
    for n in range(3):
        items.append(n)
        yield n


def stored_while_it_grows(x: Any, what: str) -> Any:
    items = [1, 2, 3]
    items[-1:] = growing(items)
    more = [1, 2, 3]
    more[-2:-1] = growing(more)
    return x + 1, (items, more)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 5])
@pytest.mark.parametrize("what", ["right", "wrong", "taken"])
def test_bounds_are_asked_before_items(what: str, every: int) -> None:
    fast = Compiled(stored, Options(break_every=every), ByReference)
    assert noted(fast, what) == noted(stored, what)
    assert not fast.mistakes


@pytest.mark.parametrize("every", [0, 1])
def test_bounds_are_those_of_the_list_as_it_was(every: int) -> None:
    fast = Compiled(stored_while_it_grows, Options(break_every=every), ByReference)
    assert noted(fast, "") == noted(stored_while_it_grows, "")
    assert not fast.mistakes


LENGTHS: list[str] = []


class Counted(deque[Any]):
    """Its length is code of the program; its iterator is C's."""

    def __len__(self) -> int:
        LENGTHS.append("length")
        return super().__len__()


def grown(values: list[Any]) -> list[Any]:
    values += Counted([1, 2])
    return values


HINTED: dict[str, Callable[[], Any]] = {
    "list": lambda: list(Counted([1])),
    "tuple": lambda: tuple(Counted([1])),
    "display": lambda: [0, *Counted([1])],
    "sorted": lambda: sorted(Counted([2, 1])),
    "in place": lambda: grown([0]),
    "a set": lambda: set(Counted([1])),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HINTED)
def test_a_length_is_asked_for_as_often_as_c_asks(name: str) -> None:
    make = HINTED[name]

    def program(x: Tensor) -> tuple[Tensor, Any]:
        return x + 1, make()

    fast, x = anyshape.compile(program), torch.ones(2)
    for _ in range(3):
        LENGTHS.clear()
        wanted = program(x)[1], len(LENGTHS)
        LENGTHS.clear()
        assert (fast(x)[1], len(LENGTHS)) == wanted


class Told(OrderedDict):  # type: ignore[type-arg]
    """Counts what is stored."""

    stored: ClassVar[list[Any]] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        Told.stored.append(key)
        super().__setitem__(key, value)


class Taking:
    """Counts how often it is iterated over."""

    taken: ClassVar[list[Any]] = []

    def __iter__(self) -> Any:
        Taking.taken.append(1)
        return iter([7])


@pytest.mark.parametrize("way", [{}, {"options": {"break_every": 1}}], ids=str)
def test_an_ordered_dict_of_the_program_stores_once(way: Any) -> None:
    def program(x: torch.Tensor, into: Any) -> Any:
        into |= {"a": 1}
        into |= [("b", 2)]
        return x + 1, list(into)

    Told.stored.clear()
    assert anyshape.compile(program, **way)(torch.ones(2), Told())[1] == ["a", "b"]
    assert Told.stored == ["a", "b"]


@pytest.mark.parametrize("way", [{"fullgraph": True}, {"options": {"break_every": 1}}], ids=str)
def test_bad_bounds_are_refused_before_an_item_is_taken(way: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        said: list[str] = []
        for key in (slice(1, []), slice(0, 3, 0), slice("a")):
            try:
                [1, 2][key] = Taking()  # type: ignore[call-overload]
            except (TypeError, ValueError) as error:
                said.append(str(error))
        return x + 1, said

    Taking.taken.clear()
    assert anyshape.compile(program, **way)(torch.ones(2))[1] == program(torch.ones(2))[1]
    assert not Taking.taken


SHOWN: tuple[tuple[Any, Any], ...] = (
    ({"a": {"k": ["x"]}}.values(), {"a": {"k": ["y"]}}.values()),
    ({"a": ["x"]}.items(), {"a": ["y"]}.items()),
    (types.MappingProxyType({1: ["x"]}), types.MappingProxyType({1: ["y"]})),
    (types.SimpleNamespace(a=["x"]), types.SimpleNamespace(a=["y"])),
    (functools.partial(len, ["x"]), functools.partial(len, ["y"])),
    (KeyError(["x"]), KeyError(["y"])),
    (itertools.repeat("x"), itertools.repeat("y")),
)


@pytest.mark.parametrize("way", [{}, {"options": {"break_every": 2}}], ids=str)
@pytest.mark.parametrize("pair", SHOWN, ids=lambda pair: type(pair[0]).__name__)
def test_what_c_shows_of_what_lies_inside_is_what_lies_there_now(pair: Any, way: Any) -> None:
    def program(x: torch.Tensor, given: Any) -> Any:
        return x + 1, repr([given]), f"{(given, 1)}"

    fast = anyshape.compile(program, **way)
    for given in (*pair, *pair):
        assert fast(torch.ones(2), given)[1:] == program(torch.ones(2), given)[1:]


def test_what_a_view_shows_is_relied_on() -> None:
    def program(x: torch.Tensor, given: Any) -> Any:
        return x + 1, repr(given.values()), f"{given.items()!r:>9}"

    fast = anyshape.compile(program, fullgraph=True)
    for text in "xyx":
        given = {"a": {"k": [text]}}
        assert fast(torch.ones(2), given)[1:] == program(torch.ones(2), given)[1:]
