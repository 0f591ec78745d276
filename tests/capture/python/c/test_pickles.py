"""What is pickled in C, and loaded: the same bytes and objects, the program's own methods included."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import GraphBreakError


class Thing:
    def __init__(self, value: Any) -> None:
        self.value, self.parts = value, [1, (2, "x")]


class Stated(Thing):
    def __getstate__(self) -> Any:
        return {"seen": 1}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state, set=4)


def functions(x: Tensor, protocol: int) -> Any:
    text = pickle.dumps([Thing({1, 2}), {"k": 2.5}, Stated(b"x"), "abc", "abc"], protocol)
    things = pickle.loads(text)
    return x + 1, text, things[0].__dict__, things[2].__dict__, type(things[2])


def objects(x: Tensor, protocol: int) -> Any:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol)
    shared = Thing(3)
    pickler.dump([shared, shared])
    pickler.dump(shared)
    pickler.clear_memo()
    pickler.dump(shared)
    text = file.getvalue()
    file.seek(0)
    loader = pickle.Unpickler(file)
    first = loader.load()
    return x + 1, text, first[0] is first[1], loader.load() is first[0], type(pickler), type(loader)


@pytest.mark.parametrize("program", [functions, objects])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_what_c_pickles_is_one_graph(program: Callable[..., Any], protocol: int) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    x = torch.ones(2)
    for _ in range(2):
        assert str(fast(x, protocol)) == str(program(x, protocol))


def refused(x: Tensor) -> Any:
    try:
        pickle.dumps(lambda: 0)
    except (AttributeError, pickle.PicklingError) as error:
        return x + 1, str(error)


def grouped_otherwise(x: Tensor) -> Any:
    long = {number: 0 for number in range(1001)}
    return x + 1, pickle.dumps(list(range(1001))), pickle.dumps(long), pickle.dumps(["a" * 70_000])


class Looking:
    def __reduce__(self) -> Any:
        return Looking, (), {"caller": sys._getframe(1).f_code.co_name}


class Warning_:
    def __getstate__(self) -> Any:
        warnings.warn("old", stacklevel=2)
        return {"a": 1}


def of_the_caller(x: Tensor) -> Any:
    return x + 1, pickle.dumps(Looking())


def asked_for_more(x: Tensor) -> Any:
    pickler = pickle.Pickler(io.BytesIO())
    pickler.dump([1, "a"])
    return x + 1, len(pickler.memo.copy()), pickler.bin


def held(x: Tensor) -> Any:
    file = io.BytesIO()
    pickler, text = pickle.Pickler(file), "abc"
    pickler.dump([1, text])
    y = x + 1
    os.getpid()
    pickler.dump(text)
    return y, file.getvalue()


LEFT_TO_C = [refused, grouped_otherwise, of_the_caller, asked_for_more, held]


@pytest.mark.parametrize("program", LEFT_TO_C)
def test_where_c_differs_the_call_is_left_to_it(program: Callable[..., Any]) -> None:
    x = torch.ones(2)
    with pytest.raises(GraphBreakError):
        anyshape.compile(program, fullgraph=True)(x)
    fast = anyshape.compile(program)
    for _ in range(2):
        assert str(fast(x)) == str(program(x))


def test_a_pickler_that_leaves_knows_what_it_has_pickled() -> None:
    def program(x: Tensor) -> Any:
        file = io.BytesIO()
        pickler = pickle.Pickler(file)
        pickler.dump([1, "a"])
        return x + 1, pickler, file

    def used(made: Any) -> bytes:
        made[1].dump("a")
        return bytes(made[2].getvalue())

    x = torch.ones(2)
    assert used(anyshape.compile(program)(x)) == used(program(x))


def test_a_warning_names_who_pickles() -> None:
    def program(x: Tensor) -> Any:
        return x + 1, pickle.dumps(Warning_())

    found = []
    for fn in (program, anyshape.compile(program)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            fn(torch.ones(2))
        found.append([(w.filename, w.lineno) for w in said if "old" in str(w.message)])
    assert found[0] == found[1]


def test_what_is_registered_later_counts() -> None:
    def program(x: Tensor, thing: Thing) -> Any:
        return x + 1, pickle.dumps(thing, 2)

    fast, x, thing = anyshape.compile(program, fullgraph=True), torch.ones(2), Thing(3)
    assert str(fast(x, thing)) == str(program(x, thing))
    copyreg.pickle(Thing, lambda thing: (Thing, (thing.value + 1,)))
    try:
        assert str(fast(x, thing)) == str(program(x, thing))
    finally:
        del copyreg.dispatch_table[Thing]
