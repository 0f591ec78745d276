"""Exceptions that hold tensors, sizes and texts of sizes are made as any others; one that escapes is
eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape


class Own(Exception):
    pass


def caught(x: Tensor) -> Any:
    try:
        raise ValueError("a", x)
    except (KeyError, ValueError) as error:
        return error.args[0] == "a", error.args[1] * 2


def of_a_class_of_the_program(x: Tensor) -> Any:
    try:
        raise Own(x, x.shape[0])
    except Own as error:
        return error.args[0] * 2, error.args[1]


def caused(x: Tensor) -> Any:
    try:
        try:
            raise ValueError(x)
        except ValueError as error:
            raise TypeError(x * 2) from error
    except TypeError as error:
        cause = error.__cause__
        return cause.args[0] + error.args[0], error.__context__ is cause  # type: ignore[union-attr]


def text(x: Tensor) -> Any:
    raise ValueError(f"bad {tuple(x.shape)}")


def text_of_a_test(x: Tensor) -> Any:
    if x.dim() != 1:
        raise ValueError(f"wanted 1, got {x.dim()} of {x.shape} {x.dtype}")
    return x


def key(x: Tensor) -> Any:
    raise KeyError(x.shape[0])


def noted(x: Tensor) -> Any:
    error = ValueError(x)
    error.add_note("one")
    error.add_note("two")
    try:
        raise error
    except ValueError as found:
        return [note == "two" for note in found.__notes__], found is error, found.args[0] * 2


def told(x: Tensor) -> Any:
    try:
        raise ValueError(f"of {x.shape[0]}")
    except ValueError as error:
        return len(str(error)), x + 1


def asked(x: Tensor) -> Any:
    return callable(x), callable(x.shape[0]), callable(print), x + 1


@pytest.mark.parametrize("program", [caught, of_a_class_of_the_program, caused, noted, told, asked])
def test_an_exception_may_hold_what_is_computed(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for size in (3, 5, 1):
        x = torch.randn(size)
        torch.testing.assert_close(fast(x), program(x))


@pytest.mark.parametrize("program", [text, text_of_a_test, key])
def test_an_exception_that_escapes_is_eager_s(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for size in (3, 5, 3):
        x = torch.randn(size, 2)
        with pytest.raises(Exception) as expected:
            program(x)
        with pytest.raises(type(expected.value)) as found:
            fast(x)
        assert found.value.args == expected.value.args
