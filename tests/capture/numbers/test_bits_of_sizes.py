"""`&`, `|`, `^`, shifts and `bit_length()` of sizes: no size is asked for its value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.capture.sizes.bits import with_constant

OPERATORS = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
X = torch.zeros(3)
SIZES = (8, 5, 0, 1, 2, 16, 33)


@pytest.mark.parametrize("op", OPERATORS)
def test_arithmetic_with_a_constant_is_what_its_bits_say(op: str) -> None:
    constants = [c for c in range(-70, 70) if with_constant(op, 1, c) is not None]
    assert len(constants) > 130  # of these, all have few runs of ones
    for c in (*constants, 2**61, -(2**62), 2**62 - 1):
        for a in range(-70, 70):
            assert with_constant(op, a, c) == OPERATORS[op](a, c)


def test_a_constant_of_many_runs_is_left_to_each_call() -> None:
    assert with_constant("&", 1, 0b10101010101) is None
    assert with_constant("&", 1, ~0b10101010101) is None
    assert with_constant("&", 1, 2**62) is None


def of(function: Callable[[int, int], Any]) -> Callable[[Tensor], Any]:
    return lambda x: (function(*x.shape), x.sum() + function(*x.shape))


PROGRAMS = {
    "rounded up to eights": of(lambda n, k: (n + 7) & ~7),
    "a mask": of(lambda n, k: n & 0b1101),
    "of a negative number": of(lambda n, k: (-n & 0b110) + (~n | 4) + (-n ^ 9)),
    "a constant in front": of(lambda n, k: (12 & n) - (3 | n) + (5 ^ n)),
    "many runs": of(lambda n, k: n & 0b10101010101),
    "two sizes": of(lambda n, k: (n & k) + (n | k) * 2 + (n ^ k) * 3),
    "the lowest bit that is set": of(lambda n, k: n & -n),
    "shifted by a size": of(lambda n, k: (n >> k) + (-n >> k) + (5 << k)),
    "how many bits": of(lambda n, k: n.bit_length() + (-n).bit_length()),
    "the next power of two": of(lambda n, k: 1 << (n - 1).bit_length()),
    "that as a power": of(lambda n, k: 2 ** (n - 1).bit_length() + 4 ** n.bit_length()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_of_sizes_are_worked_out_by_each_call(name: str) -> None:
    fast = anyshape.compile(PROGRAMS[name], fullgraph=True)
    for n in SIZES:
        x = torch.randn(n, 3, dtype=torch.float64)
        torch.testing.assert_close(fast(x), PROGRAMS[name](x))
    assert fast.stats().specializations == 1


def test_padding_to_a_power_of_two_is_compiled_once() -> None:
    def padded(x: Tensor) -> Tensor:
        missing = (1 << (x.shape[0] - 1).bit_length()) - x.shape[0]
        return torch.nn.functional.pad(x, (0, 0, 0, missing)) * 2

    fast = anyshape.compile(padded, fullgraph=True)
    for n in (8, 5, 1, 2, 33):
        x = torch.randn(n, 3)
        assert torch.equal(fast(x), padded(x))
    assert fast.stats().specializations == 1


def test_whether_a_size_is_a_power_of_two_guards_no_size() -> None:
    def chosen(x: Tensor) -> Tensor:
        n = x.shape[0]
        return x.sin() if n & (n - 1) == 0 else x.cos()

    fast = anyshape.compile(chosen, fullgraph=True)
    for n in (5, 8, 6, 7, 16, 32, 3, 64, 12):
        x = torch.randn(n, 3)
        torch.testing.assert_close(fast(x), chosen(x))
    assert fast.stats().specializations <= 3


def test_a_shift_by_a_negative_size_raises_as_in_eager() -> None:
    def shifted(x: Tensor) -> tuple[int, int]:
        return x.shape[0] >> (4 - x.shape[0]), 3 << (4 - x.shape[0])

    fast = anyshape.compile(shifted)
    for n in (3, 4, 1, 0):
        assert fast(torch.zeros(n)) == shifted(torch.zeros(n))
    for n in (5, 9):
        with pytest.raises(ValueError, match="negative shift count"):
            fast(torch.zeros(n))


def test_a_shift_past_what_a_size_holds_is_an_int_of_python() -> None:
    def shifted(x: Tensor) -> tuple[int, int]:
        return 3 << x.shape[0], 2 ** x.shape[0]

    fast = anyshape.compile(shifted)
    for n in (3, 60, 61, 62, 63, 80, 5):
        assert fast(torch.zeros(n)) == shifted(torch.zeros(n))


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_shift_that_is_not_asked_for_is_not_worked_out(fullgraph: bool) -> None:
    def program(x: Tensor, k: int) -> int:
        return 1 << k if k < 20 else 0

    def powers(x: Tensor, k: int) -> int:
        return 2**k if 0 <= k < 200 else 0

    for function in (program, powers):
        fast = anyshape.compile(function, fullgraph=fullgraph)
        for k in (5, 3, 7, 2**40, 2**64, 19, 60, 61, 62, 63, 100, 300, 250, 2):
            assert fast(X, k) == function(X, k)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_shift_of_many_digits(fullgraph: bool) -> None:
    fast = anyshape.compile(lambda x, k: (1 << k, x + 1), fullgraph=fullgraph)
    for k in (5, 3, 10**5, 4, 10**5 + 1):
        assert fast(X, k)[0] == 1 << k


@pytest.mark.parametrize("fullgraph", [True, False])
def test_an_int_of_many_digits_may_be_handed_in(fullgraph: bool) -> None:
    fast = anyshape.compile(lambda x, k: (k + 1, x + 1), fullgraph=fullgraph)
    for k in (10**5000, 10**5000 + 1, 3, 4, -(10**5000)):
        assert fast(X, k)[0] == k + 1
