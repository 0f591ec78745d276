"""What a function or an iterator of the program raises comes out of C's iterators as C has it: a
StopIteration is no error there (PEP 479 is about generators), and most go on behind an exception.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Iterator
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch

from anyshape.capture.interpreter.iterator_states import STAND_INS
from anyshape.capture.python.language import PYTHON
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference


class Raised:
    """Raises each exception of its plan in its turn, and gives numbers in between."""

    def __init__(self, plan: list[Any]) -> None:
        self.plan = plan
        self.turn = 0

    def step(self, *args: Any) -> Any:
        self.turn += 1
        if self.turn > 9:
            raise StopIteration("past the end")
        error = self.plan[self.turn - 1] if self.turn <= len(self.plan) else None
        if error is not None:
            raise error
        return self.turn % 3


class Asked(Raised):
    def __iter__(self) -> Asked:
        return self

    def __next__(self) -> Any:
        return self.step()


class Items(Raised):
    def __getitem__(self, index: int) -> Any:
        return self.step(), index

    def __len__(self) -> int:
        return 6


class Truth(Raised):
    def __bool__(self) -> bool:
        return bool(self.step())

    def __eq__(self, other: object) -> bool:
        return bool(self.step())

    __hash__ = None  # type: ignore[assignment]


BY_FUNCTION: dict[str, Callable[[Any], Any]] = {
    "map": lambda f: map(f, range(8)),
    "map of two": lambda f: map(f, range(8), "abcdefgh"),
    "filter": lambda f: filter(f, range(8)),
    "calls": lambda f: iter(f, 2),
    "starmap": lambda f: itertools.starmap(f, [(1,), (2,), (3,), (4,), (5,), (6,)]),
    "takewhile": lambda f: itertools.takewhile(f, range(8)),
    "dropwhile": lambda f: itertools.dropwhile(f, range(8)),
    "filterfalse": lambda f: itertools.filterfalse(f, range(8)),
    "accumulate": lambda f: itertools.accumulate(range(8), f),
    "accumulate from": lambda f: itertools.accumulate(range(8), f, initial=7),
    "groupby": lambda f: itertools.groupby(range(8), f),
    "groups": lambda f: itertools.chain.from_iterable(
        g for _, g in itertools.groupby("abcdefgh", f)
    ),
    "chain of map": lambda f: itertools.chain(map(f, range(3)), map(f, range(3))),
    "chained from": lambda f: itertools.chain.from_iterable([map(f, range(3)), map(f, "ab")]),
    "chained from map": lambda f: itertools.chain.from_iterable(
        map(lambda n: [f(n)] * 2, range(4))
    ),
    "map of map": lambda f: map(f, map(f, range(8))),
    "zip of map": lambda f: zip(range(8), map(f, range(8))),
    "reduced map": lambda f: enumerate(filter(f, map(f, range(8)))),
    "generator of map": lambda f: (n for n in map(f, range(8))),
    "generator of calls": lambda f: (f(n) for n in range(8)),
    "delegating": lambda f: delegating(map(f, range(8))),
}
BY_ITERATOR: dict[str, Callable[[Any], Any]] = {
    "map": lambda o: map(abs, o),
    "map of two": lambda o: map(pow, o, itertools.count(1)),
    "filter": lambda o: filter(None, o),
    "zip": lambda o: zip(o, range(20)),
    "zip behind": lambda o: zip(range(20), o),
    "strict zip": lambda o: zip(range(3), o, strict=True),
    "strict zip before": lambda o: zip(o, range(3), strict=True),
    "enumerate": lambda o: enumerate(o, 5),
    "islice": lambda o: itertools.islice(o, 1, 9, 2),
    "islice to the end": lambda o: itertools.islice(o, 2, None),
    "islice past its end": lambda o: itertools.islice(o, 4, 2),
    "starmap": lambda o: itertools.starmap(divmod, zip(o, itertools.count(1))),
    "takewhile": lambda o: itertools.takewhile(lambda n: n < 2, o),
    "dropwhile": lambda o: itertools.dropwhile(lambda n: n < 2, o),
    "filterfalse": lambda o: itertools.filterfalse(None, o),
    "compress": lambda o: itertools.compress(o, [1, 0, 1, 1, 1, 1, 0, 1]),
    "compress by": lambda o: itertools.compress(range(9), o),
    "pairwise": lambda o: itertools.pairwise(o),
    "accumulate": lambda o: itertools.accumulate(o),
    "accumulate from": lambda o: itertools.accumulate(o, initial=3),
    "cycle": lambda o: itertools.cycle(o),
    "zip_longest": lambda o: itertools.zip_longest(o, range(4), fillvalue=8),
    "zip_longest behind": lambda o: itertools.zip_longest(range(4), o),
    "groupby": lambda o: itertools.groupby(o),
    "group": lambda o: next(itertools.groupby(o))[1],
    "chain": lambda o: itertools.chain([8], o, [9]),
    "chain from": lambda o: itertools.chain.from_iterable([o, o, [9]]),
    "chain from pairs": lambda o: itertools.chain.from_iterable(zip(o, o)),
    "product": lambda o: itertools.product(o, range(2)),
    "generator": lambda o: (n + 1 for n in o),
    "delegating": lambda o: delegating(o),
}
BY_ITEMS: dict[str, Callable[[Any], Any]] = {
    "items": lambda o: iter(o),
    "reversed": lambda o: reversed(o),
    "map": lambda o: map(str, o),
}
BY_TRUTH: dict[str, Callable[[Any], Any]] = {
    "filter": lambda o: filter(None, [o] * 8),
    "filter by bool": lambda o: filter(bool, [o] * 8),
    "filterfalse": lambda o: itertools.filterfalse(None, [o] * 8),
    "takewhile": lambda o: itertools.takewhile(lambda n: n, [o] * 8),
    "dropwhile": lambda o: itertools.dropwhile(lambda n: n, [o] * 8),
    "compress": lambda o: itertools.compress("abcdefgh", [o] * 8),
    "calls": lambda o: iter(lambda: 5, o),
    "groupby": lambda o: itertools.groupby([o, 1, o, 2, 3, 4], lambda n: n),
}
ASKED: list[str] = []


class Noticing:
    """Says what it is asked."""

    def __bool__(self) -> bool:
        ASKED.append("bool")
        return True

    def __eq__(self, other: object) -> bool:
        ASKED.append("eq")
        return False

    def __add__(self, other: object) -> Noticing:
        ASKED.append("add")
        return self

    def __iter__(self) -> Iterator[int]:
        ASKED.append("iter")
        return iter([1, 2])

    __hash__ = None  # type: ignore[assignment]


BY_CONTENTS: dict[str, Callable[[Any], Any]] = {
    "compress": lambda items: itertools.compress("ab", [*items]),
    "filterfalse": lambda items: itertools.filterfalse(None, [*items]),
    "accumulate": lambda items: itertools.accumulate([*items]),
    "groupby": lambda items: itertools.groupby([*items]),
    "starmap": lambda items: itertools.starmap(pow, [*items]),
    "starmap of pairs": lambda items: itertools.starmap(operator.add, [tuple(items)]),
    "map": lambda items: map(operator.add, items, items),
    "takewhile": lambda items: itertools.takewhile(operator.truth, [*items]),
    "chain": lambda items: itertools.chain.from_iterable([*items]),
}
MAKERS: list[tuple[str, str, Callable[..., Any]]] = [
    *(("function", name, lambda plan, make=make: make(Raised(plan).step)) for name, make in BY_FUNCTION.items()),
    *(("iterator", name, lambda plan, make=make: make(Asked(plan))) for name, make in BY_ITERATOR.items()),
    *(("items", name, lambda plan, make=make: make(Items(plan))) for name, make in BY_ITEMS.items()),
    *(("truth", name, lambda plan, make=make: make(Truth(plan))) for name, make in BY_TRUTH.items()),
]  # fmt: skip


def delegating(iterator: Any) -> Iterator[Any]:
    got = yield from iterator
    yield "returned", got


def step_by_step(it: Iterator[Any], plan: list[Any]) -> Any:
    found: list[Any] = []
    for _ in range(12):
        try:
            value = next(it)
            found.append([*value] if type(value) is itertools._grouper else value)  # type: ignore
        except Exception as error:
            mine = [error is one for one in plan]
            found.append((type(error).__name__, str(error), mine, type(error.__cause__).__name__))
    return found


def by_default(it: Iterator[Any], plan: list[Any]) -> Any:
    found: list[Any] = []
    for _ in range(9):
        try:
            found.append(next(it, "default"))
        except Exception as error:
            found.append(repr(error))
    return found


def looped(it: Iterator[Any], plan: list[Any]) -> Any:
    found: list[Any] = []
    for _ in range(4):
        try:
            for value in it:
                found.append(value)
                if len(found) > 14:
                    break
            else:
                found.append("ended")
        except Exception as error:
            found.append(repr(error))
    return found


def taken_by_c(it: Iterator[Any], plan: list[Any]) -> Any:
    found: list[Any] = []
    it = itertools.islice(it, 14)
    for take in (list, tuple, lambda it: [*it], lambda it: delegated(it), sorted):
        try:
            found.append(take(it))  # type: ignore[operator]
        except Exception as error:
            found.append(repr(error))
    return found


def delegated(it: Iterator[Any]) -> Any:
    def inner() -> Iterator[Any]:
        return (yield from it)

    made = inner()
    found = []
    try:
        while True:
            found.append(next(made))
    except StopIteration as stop:
        return found, stop.value


def unpacked(it: Iterator[Any], plan: list[Any]) -> Any:
    try:
        a, b, *c = itertools.islice(it, 9)
        return a, b, c
    except Exception as error:
        return repr(error)


WAYS = [step_by_step, by_default, looped, taken_by_c, unpacked]
PLANS: dict[str, Callable[[], list[Any]]] = {
    "at first": lambda: [StopIteration("first")],
    "second": lambda: [None, StopIteration(5), None, StopIteration()],
    "an error": lambda: [None, None, ValueError("third"), None, StopIteration(7)],
    "errors": lambda: [KeyError("a"), IndexError("b"), None, ValueError("d"), None],
    "none": list,
    "late": lambda: [None] * 4 + [StopIteration(1, 2)],
}


def program(x: Any, make: Any, plan: Any, way: Any, breaks: bool) -> Any:
    y = x + 1
    plan = plan()  # made inside: raising what lies outside is an effect
    try:
        it = make(plan)
        if breaks:
            os.getpid()
        found = way(it, plan)
    except Exception as error:
        found = repr(error)
    return y * 2, found


def _shown(found: Any) -> str:
    parts = repr(found).split(" at 0x")  # of groups
    return "".join([parts[0], *(part.partition(">")[2] for part in parts[1:])])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name, _ in MAKERS])
def test_what_is_raised_inside_comes_out_as_of_c(kind: str, name: str, way: Any) -> None:
    make = next(made for k, n, made in MAKERS if (k, n) == (kind, name))
    x = torch.ones(2)
    plans = PLANS if way is step_by_step else {name: PLANS[name] for name in ("second", "an error")}
    for title, plan in plans.items():
        for breaks in (False, True)[: 1 + (title == "second" and way is step_by_step)]:
            fast = Compiled(program, Options(), ByReference)
            wanted = program(x, make, plan, way, breaks)
            assert _shown(fast(x, make, plan, way, breaks)) == _shown(wanted), (title, breaks)
            assert not fast.mistakes


def test_what_c_raises_when_it_advances_is_the_programs_own() -> None:
    def program(x: Any) -> Any:
        table = {1: 1}
        keys = iter(table)
        table[2] = 2
        try:
            next(keys)
        except RuntimeError as error:
            return x + 1, str(error)

    fast = Compiled(program, Options(), ByReference)
    assert fast(torch.ones(2))[1] == program(torch.ones(2))[1]
    assert not fast.mistakes


@pytest.mark.parametrize("name", BY_CONTENTS)
def test_what_c_asks_of_items_is_asked_in_each_call(name: str) -> None:
    def program(x: Any, items: list[Any]) -> Any:
        return x + 1, len([*BY_CONTENTS[name](items)])

    fast = Compiled(program, Options(), ByReference)
    items = [Noticing(), Noticing()]
    for given in (items, items, [Noticing(), Noticing()]):
        ASKED.clear()
        wanted = program(torch.ones(2), given)[1], ASKED.copy()
        ASKED.clear()
        assert (fast(torch.ones(2), given)[1], ASKED) == wanted
        assert ASKED
    assert not fast.mistakes


def test_each_generator_that_stands_for_an_iterator_has_a_row() -> None:
    """The others are Python's own: the text of a comprehension, and what goes on natively."""
    found = set()
    for file in PYTHON.polyfill_files:
        codes = [compile(Path(file).read_text(), file, "exec")]
        while codes:
            code = codes.pop()
            codes += [part for part in code.co_consts if isinstance(part, CodeType)]
            if code.co_flags & CO_GENERATOR:
                found.add(code.co_name)
    assert found - {"<genexpr>", "going_on", "given_by"} == STAND_INS.keys()
