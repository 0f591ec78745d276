"""functools.lru_cache: a remembered call is the value that it gave."""

from __future__ import annotations

import functools
import logging

import torch
from torch import Tensor

import anyshape


def test_a_remembered_call_of_constants_is_a_constant() -> None:
    calls: list[object] = []

    @functools.lru_cache
    def table(n: int) -> float:
        calls.append(n)
        return n * 2.0

    @functools.lru_cache
    def warn_once(message: str) -> None:
        calls.append(message)

    def program(x: Tensor) -> Tensor:
        warn_once("slow")
        return x * table(3)

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 1, 0, 17):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(fast(x), x * 6)
    assert calls == ["slow", 3]
    assert fast.stats().specializations == 1


def test_one_of_sizes_is_called_natively() -> None:
    @functools.lru_cache
    def table(n: int) -> float:
        return n * 2.0

    fast = anyshape.compile(lambda x: x * table(x.shape[0]))
    for rows in range(12):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(fast(x), x * 2.0 * rows)
    assert fast.stats().specializations <= 3


def test_arange_by_its_end_alone() -> None:
    fast = anyshape.compile(
        lambda x: torch.arange(end=x.shape[0]) + torch.arange(start=1, end=x.shape[0] + 1),
        fullgraph=True,
    )
    for rows in (3, 1, 0, 17):
        expected = 2 * torch.arange(rows) + 1
        torch.testing.assert_close(fast(torch.randn(rows)), expected)


def test_what_a_logger_says_once_is_no_break() -> None:
    log = logging.getLogger(f"{__name__}.once")

    @functools.lru_cache
    def warning_once(logger: logging.Logger, text: str) -> None:
        logger.warning(text)

    def program(x: torch.Tensor) -> torch.Tensor:
        warning_once(log, f"rank {x.ndim}")
        return x + 1

    fast = anyshape.compile(program, fullgraph=True)
    said: list[str] = []
    log.addFilter(lambda record: bool(said.append(record.getMessage())))
    for length in (3, 2, 17):
        fast(torch.ones(length))
    fast(torch.ones(2, 2))
    assert said == ["rank 1", "rank 2"]


@functools.lru_cache
def table(count: int) -> torch.Tensor:
    return torch.arange(count) ** 0.5


def test_a_remembered_tensor_is_indexed() -> None:
    fast = anyshape.compile(lambda x: x + table(3)[:, None] * table(3)[1])
    for width in (2, 1, 5):
        x = torch.randn(3, width)
        torch.testing.assert_close(fast(x), x + table(3)[:, None])
    assert fast.stats().specializations == 1


def test_an_argument_that_has_no_hash_is_refused_before_the_call() -> None:
    @functools.lru_cache
    def remembered(*args: object) -> int:
        return len(args)

    def said(*args: object) -> object:
        try:
            return remembered(*args)
        except TypeError as error:
            return str(error)

    def program(x: Tensor) -> object:
        y = x + 1
        return said([1], y), said((1, {}), y), said(1, y), y * 2

    for way in ({"fullgraph": True}, {"options": {"break_every": 1}}):
        found = anyshape.compile(program, **way)(torch.ones(2))
        assert found[:3] == program(torch.ones(2))[:3]
