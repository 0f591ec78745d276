"""A segment that writes arguments, and in which an operator raises: the exception is raised at the
user's line, where a ``try`` of the program sees it, and the arguments hold what eager leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor], Any]
LINE = torch.tensor([1])


def written_before(x: Tensor, m: Tensor) -> Tensor:
    x.add_(1)
    return torch.linalg.cholesky(m) + x


def written_after(x: Tensor, m: Tensor) -> Tensor:
    made = torch.linalg.cholesky(m)
    x.add_(1)
    return made


def written_on_both_sides(x: Tensor, m: Tensor) -> Tensor:
    x.mul_(3)
    made = torch.linalg.cholesky(m)
    x.add_(made)
    return made


def a_row_written_before(x: Tensor, m: Tensor) -> Tensor:
    x[LINE] = 5.0
    return torch.linalg.cholesky(m)


def a_row_written_after(x: Tensor, m: Tensor) -> Tensor:
    made = torch.linalg.cholesky(m)
    x[LINE] = 5.0
    return made


def caught(x: Tensor, m: Tensor) -> Tensor:
    x.add_(1)
    try:
        return torch.linalg.cholesky(m)
    except RuntimeError:
        return m * 0 - x


def outcome(program: Program, m: Tensor) -> tuple[Any, Tensor, int]:
    x = torch.arange(9.0).reshape(3, 3)
    try:
        result: Any = program(x, m)
    except RuntimeError as error:
        result = type(error)
    return result, x, x._version


PROGRAMS = (
    written_before,
    written_after,
    written_on_both_sides,
    a_row_written_before,
    a_row_written_after,
    caught,
)


@torch.no_grad()
@pytest.mark.parametrize("program", PROGRAMS)
def test_arguments_hold_what_eager_leaves(program: Program) -> None:
    fast = anyshape.compile(program)
    for m in (torch.eye(3), -torch.eye(3), 2 * torch.eye(3)):
        (found, x, version), (wanted, expected, stated) = outcome(fast, m), outcome(program, m)
        assert torch.equal(x, expected)
        assert (version > 0) == (stated > 0)
        assert found is wanted if isinstance(wanted, type) else torch.equal(found, wanted)


def an_index_caught(x: Tensor, m: Tensor) -> Tensor:
    x.add_(1)
    try:
        return torch.nn.functional.embedding(m.detach().sum().long().abs(), m)
    except IndexError:
        return m * 0 - x


def written_in_place_of_one_index_and_caught(x: Tensor, m: Tensor) -> Tensor:
    try:
        x[m.detach().sum().long()] = m.detach()[0]
    except IndexError:
        return m * 2
    return m * 0 - x


@pytest.mark.parametrize(
    "program",
    [
        caught,
        written_before,
        a_row_written_before,
        an_index_caught,
        written_in_place_of_one_index_and_caught,
    ],
)
def test_so_they_do_where_gradients_are_recorded(program: Program) -> None:
    fast = anyshape.compile(program)
    ones = torch.eye(3)
    for m in (ones * 0.5, -ones, 2 * ones, ones * 0):
        (found, x, version), (wanted, expected, stated) = (
            outcome(run, m.clone().requires_grad_()) for run in (fast, program)
        )
        assert torch.equal(x, expected)
        assert version == stated
        assert found is wanted if isinstance(wanted, type) else torch.equal(found, wanted)
