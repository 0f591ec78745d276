"""What the program says (a warning, a line in a log, a print) is heard by whom it tells to listen
before the program goes on, and may be looked at in the same call.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import anyshape
from anyshape.errors import GraphBreakError, PerformanceWarning

LOG = logging.getLogger("tests.listeners")


class Heard:
    """A place for what listens; a stream and a handler themselves."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.count = 0

    def write(self, text: str) -> None:
        self.count += 1

    def flush(self) -> None:
        pass


class Handler(logging.Handler):
    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.found.append(record.getMessage())


class Filter(logging.Filter):
    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self.heard = heard

    def filter(self, record: logging.LogRecord) -> bool:
        self.heard.count += 1
        return False


@contextlib.contextmanager
def recorded(heard: Heard) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as heard.found:  # type: ignore[assignment]
        warnings.simplefilter("always")
        yield


@contextlib.contextmanager
def shown(heard: Heard) -> Iterator[None]:
    def show(*args: Any, **named: Any) -> None:
        heard.count += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def printed(heard: Heard) -> Iterator[None]:
    with contextlib.redirect_stdout(heard):  # type: ignore[type-var]
        yield


@contextlib.contextmanager
def handled(heard: Heard) -> Iterator[None]:
    handler = Handler(heard)
    LOG.addHandler(handler)
    try:
        yield
    finally:
        LOG.removeHandler(handler)


@contextlib.contextmanager
def streamed(heard: Heard) -> Iterator[None]:
    """By a handler of the standard library, to a stream of the program's own."""
    handler = logging.StreamHandler(heard)  # type: ignore[type-var]
    LOG.addHandler(handler)
    try:
        yield
    finally:
        LOG.removeHandler(handler)


@contextlib.contextmanager
def filtered(heard: Heard) -> Iterator[None]:
    chosen = Filter(heard)
    LOG.addFilter(chosen)
    try:
        yield
    finally:
        LOG.removeFilter(chosen)


def warns(x: Any, heard: Any) -> Any:
    warnings.warn("careful", stacklevel=1)
    return x + 1, len(heard.found), heard.count


def compares(x: Any, heard: Any) -> Any:
    before = len(heard.found), heard.count
    warnings.warn("careful", stacklevel=1)
    return x + 1, len(heard.found) - before[0], heard.count - before[1]


def walks(x: Any, heard: Any) -> Any:
    warnings.warn("careful", stacklevel=1)
    return x + 1, [str(each.message) for each in heard.found], any(True for _ in heard.found)


def logs(x: Any, heard: Any) -> Any:
    LOG.warning("rows: %d", x.shape[0])
    return x + 1, list(heard.found), heard.count


def prints(x: Any, heard: Any) -> Any:
    print("rows", end="")
    return x + 1, heard.count


CASES = [
    *[(program, listens) for program in (warns, compares, walks) for listens in (recorded, shown)],
    *[(logs, handled), (logs, filtered), (logs, streamed), (prints, printed)],
]


@pytest.mark.parametrize("program, listens", CASES)
def test_it_is_heard_before_the_program_goes_on(program: Any, listens: Any) -> None:
    fast = anyshape.compile(program)
    for rows in (3, 3, 5):
        found = []
        for call in (program, fast):
            heard = Heard()
            with listens(heard):
                warnings.filterwarnings("ignore", category=PerformanceWarning)
                found.append(call(torch.ones(rows), heard)[1:])
        assert found[0] == found[1]
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("program, listens", CASES)
def test_in_one_graph_it_is_refused(program: Any, listens: Any) -> None:
    heard = Heard()
    with listens(heard), pytest.raises(GraphBreakError):
        anyshape.compile(program, fullgraph=True)(torch.ones(3), heard)


def test_who_listens_within_the_program_hears_it() -> None:
    def program(x: Any) -> Any:
        with warnings.catch_warnings(record=True) as found:
            warnings.warn(f"rows: {x.shape[0]}", RuntimeWarning, stacklevel=1)
            seen = any(issubclass(each.category, RuntimeWarning) for each in found)
        return x + 1, seen

    fast = anyshape.compile(program)
    for rows in (3, 4, 5):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            assert fast(torch.ones(rows))[1]


@pytest.mark.parametrize("program", [warns, compares])
def test_another_call_may_hand_in_what_is_recorded(program: Any) -> None:
    fast, other = anyshape.compile(program), Heard()
    for heard in (other, Heard(), Heard()):
        counts = []
        for call in (program, fast):
            with recorded(heard):
                handed = Heard() if heard is other else heard
                warnings.filterwarnings("ignore", category=PerformanceWarning)
                counts.append(call(torch.ones(3), handed)[1:])
        assert counts[0] == counts[1]


def test_a_list_that_nobody_reads_is_no_break() -> None:
    def program(x: Any) -> Any:
        warnings.warn("careful", stacklevel=1)
        warnings.warn("more careful", stacklevel=1)
        return x + 1

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 4):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            fast(torch.ones(rows))
        assert [str(each.message) for each in found] == ["careful", "more careful"]
    assert fast.stats().specializations == 1


def test_a_line_in_a_log_that_a_stream_hears_is_no_break() -> None:
    handler = logging.StreamHandler(io.StringIO())
    LOG.addHandler(handler)
    try:
        fast = anyshape.compile(
            lambda x: (LOG.warning("rows: %d", x.shape[0]), x + 1), fullgraph=True
        )
        for rows in (3, 4):
            fast(torch.ones(rows))
    finally:
        LOG.removeHandler(handler)
    assert handler.stream.getvalue() == "rows: 3\nrows: 4\n"


def test_what_an_installed_package_has_heard_is_read_behind_a_break(caplog: Any) -> None:
    def program(x: Any) -> Any:
        LOG.warning("rows: %d", x.shape[0])
        return x + 1, [each.getMessage() for each in caplog.records]

    fast = anyshape.compile(program)
    assert fast(torch.ones(3))[1] == ["rows: 3"]
    assert fast(torch.ones(4))[1] == ["rows: 3", "rows: 4"]
