"""A generator is called as the function that made it, or as the program called it since."""

from __future__ import annotations

import functools
import os

import torch

import anyshape

X = torch.ones(2)


def base():
    yield 1


@functools.wraps(base)
def renamed():
    yield 2


def named_by_its_function(x):
    def made():
        yield 1

    made.__name__, made.__qualname__ = "n", "q"
    generator = made()
    y, before = x + 1, (generator.__name__, generator.__qualname__)
    os.getpid()
    return y, before, generator.__name__, generator.__qualname__


def of_an_outside_function(x):
    generator, y = renamed(), x + 1
    before = generator.__name__
    os.getpid()
    return y, before, generator.__name__, generator


def set_by_the_program(x):
    def made():
        yield 1

    generator, y = made(), x + 1
    generator.__name__ = "own"
    try:
        setattr(generator, "__name__", 5)
    except TypeError as error:
        return y * 2, str(error), generator.__name__
    return y, "", ""


def test_a_function_that_was_renamed_names_its_generators():
    fast = anyshape.compile(named_by_its_function)
    for _ in range(2):
        assert fast(X)[1:] == named_by_its_function(X)[1:] == (("n", "q"), "n", "q")


def test_names_of_functions_from_outside_are_read_in_each_call():
    fast = anyshape.compile(of_an_outside_function)
    name = renamed.__name__
    try:
        for now in (name, name, "another", name):
            renamed.__name__ = now
            _, before, after, generator = fast(X)
            assert (before, after, generator.__name__) == (now, now, now)
    finally:
        renamed.__name__ = name


def test_what_the_program_calls_it_outlives_a_break():
    fast = anyshape.compile(set_by_the_program)
    for _ in range(2):
        assert fast(X)[1:] == set_by_the_program(X)[1:]


def test_a_generator_from_outside_is_asked_for_its_name_in_each_call():
    def handed(x):
        return x + 1, renamed()

    make = anyshape.compile(handed)
    fast = anyshape.compile(lambda x, generator: (x + 1, generator.__name__))
    for name in ("a", "b", "a"):
        for generator in (make(X)[1], renamed()):
            generator.__name__ = name
            assert fast(X, generator)[1] == name
