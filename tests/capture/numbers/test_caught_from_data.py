"""Exceptions that data decides, and that the program itself catches: what it does where none comes
is no mistake of the compiler.
"""

from __future__ import annotations

import warnings

import pytest
import torch

import anyshape
from anyshape.errors import AnyshapeError


class OutsideDomain(Exception):
    pass


def inverse(x):
    if torch.min(x) <= -1 or torch.max(x) >= 1:
        raise OutsideDomain
    return torch.log((1 + x) / (1 - x))


class Raised:
    """As `unittest`'s `assertRaises`."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            raise AssertionError("nothing was raised")
        return issubclass(kind, OutsideDomain)


def tried(x):
    try:
        inverse(x * 2)
    except OutsideDomain:
        pass
    else:
        raise AssertionError("nothing was raised")
    return x + 1


def in_a_context(x):
    for value in (-2.0, 2.0):
        with Raised():
            inverse(torch.full((2, 3), value))
    return x + 1


def a_number_of_data(x):
    try:
        if (x > 5).sum().item() == 0:
            raise OutsideDomain
    except OutsideDomain:
        return x + 1
    raise AssertionError("nothing was raised")


def an_index(x):
    try:
        x[x.long()]
    except IndexError:
        return x + 1
    raise AssertionError("nothing was raised")


def rows_of_data(x):
    try:
        if x[x > 5].shape[0] == 0:
            raise OutsideDomain
    except OutsideDomain:
        return x + 1
    raise AssertionError("nothing was raised")


PROGRAMS = (tried, in_a_context, a_number_of_data, an_index, rows_of_data)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_comes_where_nothing_is_raised_is_not_reported(program):
    fast = anyshape.compile(program)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*E901")
        for size in (3, 4, 2):
            x = torch.full((size,), -3000.0)
            assert torch.equal(fast(x), x + 1)
    assert fast.stats().internal_errors == 0


def test_a_caught_exception_that_data_decides_is_a_break_under_fullgraph():
    with pytest.raises(AnyshapeError) as refused:
        anyshape.compile(tried, fullgraph=True)(torch.full((3,), -3.0))
    assert refused.value.code != "E901"
