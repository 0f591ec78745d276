"""What C says of the process, locks that are made inside, and `bisect`: captured as CPython has it."""

from __future__ import annotations

import bisect
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference, in_one_graph

LOG: list[Any] = []


class Number:
    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: Number) -> bool:
        LOG.append((self.value, other.value))
        return self.value < other.value

    def __eq__(self, other: object) -> bool:
        return type(other) is Number and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


def bisected() -> Any:
    values = [1, 3, 3, 7]
    bisect.insort(values, 5)
    bisect.insort_left(values, 3, key=lambda n: -n)
    found = [getattr(bisect, name)(values, 3) for name in ("bisect_left", "bisect_right")]
    return values, found, bisect.bisect((1, 2, 3), 2, 0, 2), bisect.bisect_left([1, 2], 5, hi=-1)


def numbers_bisected() -> Any:
    values = [Number(n) for n in (1, 3, 3, 7)]
    bisect.insort_right(values, Number(3))
    position = bisect.bisect_left(values, Number(4), lo=1)
    return values, position, LOG[:]


def bisect_refuses() -> Any:
    found = []
    for args in (([1], 1, -1), ([1], "a"), (3, 1), ([1], 1, "a"), ([1, 2], 1, 0, 9)):
        try:
            found.append(bisect.bisect_right(*args))  # type: ignore[call-overload]
        except Exception as error:
            found.append((type(error), str(error)))
    return found


class Cached:
    @functools.cached_property
    def value(self) -> int:
        return 3


def locks() -> Any:
    lock, again = threading.Lock(), threading.RLock()
    with lock, again, again:
        held = lock.locked(), lock.acquire(blocking=False)
    return held, lock.locked(), Cached().value


def released_too_often() -> Any:
    try:
        threading.Lock().release()
    except RuntimeError as error:
        return str(error)
    return None


def a_lock_over_a_break() -> Any:
    lock = threading.RLock()
    with lock:
        time.perf_counter()
    time.perf_counter()
    return lock.acquire(blocking=False), lock.release()


def of_the_process() -> Any:
    same = sys.intern("a text") is sys.intern("a" + " text")
    return same, threading.get_ident(), sys.gettrace(), sys.get_int_max_str_digits()


PROGRAMS: list[Callable[[], Any]] = [
    bisected,
    numbers_bisected,
    bisect_refuses,
    locks,
    released_too_often,
    a_lock_over_a_break,
    of_the_process,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 3])
@pytest.mark.parametrize("work", PROGRAMS)
def test_it_is_as_cpython_has_it(work: Callable[[], Any], every: int) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, work()

    LOG.clear()
    wanted = work()
    fast = Compiled(program, Options(break_every=every), ByReference)
    for _ in range(2):
        LOG.clear()
        assert fast(torch.ones(2))[1] == wanted
    assert not fast.mistakes


@pytest.mark.parametrize("work", [bisected, locks, of_the_process])
def test_it_breaks_no_graph(work: Callable[[], Any]) -> None:
    in_one_graph(work)


def test_the_thread_that_calls_is_told() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, threading.get_ident()

    fast, found = anyshape.compile(program, fullgraph=True), []

    def call() -> None:
        found.append((fast(torch.ones(2))[1], threading.get_ident()))

    for _ in range(3):
        thread = threading.Thread(target=call)
        call()
        thread.start()
        thread.join()
    assert all(told == real for told, real in found)


def test_a_lock_that_is_given_back_is_another_one_in_each_call() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        lock = threading.Lock()
        with lock:
            y = y + 1
        return y, lock

    fast = anyshape.compile(program, fullgraph=True)
    first, second = fast(torch.ones(2))[1], fast(torch.ones(2))[1]
    assert first is not second
    assert first.acquire(blocking=False) and not second.locked()
