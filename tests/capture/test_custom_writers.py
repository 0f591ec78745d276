"""Operators of the program's own (`torch.library`) that write arguments: every value that shares
the memory is what eager's is, and they end no segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import anyshape


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[Any]:
    made = torch.library.Library("anyshape_writers", "DEF")
    made.define("move(Tensor(a!) x, Tensor y) -> Tensor")
    made.define("fill(Tensor x, *, Tensor(a!) out) -> ()")
    made.define("both(Tensor(a!) x, Tensor(b!)? y=None) -> (Tensor(a!), Tensor)")
    made.define("list(Tensor(a!)[] x) -> ()")

    def move(x, y):
        x.add_(y)
        return x.sum()

    def fill(x, *, out):
        out.copy_(x * 2)

    def both(x, y=None):
        x.mul_(2)
        if y is not None:
            y.add_(1)
        return x, x + 1

    def in_list(x):
        x[0].add_(1)

    for key in ("CPU", "Meta"):
        for function in (move, fill, both):
            made.impl(function.__name__, function, key)
        made.impl("list", in_list, key)
    yield made
    made._destroy()


def ops() -> Any:
    return torch.ops.anyshape_writers


def argument(x, y):
    before = x * 2
    total = ops().move(x, y)
    return before, x * 2, total


def made_here(x, y):
    z = x * 1.5
    before = z * 2
    total = ops().move(z, y)
    return z * 2, before, total


def view_of_made(x, y):
    z = x * 1.5
    rows = z[:1]
    ops().move(rows, y[:1])
    return z * 2, rows


def view_of_argument(x, y):
    rows = x[1:]
    before = rows * 2
    ops().move(x, y)
    return before, rows * 2, rows


def into_new(x, y):
    out = torch.empty_like(x)
    ops().fill(x + y, out=out)
    return out + 1


def gives_back(x, y):
    same, other = ops().both(x, y)
    return same * 1, other, y + 0


def without_the_optional(x, y):
    same, other = ops().both(x + 0)
    return same, other


def twice(x, y):
    z = torch.relu(x)
    return ops().move(z, y), ops().move(z, y), z, torch.relu(x)


@pytest.mark.parametrize(
    "program",
    [argument, made_here, view_of_made, view_of_argument, into_new, gives_back,
     without_the_optional, twice],
)  # fmt: skip
def test_what_a_custom_operator_writes_is_seen_wherever_it_lies(
    program: Callable[..., Any],
) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for n in (3, 1, 0, 2, 17):
        x, y = torch.randn(n, 2), torch.randn(n, 2)
        given = x.clone(), y.clone()
        expected, found = program(x, y), fast(*given)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(given, (x, y), rtol=0, atol=0)
        assert [a._version > 0 for a in given] == [a._version > 0 for a in (x, y)]
    assert fast.stats().specializations <= 2  # a view of one row may be guarded on its length


def reads_what_it_writes(x, y):
    z = x * 2
    ops().move(z, z)
    return z


def writes_it_twice(x, y):
    z = x * 2
    same, other = ops().both(z, z)
    return same * 1, other, z


def writes_a_view_of_it(x, y):
    z = x * 2
    same, other = ops().both(z, z[:1])
    return same * 1, other, z


def writes_a_list(x, y):
    z = x * 2
    ops().list([z, y])
    return z * 3


@pytest.mark.parametrize(
    "program", [reads_what_it_writes, writes_it_twice, writes_a_view_of_it, writes_a_list]
)
def test_what_cannot_be_told_apart_runs_natively(program: Callable[..., Any]) -> None:
    fast = anyshape.compile(program)
    for n in (3, 1, 2):
        x, y = torch.randn(n, 2), torch.randn(n, 2)
        torch.testing.assert_close(fast(x, y), program(x, y))
