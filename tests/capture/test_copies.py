"""`copy.copy` of tensors: another object of the same memory, in one graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.autograd.beside_eager import assert_same

SIZES = ((3, 4), (2, 5), (1, 1), (0, 3))


def written(x: Tensor) -> Any:
    y = x * 2
    z = copy.copy(y)
    z.add_(1)
    return y, z, z is y


def of_a_view(x: Tensor) -> Any:
    y = (x * 2).T[1:]
    z = copy.copy(y)
    y.mul_(3)
    return z, z.stride() == y.stride()


def of_what_was_handed_in(x: Tensor) -> Tensor:
    z = copy.copy(x)
    z.add_(1)
    return z * x


def in_a_list(x: Tensor) -> Any:
    parts = copy.copy([x + 1, x * 2])
    return [copy.copy(part) for part in parts]


PROGRAMS = (written, of_a_view, of_what_was_handed_in, in_a_list)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_copy_shares_memory_and_its_writes_do_not_count_for_others(
    program: Callable[[Tensor], Any],
) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for shape in (*SIZES, SIZES[0]):
        ours, theirs = torch.ones(shape), torch.ones(shape)
        found, expected = fast(ours), program(theirs)
        assert_same((found, ours), (expected, theirs))
        assert ours._version == theirs._version
        positions = [[t.data_ptr() for t in tensors(made)] for made in (found, expected)]
        assert len(set(positions[0])) == len(set(positions[1]))
        for a, b in zip(tensors(found), tensors(expected), strict=True):
            assert a.requires_grad is b.requires_grad
    assert fast.stats().internal_errors == 0


def tensors(made: Any) -> list[Tensor]:
    return [t for t in (made if isinstance(made, (list, tuple)) else [made]) if type(t) is Tensor]


class Noted(Tensor):
    pass


def noted() -> Tensor:
    x: Any = torch.ones(3)
    x.note = "x"
    return x


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(3)),
        lambda: torch.ones(3).as_subclass(Noted),
        noted,
    ],
)
def test_what_is_more_than_memory_is_copied_by_eager(make: Callable[[], Tensor]) -> None:
    fast = anyshape.compile(copy.copy)
    fast(torch.ones(3))  # which has none of it
    x = make()
    ours, theirs = fast(x), copy.copy(x)
    assert type(ours) is type(theirs) and ours.requires_grad is theirs.requires_grad
    assert vars(ours) == vars(theirs) and ours.data_ptr() == x.data_ptr()


def test_a_copy_of_what_needs_gradients_is_a_leaf_as_in_eager_torch() -> None:
    def program(x: Tensor) -> Any:
        z = copy.copy(x * 2)
        return z.is_leaf, z.requires_grad, z * 3

    x = torch.ones(3, requires_grad=True)
    assert_same(anyshape.compile(program)(x), program(x))
