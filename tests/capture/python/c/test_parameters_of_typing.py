"""Parameters of `typing` know the module that made them; since 3.12 they hide their attributes."""

from __future__ import annotations

import sys
from typing import NewType, ParamSpec, TypeVar

import pytest
import torch

import anyshape

X = torch.ones(2)
OUTSIDE = TypeVar("OUTSIDE")
WRITTEN = TypeVar("WRITTEN")
SYNTAX = """
def program(x):
    def f[T, *Ts, **P](): ...
    class K[T]: ...
    made = (*f.__type_params__, *K.__type_params__)
    return x + 1, [(p.__module__, repr(p), type(p).__name__) for p in made]
"""


def made_by_calls(x):
    made = TypeVar("T"), ParamSpec("P"), NewType("N", int)
    return x + 1, [parameter.__module__ for parameter in made]


def made_by_text(x):
    space = {}
    exec("from typing import TypeVar\nT = TypeVar('T')", space, space)
    return x + 1, space["T"].__module__


def reads(x):
    return x + 1, hasattr(OUTSIDE, "mark"), getattr(OUTSIDE, "mark", None), OUTSIDE.__module__


def writes(x):
    WRITTEN.count = getattr(WRITTEN, "count", 0) + 1
    y = x + WRITTEN.count
    del WRITTEN.gone
    try:
        del WRITTEN.gone
    except AttributeError as error:
        return y, str(error)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("program", [made_by_calls, made_by_text])
def test_they_are_of_the_module_that_made_them(program, fullgraph):
    fast = anyshape.compile(program, fullgraph=fullgraph)
    for _ in range(2):
        assert fast(X)[1] == program(X)[1]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")
@pytest.mark.parametrize("fullgraph", [True, False])
def test_those_of_syntax_are_of_no_module(fullgraph):
    space = {"__name__": "somewhere"}
    exec(SYNTAX, space)
    fast = anyshape.compile(space["program"], fullgraph=fullgraph)
    assert fast(X)[1] == space["program"](X)[1]


def test_attributes_that_their_class_does_not_show_are_read_in_each_call():
    fast = anyshape.compile(reads, fullgraph=True)
    module = OUTSIDE.__module__
    assert fast(X)[1:] == (False, None, module)
    OUTSIDE.mark = 3
    assert fast(X)[1:] == (True, 3, module)
    OUTSIDE.mark = 4
    OUTSIDE.__module__ = "elsewhere"
    assert fast(X)[1:] == (True, 4, "elsewhere")
    OUTSIDE.__module__ = module
    del OUTSIDE.mark
    assert fast(X)[1:] == (False, None, module)


def test_attributes_that_their_class_does_not_show_are_written_once_a_call():
    fast = anyshape.compile(writes, fullgraph=True)
    for count in (1, 2, 3):
        WRITTEN.gone = 1
        y, text = fast(X)
        assert (WRITTEN.count, y.tolist()) == (count, [1.0 + count] * 2)
        assert text.endswith("TypeVar' object has no attribute 'gone'") or sys.version_info < (
            3,
            12,
        )


SYNTAX_OF_312 = """
import os

def used(x):
    def f[T: int](v: T): return v
    class K[T: (int, str)]: ...
    type X[U] = list[U]
    return x + 1, f(3), K.__name__, X.__name__

def asked(x, bound):
    def f[T: bound](v: T): return v
    type X[U] = bound
    before = f.__type_params__[0].__bound__, X.__value__
    bound = str
    y = x + 1
    os.getpid()
    return y, before, f.__type_params__[0].__bound__, X.__value__, X.__module__, repr(X[int])

def given_back(x):
    def f[T, *Ts](v): return v
    return x + 1, f
"""


def _program(name):
    space = {"__name__": "somewhere"}
    exec(SYNTAX_OF_312, space)
    return space[name]


since_312 = pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")


@since_312
def test_bounds_and_aliases_of_syntax_are_captured():
    fast = anyshape.compile(_program("used"), fullgraph=True)
    assert fast(X)[1:] == (3, "K", "X")


@since_312
def test_bounds_and_aliases_are_computed_when_they_are_asked_for():
    program = _program("asked")
    fast = anyshape.compile(program)
    for bound in (int, float, int):
        assert fast(X, bound)[1:] == program(X, bound)[1:] == (
            (bound, bound), bound, bound, "somewhere", "X[int]"
        )  # fmt: skip


@since_312
def test_a_function_that_leaves_keeps_its_parameters():
    fast = anyshape.compile(_program("given_back"))
    for _ in range(2):
        assert list(map(repr, fast(X)[1].__type_params__)) == ["T", "Ts"]
