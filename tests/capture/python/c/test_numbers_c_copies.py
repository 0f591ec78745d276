"""A number of a subclass that a special method gives is copied by C, which asks it nothing more."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


class Whole(int):
    """Answers everything that is asked of it with itself, or wrongly."""

    def __int__(self) -> Any:
        return self

    def __index__(self) -> Any:
        return self

    def __trunc__(self) -> Any:
        return self

    def __float__(self) -> float:
        return 99.0

    def __hash__(self) -> Any:
        return self

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody compares it")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__  # type: ignore[assignment]


class Broken(float):
    def __float__(self) -> Any:
        return self


def answering(name: str, answer: object) -> Any:
    return type("Answering", (), {name: lambda self: answer})()


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "int of itself": (int, Whole(3)),
    "float of itself": (float, Broken(3.5)),
    "complex of itself": (complex, Broken(3.5)),
    "index of itself": (operator.index, Whole(3)),
    "hash of itself": (hash, Whole(7)),
    "int by __int__": (int, answering("__int__", Whole(3))),
    "int by __index__": (int, answering("__index__", Whole(3))),
    "int by __trunc__": (int, answering("__trunc__", Whole(3))),
    "a truth is a number": (int, answering("__int__", True)),
    "float by __float__": (float, answering("__float__", Broken(2.5))),
    "float by __index__": (float, answering("__index__", Whole(3))),
    "a hash": (hash, answering("__hash__", Whole(2))),
    "the hash that C keeps for errors": (hash, answering("__hash__", Whole(-1))),
    "a large hash": (hash, answering("__hash__", Whole(2**70))),
    "an index": ([5, 6, 7, 8].__getitem__, answering("__index__", Whole(3))),
    "no index for a float": (float, answering("__index__", "3")),
    "no float": (float, answering("__float__", Whole(3))),
    "no int": (int, answering("__int__", Broken(3))),
}


def outcome(fn: Callable[[Any], Any], value: Any) -> tuple[type, Any]:
    try:
        result = fn(value)
    except TypeError as error:
        return TypeError, str(error)
    return type(result), result


def program(x: Tensor, fn: Callable[[Any], Any], value: Any) -> tuple[Tensor, Any]:
    y = x + 1
    return y * 2, outcome(fn, value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_a_number_is_copied(case: str) -> None:
    fn, value = CASES[case]
    fast = anyshape.compile(program)
    for length in (3, 0, 1):
        assert fast(torch.ones(length), fn, value)[1] == outcome(fn, value)
    assert not fast.stats().internal_errors
