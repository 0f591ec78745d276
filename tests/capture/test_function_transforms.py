"""Function transforms of torch but for `grad` (``tests/autograd/test_function_gradients.py``) are
called natively as a whole, and right at every call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anyshape


def _per_sample(x: torch.Tensor) -> torch.Tensor:
    scaled: torch.Tensor = torch.vmap(lambda row: row.sum() * row)(x * 2)
    return scaled + 1


def _gradient(x: torch.Tensor) -> torch.Tensor:
    slope: torch.Tensor = torch.func.grad(lambda a: (a**3).sum())(x * 2)
    return slope + 1


def _jacobian(x: torch.Tensor) -> torch.Tensor:
    jacobian: torch.Tensor = torch.autograd.functional.jacobian(lambda a: a.tanh(), x.flatten() * 2)
    return jacobian + 1


@pytest.mark.parametrize("program", [_per_sample, _gradient, _jacobian])
def test_a_transform_between_compiled_lines_is_right_at_every_size(
    program: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    compiled = anyshape.compile(program)
    for rows in (3, 1, 5, 3):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), program(x))
