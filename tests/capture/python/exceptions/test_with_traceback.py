"""`BaseException.with_traceback`, which every `assertRaises` of unittest calls: a write to what raising
writes to as well, in one graph where the exception and the traceback were made inside."""

from __future__ import annotations

import time
import unittest
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

CASE = unittest.TestCase()


def raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def lines(found: Any) -> list[tuple[str, int]]:
    """Where it says that an exception went through."""
    names = []
    while found is not None:
        names.append((found.tb_frame.f_code.co_name, found.tb_lineno))
        found = found.tb_next
    return names


def without_one() -> Any:
    error = raised("first")
    same = error.with_traceback(None) is error
    return error, same, error.__traceback__


def of_another_one() -> Any:
    first, second = raised("first"), raised("second")
    before = lines(second.__traceback__)
    second.with_traceback(first.__traceback__)
    shared = second.__traceback__ is first.__traceback__
    time.perf_counter()
    still = second.__traceback__ is first.__traceback__
    return first, second, shared, still, before, lines(second.__traceback__)


def kept_in_a_name() -> Any:
    error = raised("first")
    kept = error.__traceback__
    error.with_traceback(None)
    time.perf_counter()
    emptied = error.__traceback__ is None
    error.with_traceback(kept)
    time.perf_counter()
    return error, emptied, error.__traceback__ is kept, lines(kept)


def raised_again() -> Any:
    error = raised("first")
    try:
        raise error.with_traceback(None)
    except ValueError as other:
        return other, other is error, lines(other.__traceback__)


def raised_with_more_lines() -> Any:
    first = raised("first")
    try:
        raise KeyError("second").with_traceback(first.__traceback__) from first
    except KeyError as error:
        return error, error.__cause__ is first, lines(error.__traceback__)


def while_it_is_handled() -> Any:
    try:
        try:
            {}["a"]
        except KeyError as error:
            error.with_traceback(None)
            int("b")
    except ValueError as error:
        context: Any = error.__context__
        return error, context, context.__traceback__, lines(error.__traceback__)


def asserted() -> Any:
    with CASE.assertRaises(ValueError) as first:
        int("a")
    with CASE.assertRaisesRegex(KeyError, "b"):
        {}["b"]
    try:
        with CASE.assertRaises(ValueError):
            {}["c"]
    except KeyError as error:
        second = error
    return first.exception, first.exception.__traceback__, second, lines(second.__traceback__)


class Strict(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        return "of the class"


def of_a_class_with_its_own() -> Any:
    try:
        raise Strict
    except Strict as error:
        time.perf_counter()
        return error.with_traceback(None) is error, error.__traceback__


class Logging(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        LOG.append(name)
        super().__setattr__(name, value)


LOG: list[str] = []


def of_a_class_that_watches_writes() -> Any:
    LOG.clear()
    try:
        try:
            raise Logging("first")
        except Logging as error:
            time.perf_counter()
            raise error.with_traceback(None) from KeyError("a")
    except Logging as error:
        error.text = "set"  # type: ignore[attr-defined]
        return error, lines(error.__traceback__), list(LOG)


def not_suppressed() -> Any:
    error = raised("first")
    error.__cause__ = KeyError("a")
    error.__suppress_context__ = False
    time.perf_counter()
    return error, error.__suppress_context__


def refused() -> Any:
    found = []
    for wrong in (3, "text", ()):
        try:
            raised("first").with_traceback(wrong)  # type: ignore[arg-type]
        except TypeError as error:
            found.append(str(error))
    return found


PROGRAMS: list[Callable[[], Any]] = [
    without_one,
    of_another_one,
    kept_in_a_name,
    raised_again,
    raised_with_more_lines,
    while_it_is_handled,
    asserted,
    of_a_class_with_its_own,
    of_a_class_that_watches_writes,
    not_suppressed,
    refused,
]


def shown(value: Any) -> Any:
    """What is compared of a result: an exception by its class, text, lines and context."""
    if isinstance(value, BaseException) and not isinstance(value, Strict):
        parts = value.__context__, value.__cause__, value.__suppress_context__
        return type(value), str(value), lines(value.__traceback__), shown(parts)
    return type(value)(map(shown, value)) if type(value) in (list, tuple) else value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("work", PROGRAMS)
def test_it_is_as_cpython_has_it(work: Callable[[], Any], every: int) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        result = work()
        return y * 2, result

    wanted = shown(program(torch.ones(2))[1])
    fast = Compiled(program, Options(break_every=every), ByReference)
    for _ in range(3):
        assert shown(fast(torch.ones(2))[1]) == wanted
    assert not fast.mistakes


@pytest.mark.parametrize("work", [without_one, raised_again, raised_with_more_lines, asserted])
def test_it_breaks_no_graph(work: Callable[[], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, work()

    fast = anyshape.compile(program, fullgraph=True)
    assert shown(fast(torch.ones(2))[1]) == shown(work())


def test_an_exception_from_outside_is_written_to_once() -> None:
    def program(x: torch.Tensor, error: BaseException) -> Any:
        y = x + 1
        return y * 2, error.with_traceback(None)

    fast = anyshape.compile(program)
    for _ in range(3):
        error = raised("outside")
        assert fast(torch.ones(2), error)[1] is error
        assert error.__traceback__ is None


def test_a_traceback_from_outside_is_itself() -> None:
    def program(x: torch.Tensor, found: Any) -> Any:
        y = x + 1
        return y * 2, ValueError("inside").with_traceback(found)

    fast = anyshape.compile(program)
    for _ in range(3):
        found = raised("outside").__traceback__
        assert fast(torch.ones(2), found)[1].__traceback__ is found


@pytest.mark.parametrize("limit", [2, 4])
def test_one_side_of_a_branch_writes(limit: int) -> None:
    def on_sizes(x: torch.Tensor) -> Any:
        y = x + 1
        error = raised("first")
        if x.shape[0] > 3:
            error.with_traceback(None)
        return y * 2, error

    def on_data(x: torch.Tensor) -> Any:
        error = raised("first")
        y = x + 1
        if x.sum() > 3:
            error.with_traceback(None)
            y = x + 2
        return y * 2, error

    def raised_again(x: torch.Tensor) -> Any:
        error = raised("first")
        y = x + 1
        if x.shape[0] > 3:
            try:
                raise error
            except ValueError:
                y = x + 2
        return y * 2, error

    for program in (on_sizes, on_data, raised_again):
        fast = anyshape.compile(program)
        for n in (limit, 6 - limit, limit):
            result, error = fast(torch.ones(n))
            wanted, other = program(torch.ones(n))
            assert torch.equal(result, wanted)
            assert shown(error) == shown(other)
