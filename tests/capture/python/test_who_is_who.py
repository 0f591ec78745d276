"""One object that is given back twice is one object, whatever expression makes it, and what is handed
in is given back itself, over any break."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

MADE: dict[str, Callable[[Tensor, list[int]], Any]] = {
    "attrgetter": lambda x, v: operator.attrgetter("a"),
    "itemgetter": lambda x, v: operator.itemgetter(1, x.shape[0]),
    "methodcaller": lambda x, v: operator.methodcaller("a", 1),
    "slice": lambda x, v: slice(0, x.shape[0]),
    "fixed slice": lambda x, v: slice(0, 2),
    "method of C": lambda x, v: v.append,
    "method wrapper": lambda x, v: v.__len__,
    "method of what is made": lambda x, v: [x.shape[0]].append,
    "view": lambda x, v: {"a": x.shape[0]}.keys(),
    "text": lambda x, v: f"{x.shape[0]} elements",
    "shape": lambda x, v: x.shape,
    "tuple": lambda x, v: (x.shape[0], "a"),
    "super": lambda x, v: super(Sub, Sub()),
    "bound method": lambda x, v: Sub().method,
}


class Sub(list[Any]):
    def method(self) -> None:
        """Does nothing."""


def compiled(fn: Callable[..., Any], every: int) -> Compiled:
    return Compiled(fn, Options(break_every=every), ByReference)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2])
@pytest.mark.parametrize("name", MADE)
def test_one_object_is_one_object(name: str, every: int) -> None:
    make = MADE[name]

    def program(x: Tensor, values: list[int]) -> Any:
        y = x + 1
        made = make(x, values)
        holders = [made, y], {"made": made}
        return y * 2, holders, made

    fast = compiled(program, every)
    for n in (2, 3, 3, 5):
        _, (first, second), third = fast(torch.ones(n), [1, 2])
        assert first[0] is second["made"] is third
    assert not fast.mistakes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1])
def test_what_is_handed_in_is_given_back_itself(every: int) -> None:
    def program(x: Tensor, *values: Any) -> Any:
        y = x + 1
        torch.get_num_threads()
        number = float(y.sum().numpy())
        return y * number, values

    fast = compiled(program, every)
    for _ in range(3):
        values = (f"text {7 + every}", (1, "a" * 30, (2.5,)), int("1000"), float("1.5"), b"x" * 9)
        _, found = fast(torch.ones(2), *values)
        assert all(a is b for a, b in zip(found, values, strict=True))
    assert not fast.mistakes


@pytest.mark.filterwarnings("ignore")
def test_what_lies_in_a_list_is_given_back_itself() -> None:
    fast = compiled(lambda x, values: (x + 1, values[0], values[1]), 0)
    for _ in range(3):
        values = ["some text " * 2, (1000, "b" * 20)]
        _, first, second = fast(torch.ones(2), values)
        assert first is values[0]
        assert second is values[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2])
def test_equal_objects_stay_two(every: int) -> None:
    """What a segment has made, and what is equal to it, is no one constant behind a break."""

    def program(x: Tensor) -> Any:
        y = x + 1
        a = b = "xyzpdq"
        c = a[:3] + b[3:]
        m = 1000
        n = int("1000")
        torch.get_num_threads()
        return y * 2, a is b, a is c, operator.is_(a, c), operator.is_not(b, c), m is n

    fast = compiled(program, every)
    for _ in range(3):
        assert fast(torch.ones(2))[1:] == (True, False, False, True, False)
    assert not fast.mistakes


def first_one() -> Any:
    yield 1


def second_one() -> Any:
    yield 2


CODES = first_one.__code__, second_one.__code__
HANDED_IN: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "code": (lambda n: CODES[n], lambda code: code.co_name),
    "code of a frame": (lambda n: (first_one, second_one)[n]().gi_frame, lambda f: f.f_code),
    "in a tuple": (lambda n: CODES[n], lambda code: (1, code)),
    "in a tuple in a tuple": (lambda n: (1, CODES[n]), lambda pair: (2, pair)),
    "match": (lambda n: re.match("a|b", "ab"[n]), lambda match: match),
    "name in the code of a traceback's frame": (
        lambda n: (lambda: 1 // 0, lambda: {}["a"])[n],
        lambda fn: names_of(fn),
    ),
}


def names_of(fn: Callable[[], Any]) -> list[str]:
    try:
        fn()
    except (ZeroDivisionError, KeyError) as error:
        step, names = error.__traceback__, []
        while step is not None:
            names.append(step.tb_frame.f_code.co_name)
            step = step.tb_next
        return names
    return []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2])
@pytest.mark.parametrize("name", HANDED_IN)
def test_code_and_matches_are_those_of_this_call(name: str, every: int) -> None:
    make, read = HANDED_IN[name]

    def program(x: Tensor, value: Any) -> Any:
        y = x + 1
        found = read(value)
        return y * 2, found

    fast = compiled(program, every)
    for n in (0, 1, 0, 1):
        value = make(n)
        assert fast(torch.ones(2), value)[1] == read(value)


def whole_slices(x: Tensor, given: tuple[Any, ...]) -> Any:
    a, b, l = (1, 2), (x, 3), [(4, 5)]
    same = [a[:] is a, a[0:] is a, a[:2] is a, a[::-1] is a, l[0][:] is l[0], b[:] is b, b[:1] is b]
    return x + 1, same, given[:] is given, given[:1] is given, given[:]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1])
def test_all_of_a_tuple_is_the_tuple(every: int) -> None:
    fast = Compiled(whole_slices, Options(break_every=every), ByReference)
    given = (1, [2])
    for _ in range(2):
        wanted, found = whole_slices(torch.ones(2), given), fast(torch.ones(2), given)
        assert found[1:4] == wanted[1:4]
        assert found[4] is given


def given_on(*values: Any) -> tuple[Any, ...]:
    return values


ALIKE = ("missing", 1.5)
MADE_IN_EACH_CALL: dict[str, Callable[[list[Any]], Any]] = {
    "numbers": lambda v: (len(v), len(v) + 1),
    "texts": lambda v: ("missing", str(v)),
    "nested": lambda v: (("a", len(v)), "b"),
    "of a list": lambda v: tuple(["a", "b"]),
    "of a star": lambda v: (*["a"], 1),
    "rest of a call": lambda v: given_on(1, 2),
    "all of a call": lambda v: given_on(*ALIKE),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2])
@pytest.mark.parametrize("name", MADE_IN_EACH_CALL)
def test_a_tuple_of_constants_is_another_one_in_each_call(name: str, every: int) -> None:
    make = MADE_IN_EACH_CALL[name]
    log: list[Any] = []

    def program(x: Tensor) -> Any:
        y = x + 1
        made = make([])
        log.append(made)
        return y * 2, made, [made]

    fast = compiled(program, every)
    given = [fast(torch.ones(3))[1:] for _ in range(4)]
    assert all(made is inside[0] is kept for (made, inside), kept in zip(given, log))
    assert len({id(made) for made, _ in given}) == 4
    assert all(made == make([]) for made, _ in given)


@pytest.mark.parametrize("every", [0, 1])
def test_constants_of_the_code_are_one_object(every: int) -> None:
    def program(x: Tensor) -> Any:
        return x + 1, ("a", 1), given_on(*ALIKE) is ALIKE, given_on() is given_on()

    given = [compiled(program, every)(torch.ones(3)) for _ in range(3)]
    assert all(made is program.__code__.co_consts[2] for _, made, *_ in given)
    assert all((first, second) == (False, True) for *_, first, second in given)
