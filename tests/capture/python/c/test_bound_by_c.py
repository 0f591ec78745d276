"""What C does with functions that the program has put under special names, with flags, and with
iterators that it makes again: each program gives what CPython gives, whole or in pieces. All of
them were wrong in CPython's own tests."""

from __future__ import annotations

import _pydecimal
import collections
import copy
import enum
import itertools
import json
import operator
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import GraphBreakError


def said(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    try:
        return repr(fn(*args, **kwargs))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Shown(str):
    """Its `__str__` asks for its `__repr__`."""

    __str__ = object.__str__

    def __repr__(self) -> str:
        return "shown"


class Hidden(float):
    __repr__ = object.__repr__


class Season(enum.StrEnum):
    FALL = "autumn"
    __str__ = object.__str__

    def __repr__(self) -> str:
        return self._name_


def texts(log: list[Any]) -> None:
    log += [str(Shown("a")), f"{Shown('a')!s:>8}", Shown("a").__str__(), str.__str__(Shown("a"))]
    log += [object.__str__(Shown("a")), str(Season.FALL), str(Hidden(2.0)) == "2.0"]


class Ordered(collections.OrderedDict[str, int]):
    keys = dict.keys  # type: ignore[assignment]


def bound_functions(log: list[Any]) -> None:
    """The function of C that was bound, and not the one of that name in the class."""
    keys: Any = Ordered(a=1).keys
    log += [repr(keys()), type(keys()).__name__]


class Odd(int):
    """Slots of classes that it is no instance of."""

    __eq__ = str.__eq__
    __hash__ = str.__hash__  # type: ignore[assignment]
    __lt__ = float.__lt__  # type: ignore[assignment]
    __add__ = str.__add__  # type: ignore[assignment]
    __len__ = list.__len__  # type: ignore[assignment]
    __iter__ = list.__iter__  # type: ignore[assignment]
    __bool__ = float.__bool__  # type: ignore[assignment]
    __str__ = str.__str__  # type: ignore[assignment]


def slots_of_others(log: list[Any]) -> None:
    odd: Any = Odd()
    asked: list[Callable[[], Any]] = [
        lambda: odd == odd,
        lambda: odd < odd,
        lambda: odd + odd,
        lambda: len(odd),
        lambda: iter(odd),
        lambda: not odd,
        lambda: hash(odd),
        lambda: str(odd),
        lambda: {odd: 1},
    ]
    log += [said(ask) for ask in asked]


class Failing:
    def __bool__(self) -> bool:
        raise ZeroDivisionError

    def __eq__(self, other: object) -> Any:
        return "equal"


def functions_of_operator(log: list[Any]) -> None:
    fns: list[Any] = [operator.is_, operator.is_not, operator.truth]
    given: list[tuple[Any, ...]] = [(), (1,), (1, 2), (1, 2, 3), (Failing(),)]
    log += [said(fn, *args) for fn in fns for args in given]
    log += [said(operator.truth, a=1), object.__ne__(Failing(), 1) is False, object.__ne__(1, 2)]  # type: ignore[call-arg]


class Flag:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __bool__(self) -> bool:
        self.log.append("asked")
        return True


FLAGS = ("skipkeys", "ensure_ascii", "check_circular", "allow_nan", "sort_keys")


def flags_of_json(log: list[Any]) -> None:
    for name in FLAGS:
        for flag in (Flag(log), Failing()):
            log.append(said(lambda f=flag, n=name: json.JSONEncoder(**{n: f}).encode({"a": 1.5})))


def flags_of_decimals(log: list[Any]) -> None:
    """A method in Python that C calls writes them."""
    number = _pydecimal.Decimal
    with _pydecimal.localcontext(_pydecimal.Context()) as context:
        asked: list[Callable[[], Any]] = [
            lambda: len({100.0, number("100.0")}),
            lambda: 10.0 in [number("10.0"), 1.0],
            lambda: {10.0: 1}.get(number("10.0")),  # type: ignore[call-overload]
            lambda: number("0.25").__ne__(3.0),
        ]
        for ask in asked:
            context.clear_flags()
            log += [ask(), bool(context.flags[_pydecimal.FloatOperation])]


def import_without_a_package(log: list[Any]) -> None:
    names = {"__package__": None, "__spec__": None, "__name__": "__main__"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log.append(said(__import__, "", names, {}, ("a",), 1))
        log.append([str(each.message) for each in caught])


class Broken:
    def __iter__(self) -> Broken:
        return self

    def __next__(self) -> int:
        return 1

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


def delegating() -> Iterator[int]:
    yield from Broken()


def what_nobody_can_be_given(log: list[Any]) -> None:
    before, sys.unraisablehook = sys.unraisablehook, log.append
    try:
        generator: Any = delegating()
        next(generator)
        generator.close()
    finally:
        sys.unraisablehook = before
    log[:] = [(type(told).__name__, told.exc_type, str(told.exc_value)) for told in log]


class Group(ExceptionGroup[Exception]):
    code: int

    def __new__(cls, message: str, errors: Any, code: int) -> Group:
        made = super().__new__(cls, message, errors)
        made.code = code
        return made

    def derive(self, errors: Any) -> Group:
        return Group(self.message, errors, self.code)


def groups_of_own_making(log: list[Any]) -> None:
    group = Group("several", [ValueError(1), TypeError(2)], 42)
    id(log)
    found, rest = group.split(ValueError)
    log += [repr(found), repr(rest), found.code, rest.code, group.exceptions == group.args[1]]  # type: ignore[union-attr]
    log[-1] = len(group.exceptions)


MADE: dict[str, Callable[[], Iterator[Any]]] = {
    "cycle": lambda: itertools.cycle([1, 2]),
    "chain": lambda: itertools.chain([1], [2]),
    "product": lambda: itertools.product([1, 2], [3]),
    "accumulate": lambda: itertools.accumulate([1, 2, 3]),
    "islice": lambda: itertools.islice([1, 2, 3, 4], 1, 3),
    "zip_longest": lambda: itertools.zip_longest([1, 2], [1]),
    "permutations": lambda: itertools.permutations([1, 2, 3]),
    "takewhile": lambda: itertools.takewhile(bool, [1, 2, 0]),
    "groupby": lambda: (key for key, _ in itertools.groupby([1, 1, 2])),
}
COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda iterator: pickle.loads(pickle.dumps(iterator)),
]


def copies_of(iterator: Iterator[Any], log: list[Any]) -> None:
    log += [[*itertools.islice(made(iterator), 5)] for made in COPIES[::-1]]


def iterators_made_again(log: list[Any]) -> None:
    for name, make in MADE.items():
        for taken in range(3):
            iterator = make()
            if name != "groupby":
                log += itertools.islice(iterator, taken)
                copies_of(iterator, log)


def groups_made_again(log: list[Any]) -> None:
    for taken in range(3):
        groups = itertools.groupby("aaabbc")
        group: Any = iter(())
        for _ in range(taken):
            _, group = next(groups)
        log += [[key for key, _ in made(groups)] for made in COPIES[1:]]
        log.append([*COPIES[-1](group)])


STATES: dict[str, tuple[Callable[[], Iterator[Any]], Any]] = {
    "cycle": (lambda: itertools.cycle([1, 2]), ([3, 4], 1)),
    "product": (lambda: itertools.product([1, 2], [3, 4]), (1, 0)),
    "chain": (lambda: itertools.chain([1], [2]), (iter([[7], [8]]), iter([5, 6]))),
}


PROGRAMS = [
    texts,
    bound_functions,
    slots_of_others,
    functions_of_operator,
    flags_of_json,
    flags_of_decimals,
    import_without_a_package,
    what_nobody_can_be_given,
    groups_of_own_making,
    iterators_made_again,
    groups_made_again,
]


def _compiled(program: Callable[[list[Any]], None], **options: Any) -> Callable[[Tensor], Any]:
    def around(x: Tensor) -> tuple[Tensor, list[Any]]:
        log: list[Any] = []
        y = x + 1
        program(log)
        return y * 2, log

    return anyshape.compile(around, **options)


@pytest.mark.filterwarnings("ignore:E2")
@pytest.mark.parametrize("options", [{}, {"break_every": 3}, {"fullgraph": True}], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_cpython(program: Callable[[list[Any]], None], options: dict[str, Any]) -> None:
    whole = "fullgraph" in options
    fast = _compiled(program, **options) if whole else _compiled(program, options=options)
    wanted: list[Any] = []
    program(wanted)
    for _ in range(2):
        try:
            _, log = fast(torch.ones(2))
        except GraphBreakError:
            assert whole
            return
        assert log == wanted


def test_texts_are_in_one_graph() -> None:
    _, log = _compiled(texts, fullgraph=True)(torch.ones(2))
    assert log[0] == "shown"


@pytest.mark.filterwarnings("ignore:E2")
@pytest.mark.parametrize("taken", [0, 1])
@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_set_later_is_that_of_c(name: str, taken: int) -> None:
    def program(x: Tensor) -> Any:
        make, state = STATES[name]
        iterator: Any = make()
        log = [*itertools.islice(iterator, taken)]
        iterator.__setstate__(copy.deepcopy(state))
        return x + 1, log, [*itertools.islice(iterator, 5)]

    for options in ({}, {"break_every": 3}):
        found = anyshape.compile(program, options=options)(torch.ones(2))[1:]
        assert found == program(torch.ones(2))[1:]
