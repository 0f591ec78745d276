"""Attributes and methods of sizes and numbers of the call are those of an int, a float or a bool."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

SIZES = (3, 5, 6, 2, 4, 7)
METHODS = ("bit_length", "conjugate", "__add__", "to_bytes", "as_integer_ratio", "__index__")


def same_number(x: Tensor) -> int:
    return x.shape[0]


def same_ratio(x: Tensor) -> float:
    return x.shape[0] / 2


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("number", [same_number, same_ratio])
def test_a_method_leaves_as_the_numbers_own(
    number: Callable[[Tensor], Any], name: str, fullgraph: bool
) -> None:
    if not hasattr(number(torch.zeros(1)), name):
        return

    def program(x: Tensor) -> tuple[Any, Any, Any, Tensor]:
        method = getattr(number(x), name)
        return method, functools.partial(method), {"it": method}, x + 1

    fast = anyshape.compile(program, fullgraph=fullgraph)
    for n in SIZES:
        method, partial, table, _ = fast(torch.zeros(n))
        own = getattr(number(torch.zeros(n)), name)
        for found in (method, partial.func, table["it"]):
            assert type(found) is type(own)
            assert (found.__name__, found.__self__) == (own.__name__, own.__self__)
            arguments = (2,) if name == "__add__" else (4, "big") if name == "to_bytes" else ()
            assert found(*arguments) == own(*arguments)
    assert fast.stats().specializations == 1


def test_a_method_is_kept_across_a_break() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        length, itself = x.shape[0].bit_length, x.shape[0].conjugate
        x = x * 2
        return length(), itself(), length, itself, x + 1

    fast = anyshape.compile(program, options={"break_every": 1})
    for n in SIZES:
        x = torch.zeros(n)
        assert fast(x)[:4] == program(x)[:4]


def test_a_tensors_method_leaves_as_its_own() -> None:
    x = torch.arange(3.0)
    method, _ = anyshape.compile(lambda x: (x.sin, x + 1), fullgraph=True)(x)
    assert type(method) is type(x.sin) and method.__self__ is x
    assert torch.equal(method(), x.sin())


ATTRIBUTES: dict[str, Callable[[int], Any]] = {
    "parts of an int": lambda n: (n.real, n.imag, n.numerator, n.denominator),
    "parts of a float": lambda n: ((n / 2).real, (n / 2).imag),
    "parts of a bool": lambda n: ((n > 3).real, (n > 3).imag, (n > 3).numerator),
    "conjugates": lambda n: (n.conjugate(), (n / 2).conjugate(), (n > 3).conjugate()),
    "bits of a bool": lambda n: (n > 3).bit_length(),
    "methods of the class": lambda n: (
        n.from_bytes(b"ab", "big"),
        n.from_bytes(b"ab", byteorder="little"),
        (n / 2).fromhex("0x1p3"),
    ),
    "its text": lambda n: n.__doc__ == int.__doc__,
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_those_of_the_number(name: str, fullgraph: bool) -> None:
    fast = anyshape.compile(lambda x: (ATTRIBUTES[name](x.shape[0]), x + 1), fullgraph=fullgraph)
    for n in SIZES:
        found, expected = fast(torch.zeros(n))[0], ATTRIBUTES[name](n)
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("name", ["mro", "__name__", "bits"])
def test_what_a_number_has_not_is_refused(name: str) -> None:
    fast = anyshape.compile(lambda x: (getattr(x.shape[0], name), x + 1), fullgraph=True)
    for n in SIZES:
        with pytest.raises(AttributeError, match=f"'int' object has no attribute '{name}'"):
            fast(torch.zeros(n))
