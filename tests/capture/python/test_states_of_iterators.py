"""`copy` and `pickle` see the iterators of C that a program has made, where generators of ours stand
for them.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch

import anyshape
from tests.capture.by_reference import compiled


class Items:
    def __init__(self, count: int) -> None:
        self.count = count

    def __getitem__(self, index: int) -> int:
        if index < self.count:
            return index * 10
        raise IndexError


class Counter:
    count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count


def negative(x: int) -> int:
    return -x


def small(x: int) -> bool:
    return x < 3


MAKERS: dict[str, Callable[[], Iterator[Any]]] = {
    "map": lambda: map(negative, [1, 2, 3]),
    "filter": lambda: filter(small, [1, 5, 2]),
    "zip": lambda: zip([1, 2], Items(2)),
    "strict zip": lambda: zip([1, 2], Items(2), strict=True),
    "enumerate": lambda: enumerate(Items(3), 5),
    "items": lambda: iter(Items(3)),
    "calls": lambda: iter(Counter(), 3),
    "starmap": lambda: itertools.starmap(pow, [(2, 3), (3, 2)]),
    "takewhile": lambda: itertools.takewhile(small, [1, 2, 5, 1]),
    "dropwhile": lambda: itertools.dropwhile(small, [5, 1, 6]),
    "filterfalse": lambda: itertools.filterfalse(small, [5, 1, 6]),
    "compress": lambda: itertools.compress(Items(3), [1, 0, 1]),
    "product": lambda: itertools.product(Items(2), "ab"),
    "cycle": lambda: itertools.islice(itertools.cycle(Items(2)), 5),
}


def pickled(iterator: Any) -> Any:
    return pickle.loads(pickle.dumps(iterator))


def shared(iterator: Any) -> Any:
    return copy.copy(iterator)


def program(x: Any, maker: Any, via: Any, taken: int) -> Any:
    iterator = maker()
    for _ in range(taken):
        next(iterator, None)
    other = via(iterator)
    return x * 2, list(itertools.islice(other, 9)), next(iterator, "end")


@pytest.mark.parametrize("taken", [0, 1, 9])
@pytest.mark.parametrize("via", [pickled, copy.deepcopy, shared])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_copy_goes_on_where_the_iterator_is(maker: str, via: Any, taken: int) -> None:
    x = torch.ones(2)
    _, *wanted = program(x, MAKERS[maker], via, taken)
    result, *found = anyshape.compile(program)(x, MAKERS[maker], via, taken)
    assert found == wanted
    assert torch.equal(result, x * 2)


@pytest.mark.parametrize("state", [-42, 0, 1, 7])
def test_an_iterator_by_items_goes_on_at_a_state(state: int) -> None:
    def program(x: Any, state: int) -> Any:
        iterator = iter(Items(3))
        before = hasattr((i for i in ()), "__setstate__")
        iterator.__setstate__(state)
        return x + 1, list(iterator), before

    wanted = program(torch.ones(2), state)[1:]
    assert anyshape.compile(program, fullgraph=True)(torch.ones(2), state)[1:] == wanted


def test_one_tuple_is_given_again_where_nobody_holds_it() -> None:
    def program(x: Any) -> Any:
        return x + 1, len(set(map(id, itertools.combinations(range(5), 3))))

    wanted = program(torch.ones(2))[1]
    assert wanted == 1
    assert anyshape.compile(program)(torch.ones(2))[1] == wanted


def told(x: Any, numbers: Any) -> Any:
    made: list[Any] = [zip(numbers, numbers), map(str, numbers), enumerate(numbers)]
    made += [itertools.cycle(numbers), itertools.product([1, 2], [3, 4])]
    states = [it.__reduce__() for it in made]
    same = [states[0][1][0] is numbers, states[0][1][1] is numbers, states[1][1][1] is numbers]
    return x + 1, [state[0] for state in states], same, list(states[4][0](*states[4][1]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"break_every": 1}, {"break_every": 3}], ids=str)
def test_states_are_told_where_they_are_asked_for_by_name(options: dict[str, int]) -> None:
    fast = compiled(told, fullgraph=False, **options)
    for _ in range(2):
        wanted = told(torch.ones(2), iter([1, 2]))[1:]
        assert fast(torch.ones(2), iter([1, 2]))[1:] == wanted


def refusals(x: Any) -> Any:
    texts = []
    for made in (itertools.pairwise(Items(3)), itertools.chain(Items(1)), map(small, Items(2))):
        for refused in (
            lambda it: copy.copy(it) if type(it) is itertools.pairwise else None,
            lambda it: it.__reduce_ex__(1) if type(it) is itertools.pairwise else None,
            lambda it: it.gi_frame,
            lambda it: setattr(it, "extra", 1),
            lambda it: setattr(it, "__next__", 1),
        ):
            try:
                refused(made)
            except (TypeError, AttributeError) as error:
                texts.append(str(error))
    return x + 1, texts


def test_errors_call_them_as_c_does() -> None:
    fast = anyshape.compile(refusals)
    assert fast(torch.ones(2))[1] == refusals(torch.ones(2))[1]


OUTSIDE = [5, 6, 7]


def set_anew(x: Any) -> Any:
    a, b, c = iter([1, 2, 3, 4]), iter(OUTSIDE), reversed([1, 2, 3])
    d, e, ended = iter("abc"), iter((1, 2)), iter([1, 2])
    next(b)
    list(ended)
    for iterator, position in ((a, 2), (b, 0), (c, 0), (d, -5), (e, 99), (ended, 0)):
        iterator.__setstate__(position)
    loaded = pickle.loads(pickle.dumps(iter([1, 2, 3])))
    return x + 1, [list(it) for it in (a, b, c, d, e, ended)], next(loaded)


@pytest.mark.parametrize("ways", [{"fullgraph": True}, {"options": {"break_every": 3}}])
def test_an_iterator_goes_on_from_where_it_is_set(ways: dict[str, Any]) -> None:
    fast = anyshape.compile(set_anew, **ways)
    for more in ([], [], [9]):
        with mock.patch.object(sys.modules[__name__], "OUTSIDE", [5, 6, 7, *more]):
            assert fast(torch.ones(2))[1:] == set_anew(torch.ones(2))[1:]


def copied(x: Any) -> Any:
    made = (
        *(iter(range(3)), iter(range(1 << 80, (1 << 80) + 2)), zip([1], [2], strict=True)),
        *(itertools.islice(range(100), 3, 6), itertools.starmap(pow, zip(range(3), range(1, 7)))),
    )
    next(made[0])
    twins = copy.deepcopy(made)
    return x + 1, [[*it] for it in made], [[*it] for it in twins]


def test_iterators_over_what_c_made_for_them_are_copied() -> None:
    fast = anyshape.compile(copied, fullgraph=True)
    for _ in range(2):
        assert fast(torch.ones(2))[1:] == copied(torch.ones(2))[1:]


class Reversible(Items):
    def __len__(self) -> int:
        return self.count


BY_CLASS: dict[str, Callable[[Any], Any]] = {
    "__reduce__": lambda it: type(it).__reduce__(it),
    "its own": lambda it: it.__reduce__(),
    "bound by hand": lambda it: type(it).__reduce__.__get__(it)(),
    "of object": lambda it: object.__reduce__(it),
    "of object, by protocol": lambda it: object.__reduce_ex__(it, 2),
    "__getstate__": lambda it: (it.__getstate__(), object.__getstate__(it)),
    "__next__": lambda it: type(it).__next__(it),
    "__next__, bound by hand": lambda it: type(it).__next__.__get__(it)(),
    "__iter__": lambda it: type(it).__iter__(it) is it,
    "__setstate__": lambda it: type(it).__setstate__(it, 1),
}
ASKED: dict[str, Callable[[], Any]] = {
    **MAKERS,
    "reversed": lambda: reversed(Reversible(3)),
    "accumulate": lambda: itertools.accumulate(Items(3), max),
    "groupby": lambda: itertools.groupby(Items(3), negative),
    "group": lambda: next(itertools.groupby(Items(3), negative))[1],
    "pairwise": lambda: itertools.pairwise(Items(3)),
    "chain": lambda: itertools.chain(Items(3), [1]),
    "islice": lambda: itertools.islice(Items(3), 1, None),
    "zip_longest": lambda: itertools.zip_longest(Items(3), [1]),
    "generator": lambda: (value for value in [1, 2]),
}


UNSETTABLE = ("groupby", "reversed")
"""Those whose state is not set by hand where generators of ours stand for them."""


def shown(value: Any) -> Any:
    """A value as a text without addresses; iterators of C as what they give."""
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if isinstance(value, (Items, Counter)) or callable(value):
        return type(value).__name__, getattr(value, "__name__", "")
    if hasattr(value, "__next__"):
        return [shown(item) for item in itertools.islice(value, 4)]
    return repr(value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("handed_in", "every"), [(False, 0), (False, 2), (True, 0)])
@pytest.mark.parametrize("way", BY_CLASS)
@pytest.mark.parametrize("name", ASKED)
def test_methods_of_iterators_called_by_way_of_their_class(
    name: str, way: str, handed_in: bool, every: int
) -> None:
    if way == "__setstate__" and name in UNSETTABLE:
        pytest.skip("refused, in words of ours")

    def asking(x: Any, given: Any) -> Any:
        y = x + 1
        iterator = ASKED[name]() if given is None else given
        next(iterator)
        try:
            found = BY_CLASS[way](iterator)
        except (TypeError, AttributeError, ValueError, StopIteration) as error:
            found = type(error).__name__, str(error)
        return y * 2, found

    fast = anyshape.compile(asking, options={"break_every": every} if every else {})
    for _ in range(2):
        given = [ASKED[name]() if handed_in else None for _ in range(2)]
        by_us, by_python = fast(torch.ones(2), given[0])[1], asking(torch.ones(2), given[1])[1]
        assert shown(by_us) == shown(by_python)
    assert fast.stats().internal_errors == 0
