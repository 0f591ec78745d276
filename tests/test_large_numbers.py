"""Python's numbers have no largest one: what int64 cannot hold is refused as by eager, never wrapped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

CONSTANTS = {
    "add": lambda x: x + 10**30,
    "multiply": lambda x: x * 2**64,
    "just fits": lambda x: x * 2**63,
    "negative": lambda x: x + (-(2**63) - 1),
    "compare": lambda x: x == 10**30,
    "clamp": lambda x: x.clamp(max=10**30),
    "fill": lambda x: torch.full((2,), 10**30) + x,
}
HANDED_IN = {
    "sum": lambda x, n: x + n,
    "square": lambda x, n: x * (n * n),
    "power of a size": lambda x, n: x * (x.shape[0] + n) ** 3,
}


def powers(n: Any, count: int) -> Any:
    return n * powers(n, count - 1) if count else 1


# Each in a native region with a product, whose C would wrap.
OF_SIZES = {
    "in front": lambda x: torch.softmax(x * powers(x.shape[0], 9), 0) @ x.T,
    "behind": lambda x: x @ x.T * -powers(x.shape[0], 9),
    "a sum": lambda x: x @ x.T + (3 * powers(x.shape[0], 9) - 2 * powers(x.shape[0], 8)),
    "by keyword": lambda x: torch.add(x @ x.T, 1, alpha=powers(x.shape[0], 9)),
    "a limit": lambda x: x.clamp(max=powers(x.shape[0], 9)) @ x.T,
    "filled": lambda x: torch.full((2,), powers(x.shape[0], 9)) + (x @ x.T).sum(),
    "a quotient that fits": lambda x: x @ x.T * (powers(x.shape[0], 9) // 4),
    "a rest": lambda x: x @ x.T * (powers(x.shape[0], 9) % 7),
    "read from data": lambda x: x @ x.T * powers(x.sum().long().item(), 8),
}


def outcome(fn: Any, *args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    same = torch.equal(ours, theirs) if isinstance(theirs, Tensor) else ours == theirs
    assert same, (ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_that_is_too_large_is_refused(name: str, dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype)
    assert_same(outcome(anyshape.compile(CONSTANTS[name]), x), outcome(CONSTANTS[name], x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", HANDED_IN)
def test_a_number_that_grows_too_large_is_refused_and_the_next_is_right(
    name: str, dtype: torch.dtype
) -> None:
    program, fast = HANDED_IN[name], anyshape.compile(HANDED_IN[name])
    for n in (3, 5, 10**30, 7, 2**31, 2**32, 2**40, 2**63 - 1, -(2**63), -(2**63) - 1, 2):
        for size in (1, 0, 3):
            x = torch.ones(size, dtype=dtype)
            assert_same(outcome(fast, x, n), outcome(program, x, n))


@pytest.mark.parametrize("name", OF_SIZES)
def test_a_size_that_is_multiplied_until_it_is_too_large_is_refused(name: str) -> None:
    program, fast = OF_SIZES[name], anyshape.compile(OF_SIZES[name])
    for n in (3, 127, 128, 200, 0, 1, 5):
        x = torch.ones(n, 2)
        assert_same(outcome(fast, x), outcome(program, x))
    assert fast.stats().specializations == 1
    assert "check_failed" in str(fast.code())


def test_sizes_that_fit_cost_no_check() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        n, m = x.shape
        return x[1:] * (3 * n + m) / (n // 2 + 1) + torch.arange(2 * m)[:m] + y.numel()

    fast = anyshape.compile(program)
    x = torch.randn(5, 3)
    torch.testing.assert_close(fast(x, x[0]), program(x, x[0]))
    assert "check_failed" not in str(fast.code())
