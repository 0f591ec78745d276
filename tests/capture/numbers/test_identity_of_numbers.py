"""`is` between numbers that are symbolic: there are one True and one False; of ints and floats
CPython decides, and the graph is cut."""

from __future__ import annotations

import itertools
import math
import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

ONE, THREE = 1, 3


def matched(flag: Any) -> int:
    match flag:
        case True:
            return 1
        case None:
            return 2
        case _:
            return 3


def masked(x: Tensor) -> Tensor:
    causal = x.shape[0] > 1 and x.shape[1] > 2
    if causal is True:
        return x.tril()
    return x * 2


TRUTHS: dict[str, Callable[[Tensor], Any]] = {
    "is True": lambda x: (x.shape[0] > 2) is True,
    "is False": lambda x: (x.shape[0] > 2) is False,
    "is not True": lambda x: (x.shape[0] > 2) is not True,
    "True is": lambda x: True is (x.shape[0] == x.shape[1]),
    "two of them": lambda x: (x.shape[0] > 2) is (x.shape[1] > 2),
    "of a call": lambda x: bool(x.shape[0] > 2) is True,
    "negated": lambda x: (not x.shape[0] > 2) is False,
    "operator.is_": lambda x: operator.is_(x.shape[0] > 2, True),
    "operator.is_not": lambda x: operator.is_not(x.shape[0] > 2, True),
    "of data": lambda x: (x.sum() > 6).item() is True,
    "of floats": lambda x: (float(x.sum()) > 6.5) is False,
    "a match": lambda x: matched(x.shape[0] > 2),
    "a branch": masked,
    "no None": lambda x: (x.shape[0] > 2) is None,
    "no number": lambda x: (x.shape[0] > 0) is ONE,
    "a size is no truth": lambda x: x.shape[0] is True,
    "a size is not None": lambda x: x.shape[0] is not None,
}
CUT: dict[str, Callable[[Tensor], Any]] = {
    "a size and a number": lambda x: x.shape[0] is THREE,
    "a size, twice": lambda x: x.shape[0] is x.shape[0],
    "two sizes": lambda x: x.shape[0] is x.size(1),
    "an item": lambda x: x.sum().item() is x.sum().item(),
}
SIZES = ((3, 3), (5, 2), (1, 1), (3, 4), (0, 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRUTHS)
def test_a_truth_is_one_of_two_objects(name: str) -> None:
    program, fast = TRUTHS[name], anyshape.compile(TRUTHS[name], fullgraph=True)
    for size in SIZES:
        x = torch.ones(size)
        torch.testing.assert_close(fast(x), program(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CUT)
def test_whether_equal_numbers_are_one_object_is_cpythons(name: str) -> None:
    program, fast = CUT[name], anyshape.compile(CUT[name])
    for size in SIZES:
        x = torch.ones(size)
        assert fast(x) is program(x)


ELEMENTS: dict[str, Callable[[Tensor, int], Any]] = {
    "in a tuple": lambda x, n: n in (x.shape[0], 7),
    "in an iterator": lambda x, n: n in iter([1, x.shape[0]]),
    "lists": lambda x, n: [x.shape[0], x] == [n, x],
    "in order": lambda x, n: (x.shape[0], 1) < (n, 2),
    "dicts": lambda x, n: {1: x.shape[0]} == {1: n},
    "truths": lambda x, n: (n > 1) in [x.shape[0] > 2],
    "groups": lambda x, n: [key for key, _ in itertools.groupby([n, x.shape[0], 3])],
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_that_c_code_compares_are_not_asked_for_their_identity(name: str) -> None:
    program, fast = ELEMENTS[name], anyshape.compile(ELEMENTS[name], fullgraph=True)
    for n, size in itertools.product(range(5), SIZES):
        x = torch.ones(size)
        assert fast(x, n) == program(x, n)


NAN = float("nan")
SHARED: dict[str, Callable[[Tensor, float, float], Any]] = {
    "two arguments": lambda x, a, b: a in (b,),
    "a constant": lambda x, a, b: a in (math.nan,),
    "lists": lambda x, a, b: [a, 1] == [b, 1],
    "computed": lambda x, a, b: (a * 2) in (b * 2,),
    "groups": lambda x, a, b: len(list(itertools.groupby([a, b]))),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHARED)
def test_one_nan_equals_itself_as_an_element(name: str) -> None:
    program, fast = SHARED[name], anyshape.compile(SHARED[name])
    for a, b in ((1.0, 1.0), (2.0, 3.0), (3.5, 3.5), (NAN, NAN), (NAN, math.nan), (math.nan, 1.0)):
        x = torch.ones(2)
        assert fast(x, a, b) == program(x, a, b)


class Same:
    """Equal to what has its number; comparing may change a list."""

    def __init__(self, number: Any, emptied: Any = None) -> None:
        self.number, self.emptied = number, emptied

    def __eq__(self, other: object) -> Any:
        if self.emptied is not None:
            self.emptied.clear()
        return self.number == other


class Twice(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([5, 5])


def without(values: Any, item: Any) -> Any:
    values.remove(item)
    return values


def said(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except (ValueError, TypeError) as error:
        return type(error).__name__, *map(str, error.args)


def emptied_meanwhile(x: Tensor, n: int, method: str) -> Any:
    values: list[Any] = [7, 8]
    values += [Same(x.shape[0], values), n, n]
    return said(lambda: getattr(values, method)(n)), len(values)


SEARCHES: dict[str, Callable[[Tensor, int], Any]] = {
    "index in a list": lambda x, n: [7, x.shape[0], n].index(n),
    "index in a tuple": lambda x, n: (7, x.shape[0], n).index(n),
    "index in a deque": lambda x, n: deque([7, x.shape[0], n]).index(n),
    "index from": lambda x, n: said(lambda: [x.shape[0], n, 7, n, x.shape[0]].index(n, 2)),
    "index from behind": lambda x, n: said(lambda: [n, x.shape[0], 7].index(n, -2)),
    "index until": lambda x, n: said(lambda: [7, 8, x.shape[0], n].index(n, 0, -1) > 1),
    "index from a size": lambda x, n: said(lambda: (n, 7, n, 8, n).index(n, x.shape[0], 9)),
    "index until a size": lambda x, n: said(lambda: deque([8, 9, n]).index(n, 0, x.shape[0])),
    "index of none in a tuple": lambda x, n: said(lambda: (x.shape[0], n).index(n + 9)),
    "index of a constant": lambda x, n: said(lambda: [x.shape[0], n, 3].index(3)),
    "index of none": lambda x, n: said(lambda: [x.shape[0] + 50, n + 50].index(3)),
    "index of none in a deque": lambda x, n: said(lambda: deque([n + 50]).index(3)),
    "index by code": lambda x, n: [Same(x.shape[0]), Same(n)].index(n),
    "index of what compares": lambda x, n: said(lambda: [1, x.shape[0], n].index(Same(n), 1)),
    "index with another iter": lambda x, n: said(lambda: Twice([x.shape[0], n]).index(n)),
    "index, too many": lambda x, n: said(lambda: [n].index(n, 0, 1, 2)),
    "count in a list": lambda x, n: [x.shape[0], n, n + 1].count(n),
    "count in a tuple": lambda x, n: (x.shape[0], n, 2).count(n),
    "count in a deque": lambda x, n: deque([x.shape[0], n, 2]).count(n),
    "count of nested ones": lambda x, n: [(x.shape[0], n), (n, n)].count((n, n)),
    "remove from a list": lambda x, n: without([7, x.shape[0], n, n], n),
    "remove from a deque": lambda x, n: without(deque([7, x.shape[0], n, n]), n),
    "remove none": lambda x, n: said(lambda: [x.shape[0] + 50].remove(n)),
    "remove none from a deque": lambda x, n: said(lambda: deque([x.shape[0] + 50]).remove(n)),
    "emptied, index": lambda x, n: emptied_meanwhile(x, n, "index"),
    "emptied, count": lambda x, n: emptied_meanwhile(x, n, "count"),
    "emptied, remove": lambda x, n: emptied_meanwhile(x, n, "remove"),
}


@pytest.mark.filterwarnings("ignore:E222")
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_for_a_symbolic_number_is_cpythons(name: str) -> None:
    program, fast = SEARCHES[name], anyshape.compile(SEARCHES[name], fullgraph=True)
    for n, size in itertools.product(range(5), SIZES):
        x = torch.ones(size)
        assert fast(x, n) == program(x, n)


def removed_outside(x: Tensor, held: Any, n: int) -> Any:
    held.remove(n)
    return x + 1, held.count(n), held.index(9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [list, deque])
def test_a_search_in_a_list_from_outside_is_cpythons(kind: Any) -> None:
    fast = anyshape.compile(removed_outside)
    for n in (3, 4, 5, 4):
        ours, theirs = kind([3, n, 5, 4, n, 9]), kind([3, n, 5, 4, n, 9])
        x = torch.ones(3)
        assert fast(x, ours, n)[1:] == removed_outside(x, theirs, n)[1:]
        assert ours == theirs
