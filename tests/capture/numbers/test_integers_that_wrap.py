"""Integers of numpy's that are computed from sizes and data are those of numpy, which have so many
bits and no more, whatever is beside them and however large a size is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import anyshape

TWO, NARROW = np.int64(2), np.int32(2)
SIZES: dict[str, Callable[[int], object]] = {
    "a generator": lambda n: ((n + TWO) * 6364136223846793005 + 1442695040888963407) % 1000,
    "a product": lambda n: (n + TWO) * 2**60,
    "of a large size": lambda n: (n * TWO * 2**28, (n + TWO) * (n + TWO), n + TWO),
    "a power": lambda n: ((n + TWO) * 10**9) ** 2,
    "compared": lambda n: (n + TWO) * 2**61 > 0,
    "a quotient": lambda n: (n + TWO) * (2**58 + 1) / 3,
    "the least": lambda n: -(n * NARROW - 2**31),
    "the least one's size": lambda n: abs(n * NARROW - 2**31),
    "narrow": lambda n: (n * NARROW - 10) * 5 * 10**8,
    "too large": lambda n: (n * NARROW - 10) * 5 + 2**31,
    "too large for each": lambda n: (n + TWO) + 2**63,
}


def outcome(program: Callable[..., object], *args: object) -> str:
    try:
        return repr(program(*args))
    except (OverflowError, TypeError, RuntimeError) as error:
        return repr(error)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", SIZES)
def test_what_has_too_many_bits_wraps(name: str) -> None:
    program = lambda x: SIZES[name](x.shape[0])
    fast = anyshape.compile(program)
    for rows in (0, 3, 2**32, 5):
        x = torch.zeros(1).expand(rows)
        assert outcome(fast, x) == outcome(program, x)
    assert fast.stats().internal_errors == 0


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_what_data_makes_wrap_wraps() -> None:
    def program(x: Tensor) -> object:
        s = int(x.sum())
        return (s + TWO) * 3, x.nonzero().shape[0] * NARROW * 2**28

    fast = anyshape.compile(program)
    for number in (1, 2**61, -5, 2**63 - 1):
        for rows in (1, 5):
            x = torch.zeros(rows, dtype=torch.int64)
            x[0] = number
            assert outcome(fast, x) == outcome(program, x)
    assert fast.stats().internal_errors == 0


REFUSED: dict[str, Callable[[Tensor, np.int64], object]] = {
    "pieces": lambda x, k: x.split(k),
    "pieces of a function": lambda x, k: torch.split(x, split_size_or_sections=k),
    "pieces in C": lambda x, k: torch.split_with_sizes(x, k),  # type: ignore[arg-type]
    "dimensions": lambda x, k: torch.tensordot(x, x, k),  # type: ignore[arg-type]
    "a whole number": lambda x, k: math.trunc(k),
    "others are taken": lambda x, k: (x.chunk(k), x.split([k, k - k]), x.narrow(0, k - 1, 1)),
    "rounded as a float": lambda x, k: (math.floor(k * 2**40 * 2**12 + k), math.ceil(k)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_wants_an_int_refuses_them(name: str) -> None:
    program = lambda x, k: REFUSED[name](x, k)
    computed = lambda x: REFUSED[name](x, x.shape[0] * np.int64(1))
    x = torch.ones(3)
    for f, args in ((computed, (x,)), (program, (x, np.int64(3)))):
        assert outcome(anyshape.compile(f), *args) == outcome(f, *args)


def test_small_integers_of_numpys_cost_one_specialization() -> None:
    def program(x: Tensor) -> Tensor:
        k = x.shape[0] + TWO
        for i in range(4):
            k = k * 2 + np.int64(i)
        return x + k // 3

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 0, 70000):
        assert torch.equal(fast(torch.ones(rows)), program(torch.ones(rows)))
    assert fast.stats().specializations == 1
