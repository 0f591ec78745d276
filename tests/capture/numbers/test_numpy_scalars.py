"""numpy's scalars in a program are the numbers that torch takes them for."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[[Tensor, Tensor], Tensor]

PROGRAMS: dict[str, Program] = {
    "float32": lambda x, i: x * np.float32(2.5),
    "reflected": lambda x, i: np.float32(2.5) * x,
    "float64": lambda x, i: x * np.float64(2.5) + 1,
    "promotes": lambda x, i: i * np.float32(2.5),
    "ints": lambda x, i: i * np.int64(2) + np.int32(1),
    "a bool is a float": lambda x, i: i * np.bool_(True),
    "compared": lambda x, i: (x > np.float32(0.5)) & (i <= np.int64(5)),
    "arguments": lambda x, i: torch.add(x, np.float32(2)).clamp(np.float32(0), np.float32(1)),
    "sizes": lambda x, i: torch.zeros(np.int64(3), np.int64(2)) + torch.full((2,), np.float32(2)),
    "dimension": lambda x, i: x.reshape(np.int64(2), -1).sum(np.int64(0)),
    "of a size": lambda x, i: x / np.sqrt(x.shape[0]),
    "with a size": lambda x, i: torch.zeros(x.shape[0] * np.int64(2) + np.int32(1)),
    "float with a size": lambda x, i: x * (np.float64(0.5) * x.shape[0] + np.float32(1)),
    "functions": lambda x, i: x * np.log(10000.0) / np.sqrt(np.float32(3)),
    "in place": lambda x, i: x.clone().mul_(np.float32(3)),
    "tensor": lambda x, i: torch.tensor(np.float64(3)) + torch.tensor(np.float32(3)) + x,
    "arange": lambda x, i: torch.arange(np.int64(5)) * np.int64(2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_numpy_are_numbers(name: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program, fullgraph=True)
    for rows in (2, 1, 6, 0):
        x, i = torch.randn(rows, 4), torch.arange(rows * 4).reshape(rows, 4)
        torch.testing.assert_close(fast(x, i), program(x, i), equal_nan=True)
    assert fast.stats().specializations == 1


def test_a_complex_number_of_numpy_runs_natively() -> None:
    fast = anyshape.compile(lambda x: x * np.complex64(2))
    with pytest.warns(np.exceptions.ComplexWarning):
        torch.testing.assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))


def test_an_argument_of_numpy_is_not_baked_in() -> None:
    def program(x: Tensor, scale: np.float32) -> Tensor:
        return x * scale

    fast = anyshape.compile(program)
    x = torch.randn(5)
    for scale in (2.0, 3.0, 2.0, -1.5):
        torch.testing.assert_close(fast(x, np.float32(scale)), program(x, np.float32(scale)))
        torch.testing.assert_close(fast(x, np.float64(scale)), program(x, np.float64(scale)))


RESULTS: dict[str, Callable[[Tensor], object]] = {
    "equal": lambda x: x.shape[0] == np.int64(3),
    "less": lambda x: x.shape[0] < np.float64(3.5),
    "not": lambda x: not (x.shape[0] == np.int64(3)),
    "branch": lambda x: 1 if x.shape[0] > np.int32(3) else 2,
    "a product that a narrow float rounds": lambda x: x.shape[0] * np.float32(0.1),
    "and reflected": lambda x: np.float32(0.1) * x.shape[0],
    "a half": lambda x: x.shape[0] - np.float16(0.1),
    "a comparison that a narrow float rounds": lambda x: x.shape[0] * 0.1 == np.float32(0.3),
    "a wide float": lambda x: x.shape[0] + np.float64(0.1),
    "a wide float rounds nothing": lambda x: np.float64(0.5) * x.shape[0] + np.float32(0.1),
    "a computed float": lambda x: (x.shape[0] * 0.1) * np.float64(2),
    "a negative one": lambda x: -(x.shape[0] * np.float64(2)),
    "Python's again": lambda x: float(x.shape[0] * np.float64(2)),
    "a root": lambda x: np.sqrt(x.shape[0]),
    "of a root": lambda x: np.sqrt(x.shape[0]) * np.float32(0.1),
    "another function": lambda x: np.exp(x.shape[0]),
    "of a wide float": lambda x: np.exp(x.shape[0] * np.float64(0.2)),
    "a quotient": lambda x: x.shape[0] / np.float64(0.1),
    "a quotient by zero": lambda x: np.float64(1) / (x.shape[0] - 3),
    "a whole quotient": lambda x: np.int64(7) // x.shape[0],
    "a power": lambda x: x.shape[0] ** np.int64(2),
    "a quotient of integers": lambda x: x.shape[0] / np.int64(3),
    "of data and an integer": lambda x: x.sum().item() / np.int64(3),
    "bytes wrap": lambda x: np.uint8(100) * x.shape[0],
    "bytes with a sign": lambda x: np.int8(100) * x.shape[0],
    "below zero": lambda x: x.shape[0] - np.uint8(3),
    "negated bytes": lambda x: -(np.uint8(1) * x.shape[0]),
    "four bytes": lambda x: np.int32(2**30) * x.shape[0],
    "eight bytes": lambda x: np.int64(2**62) * x.shape[0],
    "shifted": lambda x: x.shape[0] << np.int64(62),
    "truths": lambda x: np.bool_(True) & (x.shape[0] > 3),
    "a truth turned": lambda x: ~(np.bool_(True) & (x.shape[0] > 3)),
    "a truth added": lambda x: np.bool_(True) + x.shape[0],
    "of data": lambda x: x.sum().item() * np.float32(0.1),
    "of an int of data": lambda x: int(x.sum()) * np.float32(0.1),
    "compared with data": lambda x: int(x.sum()) < np.int64(3),
    "its class": lambda x: type(x.shape[0] * np.float64(2)) is np.float64,
    "its text": lambda x: f"{x.shape[0] * np.float64(2)!r} {x.shape[0] * np.float64(2)}",
    "its methods": lambda x: (x.shape[0] * np.float64(2)).item(),
    "its dtype": lambda x: (x.shape[0] * np.float64(2)).dtype,
    "a key": lambda x: {2.0 * x.shape[0]: 1}.get(x.shape[0] * np.float64(2)),
    "a constant": lambda x: np.float32(0.1),
    "a wide constant": lambda x: np.float64(0.1),
}


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:overflow encountered")
@pytest.mark.parametrize("name", RESULTS)
def test_numbers_beside_numpys_are_of_numpys_classes(name: str) -> None:
    program = RESULTS[name]
    fast = anyshape.compile(lambda x: (x + 1, program(x)))
    for rows in (3, 4, 3, 5, 2):
        x = torch.ones(rows, dtype=torch.float64)
        ours, eager = fast(x)[1], program(x)
        assert type(ours) is type(eager)
        assert ours == eager
    assert fast.stats().internal_errors == 0


def integers(x: Tensor) -> tuple[object, ...]:
    n = x.shape[0]
    k = np.int64(2) * n
    both = (k * np.float32(0.5), k / 4, k + np.int32(1), n + np.int32(3), k & 3, k**2, k >> 1)
    alike = (max(k, np.int64(5)), min(k, k + 1), max(k, 7), sum([k, k]), abs(-k), -k)
    others = (int(k), float(k), round(k), math.floor(k), k.item(), repr(k), f"{k}")
    return (k, k // 2, k % 3, k > 7, type(k), isinstance(k, int), *both, *alike, *others)


def chosen(x: Tensor) -> tuple[object, ...]:
    n = x.shape[0]
    w, k = np.float64(0.5) * n, np.int64(1) * n
    if n > 5:
        one, other, whole, alike, small = w, w, k, k, Small.FIVE
    else:
        one, other, whole, alike, small = 2.5, np.float64(2.5), n, np.int64(5), n
    return one, other, whole, alike, small, max(w, 2.0), min(w, np.float64(2)), round(w, 1)


class Small(enum.IntEnum):
    FIVE = 5


def made(x: Tensor) -> list[Tensor]:
    n = x.shape[0]
    w, k = np.sqrt(n), np.int32(2) * n
    given = (w, [w, 1.0], -w, k, [k, k], k / 4, np.int64(2) * n)
    return [torch.tensor(number) for number in given] + [torch.as_tensor(w)]


def chosen_by_data(x: Tensor) -> tuple[object, ...]:
    n, s = x.shape[0], x.sum().item()
    wide = np.float64(1.5) * s if s > 5 else np.float64(1.5) * (s + 1)
    narrow = np.int32(3) * n if s > 5 else np.int32(2) * n
    alike = n if s > 5 else n + np.int64(0)
    mixed = 1.5 * s if s > 5 else np.float64(1.5) * s
    return wide, narrow, narrow * 10**8, alike, mixed, 2 * n if s > 5 else 3 * n


def compared(x: Tensor) -> tuple[object, ...]:
    n = x.shape[0]
    k, w = n + np.int64(2), n * np.float64(2)
    tuples = ((k,) == (n + 2,), [k] != [5], (k, 1) < (6, 0), x.shape == (k - 2,))
    odd = ({"a": Odd()} == {"a": Odd()}, {"a": Odd()} != {"a": Odd()}, [Odd()] == [Odd()])
    return (*tuples, {"a": k} == {"a": 5}, {"a": w} == {"a": 6.0}, k in (5,), *odd, n == k - 2)


class Odd:
    """Its comparisons give a text: containers of it give bools."""

    def __eq__(self, other: object) -> str:  # type: ignore[override]
        return "yes"


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("program", [integers, chosen, chosen_by_data, made, compared])
def test_what_is_computed_keeps_its_class(program: Callable[[Tensor], tuple[object, ...]]) -> None:
    fast = anyshape.compile(program)
    for rows in (3, 6, 5, 8):
        ours, eager = fast(torch.ones(rows)), program(torch.ones(rows))
        for a, b in zip(ours, eager, strict=True):
            assert (type(a), repr(a)) == (type(b), repr(b))
            assert not isinstance(b, Tensor) or a.dtype == b.dtype
    assert fast.stats().internal_errors == 0


def test_an_integer_of_numpys_is_a_size() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        k = np.int64(2) * x.shape[0]
        return torch.zeros(k, 3) + k, x.reshape(k // 2), x.new_ones(k + np.int32(1)), x.repeat(k)

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 4, 1, 0):
        torch.testing.assert_close(fast(torch.ones(rows)), program(torch.ones(rows)))
    assert fast.stats().specializations == 1


class Unit(np.float64):
    """A class of the program's whose base in C has no ``__getnewargs__`` of its own."""


LEAVING: dict[str, Callable[[np.generic], object]] = {
    "half": lambda n: n / 2,
    "in containers": lambda n: {"a": [n / 2], "b": (n > 0, n)},
    "of a class of the program's": lambda n: Unit(float(n) / 2),
    "text": lambda n: np.str_(f"{float(n)}"),
}
KINDS = (np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_, np.complex64)


@pytest.mark.parametrize("name", LEAVING)
@pytest.mark.parametrize("kind", (*KINDS, np.complex128), ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore")
def test_numbers_of_numpy_that_are_made_inside_leave_as_they_are(name: str, kind: type) -> None:
    program = LEAVING[name]
    fast = anyshape.compile(lambda x, n: (x * 2, program(n)))
    for number in (5, 0, 1):
        given, x = kind(number), torch.randn(number, 2)
        result, made = fast(x, given)
        assert torch.equal(result, x * 2)
        assert repr(made) == repr(program(given)) and type(made) is type(program(given))
    stats = fast.stats()
    assert not stats.internal_errors and not stats.graph_breaks
