"""Objects whose state lies in C: no guard sees it, so nothing of it may be taken for constant."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import anyshape


def _from_array(array: Any) -> torch.Tensor:
    return torch.as_tensor(array) * 2 + torch.tensor(array).sum()


def _deep_copy(x: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(x * 2) + x


def _python_random(x: torch.Tensor) -> torch.Tensor:
    return x * random.Random(3).random() + 1


def _seeded(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = torch.rand(3)
    return x[:, :1] + y


def _made_inside(x: torch.Tensor) -> torch.Tensor:
    return x * torch.nn.Parameter(torch.ones(3))[:1]


@pytest.mark.parametrize("program", [_deep_copy, _python_random, _seeded, _made_inside])
def test_each_call_sees_its_own_objects(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = anyshape.compile(program)
    for rows in (3, 1, 5, 3):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), program(x))
        assert torch.is_grad_enabled()


def test_an_array_is_read_at_each_call() -> None:
    compiled = anyshape.compile(_from_array)
    for values in ([1.0, 2.0], [3.0, 4.0], [5.0]):
        array = np.array(values)
        torch.testing.assert_close(compiled(array), _from_array(array))


def test_a_context_manager_made_in_c_is_entered_and_left() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch._C._DisableFuncTorch():
            y = x * 2
        return y + 1

    fast = anyshape.compile(program)
    for n in (3, 1, 0):
        x = torch.randn(n)
        torch.testing.assert_close(fast(x), program(x))


CELLS, POSITIONS = np.arange(8), np.array([3, 1])


@pytest.mark.parametrize("key", [POSITIONS, slice(2, 5), 3, (Ellipsis,)])
def test_what_an_array_makes_for_an_index(key):
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + float(CELLS[key].sum())

    fast = anyshape.compile(program)
    for _ in range(2):
        assert torch.equal(fast(torch.ones(3)), program(torch.ones(3)))
    CELLS[3] += 5
    assert torch.equal(fast(torch.ones(3)), program(torch.ones(3)))
    assert fast.stats().internal_errors == 0


class CalledByOthers(torch.nn.Module):
    """Its own `__init__` works with tensors before it calls that of its class."""

    def __init__(self, width: int) -> None:
        start = torch.ones(width) * 2
        super().__init__()
        self.start = start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.start


def test_a_module_that_is_not_yet_one():
    fast = anyshape.compile(lambda x: CalledByOthers(2)(x))
    assert torch.equal(fast(torch.ones(3, 2)), torch.full((3, 2), 3.0))
    assert fast.stats().internal_errors == 0


class ShownWithoutHash:
    class Shows:
        __hash__ = None

        def __call__(self) -> str:
            return "shown"

    __repr__ = Shows()


def test_the_repr_of_a_class_may_have_no_hash():
    shown = ShownWithoutHash()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        return x + 1, f"{shown!r}"

    fast = anyshape.compile(program)
    assert fast(torch.ones(2))[1] == "shown"
    assert fast.stats().internal_errors == 0


def _read_twice(x: torch.Tensor, array: Any) -> Any:
    return x + 1, array.T, array.T


def _read_of_two(x: torch.Tensor, array: Any, other: Any) -> Any:
    return x + 1, array.T is other.T, array.ctypes.data == other.ctypes.data


def test_what_c_makes_for_an_attribute_is_another_object_each_time():
    fast, array = anyshape.compile(_read_twice), np.arange(6)
    for _ in range(3):
        _, first, second = fast(torch.ones(2), array)
        assert first is not second
        assert first.base is array
    assert fast.stats().internal_errors == 0


def test_what_c_makes_for_an_attribute_is_told_apart_by_no_guard():
    fast, array = anyshape.compile(_read_of_two), np.arange(6)
    for other in (np.arange(6), array, np.arange(3)):
        assert fast(torch.ones(2), array, other)[1:] == (False, array is other)
    assert fast.stats().internal_errors == 0


class Teller:
    """Like Logger.warning_once of transformers: C binds a cached function, anew at each read."""

    @functools.lru_cache(None)
    def once(self, text: str) -> int:
        return len(text)


TELLER = Teller()


def test_methods_that_c_binds_anew_at_each_read_are_captured() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * TELLER.once("abc") + TELLER.once("abc")

    fast = anyshape.compile(program)
    for rows in (2, 3, 1):
        x = torch.ones(rows)
        torch.testing.assert_close(fast(x), program(x))
    assert "what Teller makes" not in str(anyshape.explain(program)(torch.ones(2)))
