"""Objects whose state lies in C: no guard sees it, so nothing of it may be taken for constant."""

from __future__ import annotations

import copy
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
