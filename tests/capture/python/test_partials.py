"""functools.partial made inside: what it holds, its dictionary, its state, copies and subclasses; and
partials of partials from outside.
"""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import pytest
import torch

from anyshape.errors import GraphBreakError
from tests.capture.by_reference import compiled


class Own(functools.partial[Any]):
    pass


class Hiding(functools.partial[Any]):
    keywords = 3  # type: ignore[assignment]


class Calling(functools.partial[Any]):
    def __call__(self, *args: Any, **named: Any) -> Any:
        return "called", super().__call__(*args, **named)


class Making(functools.partial[Any]):
    def __new__(cls, *args: Any) -> Any:
        made = super().__new__(cls, max, *args)
        made.made = True
        return made


def listed(*args: Any, **named: Any) -> Any:
    return args, named


def its_dictionary() -> Any:
    made = functools.partial(listed, 1)
    made.note = [3]  # type: ignore[attr-defined]
    return made.__dict__


def both() -> Any:
    made = functools.partial(listed, 1)
    made.note = [3]  # type: ignore[attr-defined]
    return made, made.__dict__


def subclasses() -> Any:
    own, hiding = Own(listed, 1, a=2), Hiding(listed, 1, a=2)
    own.note = own
    return own(3, b=4), hiding(3, b=4), hiding.keywords, Calling(listed, 1)(2), Making(2)(3), own


def of_partials() -> Any:
    """C takes what they hold, unless they have a dictionary."""
    first = functools.partial(listed, 1)
    plain = functools.partial(first, 2)
    hasattr(first, "note")
    still = functools.partial(first, 2)
    first.__dict__
    kept = functools.partial(first, 2)
    found = [made.func is first for made in (plain, still, kept)]
    return found, plain.args, kept.args, first, functools.partial(first)


def states() -> Any:
    made = Own(listed)
    made.__setstate__((max, (1, 2), {}, {"note": 1}))
    result = made(), made.note, made.__dict__
    named: dict[str, Any] = {"a": 1}
    made.__setstate__((listed, (), named, None))
    named["b"] = 2
    return result, made(), made.keywords is named, vars(made), made.__reduce__(), made


def bad_states() -> Any:
    found = []
    for state in ((), (1, 2, 3, 4), (listed, 1, {}, {}), (listed, (), 3, {}), None):
        try:
            functools.partial(listed).__setstate__(state)
        except TypeError as error:
            found.append(str(error))
    for fields in ((), (3,)):
        try:
            functools.partial(*fields)
        except TypeError as error:
            found.append(str(error))
    return found


def itself() -> Any:
    made = functools.partial(listed)
    made.__setstate__((made, (made,), {"a": made}, {}))
    return repr(made), made.func is made, made


def copies() -> Any:
    made = Own(listed, [1], a=[2])
    made.note = [3]
    shallow, deep = copy.copy(made), copy.deepcopy(made)
    loaded = pickle.loads(pickle.dumps(made))
    shallow.other = 4
    return made, shallow, deep, loaded, shallow.note is made.note, deep.note is made.note


def over_a_break() -> Any:
    made = functools.partial(listed, [1])
    named = functools.partial(listed, a=made)
    made.note = named  # type: ignore[attr-defined]
    torch.get_num_interop_threads()
    return functools.partial(made, 2), functools.partial(named, 3), made.args[0] is made()[0][0]


WORKS = [
    *(its_dictionary, both, subclasses, of_partials, states, bad_states, itself, copies),
    over_a_break,
]


def shown(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """All that partials hold, at any depth, and which are met again."""
    if id(value) in seen:
        return "again", seen.index(id(value))
    if isinstance(value, functools.partial):
        inside = (*seen, id(value))
        fields = [vars(functools.partial)[n].__get__(value) for n in ("func", "args", "keywords")]
        whole = functools.partial(value).func is value  # as it has a dictionary
        parts = *(shown(each, inside) for each in fields), shown(vars(value), inside)
        return type(value).__name__, whole, parts
    if isinstance(value, (tuple, list)):
        return [shown(part, seen) for part in value]
    if isinstance(value, dict):
        return {key: shown(part, seen) for key, part in value.items()}
    return value


def check(work: Any, **options: Any) -> None:
    def program(x: Any) -> Any:
        y = x + 1
        return y * 2, work()

    fast = compiled(program, **options)
    for rows in (3, 1, 0):
        x = torch.ones(rows)
        wanted, found = program(x), fast(x)
        assert str(shown(found[1])) == str(shown(wanted[1]))
        torch.testing.assert_close(found[0], wanted[0])
        if work is both:
            assert found[1][0].__dict__ is found[1][1]
        if work is copies:  # which share a dictionary, as CPython has it
            assert found[1][0].__dict__ is found[1][1].__dict__
            assert found[1][0].__dict__ is not found[1][2].__dict__
    assert not fast.mistakes, fast.mistakes


@pytest.mark.parametrize("work", WORKS)
def test_what_they_hold(work: Any) -> None:
    check(work, fullgraph=work is not over_a_break)


DISTANCES = (1, 2, 3, 7)


def _distances() -> list[Any]:
    """Of each program a break after each instruction, and one distance more, in turn: `make
    test-all` takes all. What `copy` and `pickle` do is a thousand instructions: one distance."""
    return [
        pytest.param(work, every, marks=() if every in taken else pytest.mark.slow)
        for number, work in enumerate(WORKS)
        for taken in [(3,) if work is copies else (1, DISTANCES[1 + number % 3])]
        for every in DISTANCES
    ]


@pytest.mark.parametrize(("work", "every"), _distances())
def test_a_break_may_come_anywhere(work: Any, every: int) -> None:
    check(work, fullgraph=False, break_every=every)


def test_of_one_that_is_another_in_each_call() -> None:
    """What C takes of it was a constant, silently."""

    def program(x: Any, given: Any) -> Any:
        made = functools.partial(given, 2)
        return x + 1, made(50), made.args

    fast = compiled(program, fullgraph=False)
    for given in (functools.partial(max, 1), functools.partial(min, 100), functools.partial(max)):
        assert fast(torch.ones(2), given)[1:] == program(torch.ones(2), given)[1:]
    with pytest.raises(GraphBreakError):
        compiled(program)(torch.ones(2), functools.partial(max, 1))


def test_of_one_that_is_always_the_same() -> None:
    given = functools.partial(max, 1)

    def program(x: Any) -> Any:
        made = functools.partial(given, 2)
        return x + 1, made(50), made.args

    fast = compiled(program)
    assert fast(torch.ones(2))[1:] == (50, (1, 2))
    given.__setstate__((min, (7,), {}, None))
    assert fast(torch.ones(2))[1:] == (2, (7, 2))


def test_one_of_a_symbolic_size() -> None:
    def program(x: Any) -> Any:
        made = Own(listed, x.shape[0], a=x)
        return made()[0][0], made, x + 1

    fast = compiled(program)
    for rows in (2, 5, 0):
        x = torch.ones(rows)
        count, made, _ = fast(x)
        assert (count, made.args, type(made)) == (rows, (rows,), Own)
        assert made.keywords["a"] is x
    assert len(fast.points) == 1


class Plain:
    pass


def replaced() -> Any:
    """It is a dictionary as any from there on, and the other one is the object's."""
    made, other = Plain(), {"other": [1]}
    made.first = 1  # type: ignore[attr-defined]
    before = made.__dict__
    made.__dict__ = other
    made.second = 2  # type: ignore[attr-defined]
    before["more"] = 3
    return before, made, other


@pytest.mark.parametrize("every", [0, 1, 3])
def test_a_dictionary_that_is_replaced(every: int) -> None:
    def program(x: Any) -> Any:
        return (x + 1, *replaced())

    fast = compiled(program, fullgraph=not every, break_every=every)
    for _ in range(2):
        _, before, made, other = fast(torch.ones(2))
        assert before == {"first": 1, "more": 3}
        assert made.__dict__ is other
        assert other == {"other": [1], "second": 2}
