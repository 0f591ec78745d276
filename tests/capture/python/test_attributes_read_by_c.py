"""C code that reads all attributes of an object from outside: a text or a comparison of its
`__dict__`, and what `copy` and `pickle` take of it. It sees what the segment has set, and what is set
between two calls.
"""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape


class Plain:
    pass


class Members(set[str]):
    pass


class Frozen(frozenset[str]):
    __slots__ = ("__dict__", "x")


class Ordered(OrderedDict[str, int]):
    pass


class Queue(deque[str]):
    pass


class Text(bytearray):
    pass


OUTSIDE = Plain()
READS: dict[str, Callable[[], Any]] = {
    "text": lambda: repr(OUTSIDE.__dict__),
    "text inside a tuple": lambda: repr((1, [vars(OUTSIDE)])),
    "f-string": lambda: f"{(vars(OUTSIDE),)}",
    "percent": lambda: "%s" % ((vars(OUTSIDE),),),
    "equal": lambda: vars(OUTSIDE) == {"there": 1, "z": 4},
    "equal inside a tuple": lambda: (vars(OUTSIDE),) == ({"there": 1, "z": 4},),
    "reduced": lambda: repr(OUTSIDE.__reduce_ex__(2)[2]),
}


@pytest.mark.parametrize("name", READS)
def test_c_code_sees_the_attributes_that_the_segment_has_set(name: str) -> None:
    vars(OUTSIDE).clear()
    vars(OUTSIDE)["there"] = 1
    read = READS[name]

    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        OUTSIDE.z = 4  # type: ignore[attr-defined]
        found = read()
        del OUTSIDE.z  # type: ignore[attr-defined]
        return x + 1, found

    expected = program(torch.ones(2))[1]
    fast = anyshape.compile(program)
    assert [fast(torch.ones(n))[1] for n in (2, 3)] == [expected] * 2
    assert vars(OUTSIDE) == {"there": 1}


TAKEN: dict[str, Callable[[Any], Any]] = {
    "copy": lambda obj: vars(copy.copy(obj)),
    "deepcopy": lambda obj: vars(copy.deepcopy(obj)),
    "pickle": lambda obj: vars(pickle.loads(pickle.dumps(obj))),
    "reduce": lambda obj: repr(obj.__reduce__()[2]),
    "protocol 0": lambda obj: repr(obj.__reduce_ex__(0)[2]),
}


@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize("kind", (Members, Frozen, Ordered, Queue, Text))
def test_copies_take_the_attributes_that_an_object_has_then(kind: type, how: str) -> None:
    obj, take = kind(), TAKEN[how]

    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        before = take(obj)
        obj.inside = 7
        after = take(obj)
        del obj.inside
        return x + 1, before, after

    fast = anyshape.compile(program)
    for value in range(3):
        obj.value = value
        expected = [repr(found) for found in program(torch.ones(2))[1:]]
        assert [repr(found) for found in fast(torch.ones(2))[1:]] == expected
