"""Calls of `list[int]`, unions compared with what is none, how many items iterators of C have left,
numbers of subclasses in C, and `map(id, ...)` of what somebody holds: in one graph.
"""

from __future__ import annotations

import itertools
import operator
import types
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anyshape.errors import GraphBreakError
from tests.capture.by_reference import compiled


class Made:
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, *args: Any, **named: Any) -> None:
        self.given = args, named


class Counting(list[Any]):
    set_names: typing.ClassVar[list[str]] = []

    def __setattr__(self, name: str, value: Any) -> None:
        Counting.set_names.append(name)
        object.__setattr__(self, name, value)


class Refusing(Made):
    def __init__(self) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        raise KeyError(name)


class Declining(Refusing):
    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(name)


class Same(Made):
    def __new__(cls, other: Any) -> Any:
        return other


class Added(float):
    def __add__(self, other: Any) -> Any:
        raise AssertionError("nobody adds")

    def __float__(self) -> float:
        return 7.0


class Indexed(int):
    def __index__(self) -> int:
        return 9


def refused() -> Any:
    try:
        Refusing[()]()  # type: ignore[index]
    except KeyError as error:
        return error.args


def told() -> Any:
    made = Made[int](1, key=2)  # type: ignore[index]
    alias = made.__orig_class__  # type: ignore[attr-defined]
    return alias.__origin__ is Made, alias.__args__, made.given, sorted(vars(made))


def told_once() -> Any:
    Counting.set_names.clear()
    made = types.GenericAlias(Counting, int)([1])
    return made, Counting.set_names, made.__orig_class__


def of_another() -> Any:
    other = types.SimpleNamespace(a=1)
    made = Same[int](other)  # type: ignore[index]
    return made is other, list(vars(other))


def hints() -> Any:
    iterators: list[Any] = [
        *[iter([1, 2]), iter((1,)), iter({1, 2}), iter({1: 2}), iter({1: 2}.items())],
        *[reversed([1, 2, 3]), reversed({1: 2}), iter(deque([1])), iter("ab"), iter(range(4))],
        itertools.repeat(1, 5),
    ]
    first = [iterator.__length_hint__() for iterator in iterators]
    for iterator in iterators:
        next(iterator)
    return first, [operator.length_hint(iterator) for iterator in iterators]


def hint_of_a_changed_set() -> Any:
    values = {1, 2, 3}
    iterator: Any = iter(values)
    next(iterator)
    before = iterator.__length_hint__()
    values.add(4)
    return before, iterator.__length_hint__()


def hint_without_end() -> Any:
    endless: Any = itertools.repeat(1)
    try:
        endless.__length_hint__()
    except TypeError as error:
        return error.args


def ids_of_made() -> Any:
    values = [object(), object()]
    ids = set(map(id, values))
    return len(ids), id(values[1]) in ids, id(ids) in ids, len(set(map(id, dict.fromkeys("abc"))))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "classes of C": lambda: (list[int](), dict[str, int](a=1), tuple[int]([1]), deque[int]([1])),
    "more of them": lambda: (Counter[str]("aab"), OrderedDict[str, int](a=1)),
    "a factory": lambda: defaultdict[str, list[int]](list)["a"],
    "an error of the class": lambda: [type(e) for e in [_error_of(lambda: list[int](3))]],  # type: ignore[call-overload]
    "what was called is told": told,
    "by its own __setattr__": told_once,
    "which may refuse": refused,
    "and decline": lambda: type(Declining[()]()),  # type: ignore[index]
    "an object that was there": of_another,
    "unions": lambda: [
        *[(int | str) == typing.Union[int, str], typing.Union[int, None] != (None | int)],
        *[(int | str) == (str | int), (int | str) == {}, (int | str).__eq__(3)],
    ],
    "hints": hints,
    "a changed set": hint_of_a_changed_set,
    "no end": hint_without_end,
    "floats": lambda: (Added(0.75).as_integer_ratio(), Added(2.0).is_integer(), Added(0.5).hex()),
    "integers": lambda: (Indexed(5).bit_length(), Indexed(5).to_bytes(2, "big")),
    "ids": ids_of_made,
}


def _error_of(work: Callable[[], Any]) -> Any:
    try:
        work()
    except Exception as error:
        return error


@pytest.mark.parametrize(
    "options",
    [{}, {"fullgraph": False, "break_every": 3, "max_variants": 64}],
    ids=["whole", "pieces"],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_python_gives(name: str, options: dict[str, Any]) -> None:
    work = PROGRAMS[name]

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, work()

    fast = compiled(program, **options)
    for _ in range(2):
        assert fast(torch.ones(2))[1] == work()


def test_another_alias_is_another_class() -> None:
    fast = compiled(lambda x, alias: (x + 1, alias([1, 2])))
    for alias in (list[int], set[int], list[str], tuple[int, ...]):
        assert fast(torch.ones(1), alias)[1] == alias([1, 2])


def test_hints_are_of_this_call() -> None:
    def program(x: torch.Tensor, values: Any) -> Any:
        iterator: Any = iter(values)
        found = [iterator.__length_hint__()]
        for _ in iterator:
            found.append(iterator.__length_hint__())
        return x + 1, found

    fast = compiled(program)
    given: list[Any] = [[1], [1, 2], [1, 2, 3], {1, 2}, {3, 4, 5}, {1: 2}, deque([1, 2]), (1, 2)]
    for values in given:
        assert fast(torch.ones(1), values)[1] == program(torch.ones(1), values)[1]


def test_ids_of_parameters() -> None:
    def program(x: torch.Tensor, net: Any) -> Any:
        own = list(map(id, net[0].parameters()))
        return net(x), [name for name, p in net.named_parameters() if id(p) not in own]

    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    fast = compiled(program)
    for given in (net, net, torch.nn.Sequential(net[1], net[1])):
        assert fast(torch.ones(2), given)[1] == program(torch.ones(2), given)[1]


@pytest.mark.parametrize("make", [enumerate, zip, lambda values: {1: 2}.items()])
def test_tuples_that_c_gives_again(make: Callable[[Any], Any]) -> None:
    """How many ids they have is how C uses memory again."""
    fast = compiled(lambda x: (x + 1, len(set(map(id, make([1, 2]))))))
    with pytest.raises(GraphBreakError, match="id of what an iterator gives"):
        fast(torch.ones(1))
