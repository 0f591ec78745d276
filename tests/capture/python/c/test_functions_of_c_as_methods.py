"""Special methods that are functions of C with another meaning, `__getitem__ = dict.pop`: they write,
where C's own method of that name reads, and give what that never gives."""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


def of(base: Any, *contents: Any, **methods: Any) -> Callable[[], Any]:
    """What makes an object of a class with these methods."""
    cls = type(f"{base.__name__}_{'_'.join(methods)}", (base,), methods)
    return lambda: cls(*contents)


D, L = {1: 10, 2: 20, 3: 30}, [1, 2, 3]


def raising(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        try:
            return program(x)
        except (TypeError, ValueError) as error:
            return str(error)

    return run


def stored(x: Any) -> None:
    x[9] = 4


def overrides(base: Any, name: str) -> Callable[[], Any]:
    """A class that says in Python that nothing is written."""
    return of(base, L if base is not dict else D, **{name: lambda self, *args: None})


CASES: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (of(dict, D, __getitem__=dict.pop), lambda x: (x[1], x[2])),
    (of(dict, D, __getitem__=dict.pop), lambda x: operator.getitem(x, 1)),
    (of(dict, D, __setitem__=dict.setdefault), stored),
    (of(dict, D, __delitem__=dict.setdefault), lambda x: operator.delitem(x, 9)),
    (of(dict, D, __len__=dict.popitem), raising(len)),
    (of(dict, D, __contains__=dict.pop), lambda x: 2 in x),
    (of(dict, D, __iter__=dict.copy), raising(list)),
    (of(dict, D, __bool__=dict.__len__), raising(bool)),
    (of(dict, D, __bool__=dict.clear), raising(lambda x: 1 if x else 2)),
    (of(dict, D, __missing__=dict.setdefault), lambda x: x[77]),
    (of(dict, D, __eq__=dict.pop), lambda x: x == 2),
    (of(dict, D, __eq__=object.__eq__), lambda x: (x == D, x != D)),
    (of(dict, D, __getattribute__=dict.get), lambda x: x.keys),
    (of(list, L, __getitem__=list.pop), lambda x: (x[0], x[-1])),
    (of(list, L, __add__=list.append), lambda x: x + 5),
    (of(list, L, __radd__=list.append), lambda x: sum([x], 4)),
    (of(list, L, __contains__=list.append), lambda x: 5 in x),
    (of(list, L, __neg__=list.pop, __invert__=list.reverse), lambda x: (-x, ~x)),
    (of(list, L, __index__=list.pop), lambda x: [1, 2, 3, 4][x]),
    (of(list, L, __hash__=list.pop), lambda x: (hash(x), len({x: 1}))),
    (of(list, L, __lt__=list.append), lambda x: sorted([x, x]) and None),
    (of(list, L, __gt__=list.__lt__, __lt__=list.__gt__), lambda x: (x < L[:2], x > L[:2])),
    (of(list, L, __repr__=list.pop), raising(repr)),
    (of(list, L, __format__=list.append), raising(lambda x: f"{x:a}")),
    (of(list, L, __setitem__=list.index), lambda x: operator.setitem(x, 1, 0)),
    (of(tuple, L, __getitem__=tuple.index), lambda x: (x[1], x[3])),
    (of(int, 5, __add__=int.__sub__), lambda x: x + 3),
    (of(deque, L, __getitem__=deque.rotate), lambda x: x[1]),
    (of(OrderedDict, D, __getitem__=OrderedDict.move_to_end), lambda x: x[1]),
    (of(bytearray, b"abc", __getitem__=bytearray.append), lambda x: x[65]),
    (overrides(list, "__setitem__"), lambda x: operator.setitem(x, 1, 0)),
    (overrides(list, "__delitem__"), lambda x: operator.delitem(x, 1)),
    (overrides(dict, "__setitem__"), lambda x: operator.setitem(x, 1, 0)),
    (overrides(deque, "__delitem__"), lambda x: operator.delitem(x, 1)),
    (overrides(list, "__iadd__"), lambda x: operator.iconcat(x, [4])),
]


def left(x: Any) -> Any:
    """What there is in it then, whatever its class says."""
    base: Any = next(
        b for b in (OrderedDict, dict, list, deque, bytearray, tuple, int) if isinstance(x, b)
    )
    if base in (OrderedDict, dict):
        return [*base.items(x)]
    return int(x) if base is int else [*base.__iter__(x)]


def made_inside(t: Tensor) -> Any:
    found = []
    for make, program in CASES:
        x = make()
        found.append((program(x), left(x)))
    return found, t + 1


def handed_in(objects: list[Any], t: Tensor) -> Any:
    return [(program(x), left(x)) for x, (_, program) in zip(objects, CASES)], t + 1


@pytest.mark.filterwarnings("ignore")
def test_functions_of_c_are_called_where_the_program_has_put_them() -> None:
    t = torch.ones(2)
    fast = anyshape.compile(made_inside)
    for _ in range(2):
        assert str(fast(t)) == str(made_inside(t))
    given = anyshape.compile(handed_in)
    for _ in range(2):
        ours, theirs = ([make() for make, _ in CASES] for _ in range(2))
        assert str(given(ours, t)) == str(handed_in(theirs, t))
        assert str([left(x) for x in ours]) == str([left(x) for x in theirs])
    assert not fast.stats().internal_errors and not given.stats().internal_errors


class Attributes(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Shown(tuple):
    __slots__ = ()
    __str__ = tuple.__repr__


def test_functions_of_c_that_read_break_nothing() -> None:
    options, shown = Attributes(lr=2, b=3), Shown((1, 2))

    def program(x):
        options.kind = "many"
        copies = dict(Attributes(options)), options.copy(), options | {"k": 3}, {"z": 1} | options
        return x * options.lr, copies, f"{options} {shown}", options.kind

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (2, 3):
        assert repr(fast(torch.ones(rows))) == repr(program(torch.ones(rows)))
