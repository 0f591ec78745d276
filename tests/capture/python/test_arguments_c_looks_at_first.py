"""Builtins look at their other arguments before they ask an object, or refuse them: what is called,
in which order, and what is raised, is as natively."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

LOG: list[str] = []
ANSWERS = {
    "__format__": "formatted",
    "__len__": 2,
    "__index__": 1,
    "__bool__": True,
    "__round__": 4,
}


def _method(name: str, answer: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        LOG.append(f"{name}{args}")
        return answer

    return method


class Asked:
    def __iter__(self) -> Any:
        LOG.append("__iter__")
        return iter([1, 2])


for _name, _answer in ANSWERS.items():
    setattr(Asked, _name, _method(_name, _answer))

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "format of no text": lambda o: format(o, None),
    "format of bytes": lambda o: format(o, b""),
    "format of too much": lambda o: format(o, "", 1),  # type: ignore[call-arg]
    "format": lambda o: format(o, "x"),
    "sorted, reversed by a text": lambda o: sorted(o, reverse="a"),
    "sorted, reversed by an object": lambda o: sorted(o, reverse=o),
    "sort, reversed by an object": lambda o: [1, 2].sort(key=lambda v: v, reverse=o),
    "enumerate from an object on": lambda o: list(enumerate(o, o)),
    "round to too much": lambda o: round(o, 1, 2),  # type: ignore[call-overload]
    "round to nothing": lambda o: round(o, None),
    "round by name": lambda o: round(o, ndigits=3),
    "round to what there is not": lambda o: round(o, digits=3),
    "length_hint or a text": lambda o: operator.length_hint(o, "a"),
    "length_hint or an object": lambda o: operator.length_hint(o, o),
    "islice to an object": lambda o: list(itertools.islice(o, o)),
    "islice from an object on": lambda o: list(itertools.islice([1, 2, 3], o, None, o)),
}


def _outcome(fn: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    LOG.clear()
    try:
        result = fn(*args)[1]
    except Exception as error:
        result = type(error), str(error)
    return result, tuple(LOG)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_looked_at_first(name: str) -> None:
    use = PROGRAMS[name]

    def handed_in(x: torch.Tensor, given: Any) -> tuple[torch.Tensor, Any]:
        y = x + 1
        return y * 2, use(given)

    def made_inside(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        y = x + 1
        return y * 2, use(Asked())

    for program, args in ((handed_in, (Asked(),)), (made_inside, ())):
        expected = _outcome(program, torch.ones(2), *args)
        fast = anyshape.compile(program)
        for _ in range(2):
            assert _outcome(fast, torch.ones(2), *args) == expected


class Refusing(Asked):
    def __index__(self) -> int:
        LOG.append("__index__, which raises")
        raise KeyError(self)


def _cut(*bounds: Any) -> list[int]:
    return list(itertools.islice(Asked(), *bounds))


NUMBERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "islice to a tensor": lambda x: _cut(x),
    "islice from a tensor on": lambda x: _cut(x, None),
    "islice in steps of a tensor": lambda x: _cut(Asked(), None, x),
    "islice to what refuses": lambda x: _cut(Refusing()),
    "islice from what refuses on": lambda x: _cut(Refusing(), Asked(), Refusing()),
    "islice in steps of what refuses": lambda x: _cut(Asked(), Asked(), Refusing()),
    "islice, refused before the step is asked": lambda x: _cut(None, Refusing(), Asked()),
    "islice to a size": lambda x: _cut(x.shape[0] - 1),
    "islice to less than nothing": lambda x: _cut(x.shape[0] - 9),
    "islice to a float of a size": lambda x: _cut(x.shape[0] * 1.0),
    "index of a float of a size": lambda x: operator.index(x.shape[0] * 1.0),
    "range to a float of a size": lambda x: list(range(x.shape[0] * 1.0)),  # type: ignore[call-overload]
    "enumerate from a float of a size": lambda x: list(enumerate("ab", x.shape[0] * 1.0)),  # type: ignore[call-overload]
    "list.index from a float of a size": lambda x: [x.shape[0]].index(9, x.shape[0] * 0.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number(name: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return x + 1, NUMBERS[name](x)

    fast = anyshape.compile(program)
    for size in (3, 3, 2):
        expected = _outcome(program, torch.ones(size))
        assert _outcome(fast, torch.ones(size)) == expected
