"""A generator that nothing happens to when it is dropped may be dropped anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

import anyshape


class Rows(Sequence[float]):
    """Its `__iter__` is collections.abc's: a generator with an `except IndexError` in it."""

    def __init__(self, *rows: float) -> None:
        self.rows = rows

    def __getitem__(self, index: int) -> float:  # type: ignore[override]
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


def first(x: Tensor) -> Tensor:
    return x * next(iter(Rows(2.0, 3.0)))


def found(x: Tensor) -> Tensor:
    return x * 2 if 2.0 in Rows(2.0, 3.0) else x


def any_of(x: Tensor) -> Tensor:
    return x * 2 if any(row > 1 for row in Rows(2.0, 3.0)) else x


def left(x: Tensor) -> Tensor:
    for row in Rows(2.0, 3.0):
        x = x * row
        break
    return x


def zipped(x: Tensor) -> Tensor:
    return x * sum(a * b for a, b in zip((1.0,), Rows(2.0, 3.0)))


@pytest.mark.parametrize("program", [first, found, any_of, left, zipped])
def test_dropping_it_is_no_break(program: Callable[[Tensor], Tensor]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 0):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x), program(x))
    assert fast.stats().specializations == 1


def test_an_except_that_wants_the_exit_sees_it() -> None:
    def rows(log: list[str]) -> Iterator[float]:
        try:
            yield 2.0
        except BaseException:
            log.append("closed")
            raise

    def program(x: Tensor) -> tuple[Tensor, list[str]]:
        log: list[str] = []
        for row in rows(log):
            x = x * row
            break
        log.append("end")
        return x, log

    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(torch.ones(3))[1] == program(torch.ones(3))[1] == ["closed", "end"]
