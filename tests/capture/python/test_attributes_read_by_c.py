"""C code that reads all attributes of an object from outside: a text or a comparison of its
`__dict__`, and what `copy` and `pickle` take of it. It sees what the segment has set, and what is set
between two calls.
"""

from __future__ import annotations

import copy
import json
import pickle
import sys
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


class Entries(dict[str, int]):
    pass


class Listed(list[int]):
    pass


class Pair(tuple[int, ...]):
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
    "dict": lambda: dict(vars(OUTSIDE)),
    "length": lambda: len(vars(OUTSIDE)),
    "iterated": lambda: [*vars(OUTSIDE).items()],
    "copied": lambda: vars(copy.copy(OUTSIDE)),
    "json": lambda: json.dumps(vars(OUTSIDE)),
    "pickled": lambda: pickle.loads(pickle.dumps(vars(OUTSIDE))),
    "one entry": lambda: vars(OUTSIDE)["there"],
    "one entry or none": lambda: vars(OUTSIDE).get("extra"),
    "a key": lambda: "extra" in vars(OUTSIDE),
    "names": lambda: [name for name in dir(OUTSIDE) if not name.startswith("_")],
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

    fast = anyshape.compile(program)
    for attributes in ({"there": 1}, {"there": 1}, {"there": 2}, {"there": 2, "extra": 0}):
        vars(OUTSIDE).clear()
        vars(OUTSIDE).update(attributes)
        assert repr(fast(torch.ones(2))[1]) == repr(program(torch.ones(2))[1])
        assert vars(OUTSIDE) == attributes


def test_a_write_to_an_attribute_relies_on_no_other() -> None:
    """One that differs at each call makes no other specialization, where others are asked for, or
    written by what `functools.cached_property` does."""
    obj = Plain()
    vars(obj).update(there=1, counter=0)

    def program(x: torch.Tensor) -> torch.Tensor:
        obj.z = 4  # type: ignore[attr-defined]
        vars(obj)["y"] = 0
        return x + vars(obj)["there"] + vars(obj)["y"] + int("missing" in vars(obj))

    fast = anyshape.compile(program)
    obj.z = 0  # type: ignore[attr-defined]
    for counter in range(4):
        vars(obj)["counter"] = counter
        assert fast(torch.ones(2)).tolist() == [2.0, 2.0]
    assert fast.stats().specializations == 1


def test_what_a_side_of_a_branch_reads_is_read_on_the_other_too() -> None:
    obj = Plain()

    def program(x: torch.Tensor) -> torch.Tensor:
        obj.z = 4  # type: ignore[attr-defined]
        if x.shape[0] > 3:
            obj.z = len(vars(obj))  # type: ignore[attr-defined]
        else:
            x = x + sum(vars(obj).values())
        return x + obj.z + obj.there  # type: ignore[attr-defined]

    fast = anyshape.compile(program)
    for there in (1, 2):
        for n in (2, 5):
            vars(obj).clear()
            vars(obj)["there"] = there
            expected = program(torch.ones(n))
            vars(obj).clear()
            vars(obj)["there"] = there
            assert torch.equal(fast(torch.ones(n)), expected)


def test_a_side_that_reads_attributes_as_a_whole_has_written_nothing() -> None:
    obj = Plain()

    def program(x: torch.Tensor) -> torch.Tensor:
        obj.z = 4  # type: ignore[attr-defined]
        return x + (len(vars(obj)) - 2 if x.shape[0] > 3 else 0)

    fast = anyshape.compile(program)
    for attributes in ({"there": 1}, {"there": 1, "more": 1}):
        for n in (2, 5):
            vars(obj).clear()
            vars(obj).update(attributes)
            assert torch.equal(fast(torch.ones(n)), program(torch.ones(n)))
        assert "more" in attributes or fast.stats().specializations == 1


def test_what_a_side_that_data_decides_reads_as_a_whole_leaves_the_other_one_as_it_was() -> None:
    """Written twice, read by one side alone, merged: a side that is taken back has done nothing."""
    obj = Plain()

    def program(x: torch.Tensor) -> torch.Tensor:
        obj.z = 4  # type: ignore[attr-defined]
        if x.sum() > 3:
            obj.z = 5  # type: ignore[attr-defined]
            obj.z = sum(vars(obj).values())  # type: ignore[attr-defined]
        else:
            obj.there = obj.there + 1  # type: ignore[attr-defined]
        return x + obj.z + obj.there  # type: ignore[attr-defined]

    fast = anyshape.compile(program)
    for there in (1, 2):
        for value in (1.0, 2.0):
            found = []
            for run in (program, fast):
                vars(obj).clear()
                vars(obj).update(there=there, z=0)
                found.append((run(torch.full((2,), value)), dict(vars(obj))))
            assert torch.equal(found[0][0], found[1][0])
            assert found[0][1] == found[1][1]
    assert fast.stats().graph_breaks == 0


TAKEN: dict[str, Callable[[Any], Any]] = {
    "copy": lambda obj: vars(copy.copy(obj)),
    "deepcopy": lambda obj: vars(copy.deepcopy(obj)),
    "pickle": lambda obj: vars(pickle.loads(pickle.dumps(obj))),
    "reduce": lambda obj: repr(obj.__reduce__()[2]),
    "protocol 0": lambda obj: repr(obj.__reduce_ex__(0)[2]),
    "state": lambda obj: repr(object.__getstate__(obj)),  # type: ignore[attr-defined]
    "names": lambda obj: [name for name in dir(obj) if not name.startswith("_")],
    "names of object": lambda obj: sorted(object.__dir__(obj))[-3:],
}


@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize("kind", (Members, Frozen, Ordered, Queue, Text, Entries, Listed, Pair))
def test_copies_take_the_attributes_that_an_object_has_then(kind: type, how: str) -> None:
    if how == "state" and sys.version_info < (3, 11):
        pytest.skip("object has no __getstate__ before 3.11")
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


class TwoSlots:
    __slots__ = ("a", "b")


@pytest.mark.parametrize("read", [copy.copy, lambda obj: obj.__getstate__()], ids=["copy", "state"])
def test_slots_that_a_class_is_said_to_have_are_relied_on(
    read: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if read is not copy.copy and sys.version_info < (3, 11):
        pytest.skip("objects have no __getstate__ before 3.11")

    def program(x: torch.Tensor, obj: Any) -> Any:
        return x + 1, read(obj)

    def shown(found: Any) -> Any:
        if type(found) is TwoSlots:
            return [getattr(found, name, None) for name in "ab"]
        return found

    obj: Any = TwoSlots()
    obj.a, obj.b = 1, 2
    fast = anyshape.compile(program, fullgraph=True)
    x = torch.ones(2)
    for names in (None, ["a", "x"], ["b", "x"], ["a", "b"]):
        if names is not None:
            monkeypatch.setattr(TwoSlots, "__slotnames__", names, raising=False)
        assert shown(fast(x, obj)[1]) == shown(read(obj))
