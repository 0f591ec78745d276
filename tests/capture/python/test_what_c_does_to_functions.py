"""What C does to functions and generators of the program behind its back."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import anyshape


def test_a_function_behind_which_c_puts_another_is_called_by_c() -> None:
    given = pytest.importorskip("_testcapi")
    if not hasattr(given, "function_setvectorcall"):
        pytest.skip("this Python has no way to do so")
    put_another = importlib.import_module("_testcapi").function_setvectorcall

    def program(x: Any) -> Any:
        def called(value: Any) -> Any:
            return value + 1

        before = called(10)
        put_another(called)
        return x + 1, before, called(10)

    result, *found = anyshape.compile(program)(torch.ones(2))
    assert found == [11, "overridden"]
    assert torch.equal(result, torch.full((2,), 2.0))


def test_c_sets_no_name_of_a_generator_to_anything_but_a_text() -> None:
    def program(x: Any) -> Any:
        def counting() -> Any:
            yield 1

        made, refused = counting(), []
        print(end="")
        for name, value in (("__name__", "other"), ("__qualname__", 3), ("__name__", None)):
            try:
                [*map(setattr, [made], [name], [value])]
            except TypeError as error:
                refused.append(str(error))
        try:
            [*map(delattr, [made], ["__name__"])]
        except TypeError as error:
            refused.append(str(error))
        return x + 1, made.__name__, made.__qualname__, type(made).__qualname__, refused

    found, wanted = anyshape.compile(program)(torch.ones(2)), program(torch.ones(2))
    assert torch.equal(found[0], wanted[0])
    assert found[1:] == wanted[1:]
