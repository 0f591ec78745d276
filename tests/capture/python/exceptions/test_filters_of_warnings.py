"""Filters of warnings that the function writes itself, and warnings behind that: who is shown what,
what is raised, and what stays in the process afterwards.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anyshape.capture.segments.filtered_warnings import HeardInC
from anyshape.errors import GraphBreakError, PerformanceWarning
from tests.capture.by_reference import compiled

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}
BROKEN: dict[str, Program] = {}


def program(fn: Program) -> Program:
    """One graph."""
    PROGRAMS[fn.__name__] = fn
    return fn


def broken(fn: Program) -> Program:
    """Right with a graph break."""
    BROKEN[fn.__name__] = fn
    return fn


class Own(DeprecationWarning):
    def __str__(self) -> str:
        return f"own {self.args}"


def texts(found: Any) -> list[tuple[str, Any, int, bool]]:
    return [(str(m.message), m.category, m.lineno, m.filename == __file__) for m in found]


# ---- in one graph --------------------------------------------------------------------------------
@program
def recorded(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        y = x + 1
        for _ in range(2):
            warnings.warn("careful", stacklevel=1)
        count = len(found)
        warnings.warn(Own(1), stacklevel=1)
        warnings.warn("later", FutureWarning, stacklevel=1)
    return y * 2, count, texts(found), [type(m.message) for m in found]


@program
def ignored(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("careful", stacklevel=1)
        return x * 2


@program
def raised(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        found: list[Any] = []
        for message, category in (("a", None), (Own("b"), None), ("c", Own), ("d", UserWarning)):
            try:
                warnings.warn(message, category, stacklevel=1)
                found.append(message)
            except Warning as error:
                lines = []
                traceback = error.__traceback__
                while traceback is not None:
                    lines.append(traceback.tb_lineno)
                    traceback = traceback.tb_next
                found.append((type(error), error.args, error.__context__, lines[-1:]))
    return x + len(found), found[1:3]


@program
def once_for_each_line(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for text in ("a", "b", "a"):
            warnings.warn(text, stacklevel=1)
        warnings.warn("a", stacklevel=1)
        first = texts(found)
        warnings.simplefilter("default")  # which begins anew
        for text in ("a", "a"):
            warnings.warn(text, stacklevel=1)
    return x + 1, first, texts(found)


@program
def once_for_each_module(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("module")
        warnings.warn("a", stacklevel=1)
        warnings.warn("a", stacklevel=1)
        warnings.warn("b", stacklevel=1)
    return x + 1, texts(found)


@program
def by_text_module_and_line(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", message="care", category=UserWarning)
        warnings.filterwarnings("always", module=__name__.partition(".")[0], category=Own)
        warnings.filterwarnings("always", module="nowhere", category=FutureWarning)
        warnings.filterwarnings("always", category=BytesWarning, lineno=1)
        for text, category in (
            ("careful", None), ("calm", None), ("careful", FutureWarning), ("x", Own),
            ("careful", BytesWarning),
        ):  # fmt: skip
            warnings.warn(text, category, stacklevel=1)
    return x + 1, texts(found)


@program
def nested(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as outer:
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as inner:
            warnings.warn("a", stacklevel=1)
        warnings.warn("b", stacklevel=1)
    return x + 1, texts(outer), texts(inner)


@program
def shown_by_the_program(x: Any) -> Any:
    found = []

    def show(message: Any, category: Any, filename: Any, lineno: Any, *rest: Any) -> None:
        found.append((str(message), category, lineno, rest))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        warnings.warn("careful", stacklevel=1)
    return x + 1, found


def helper() -> None:
    warnings.warn("of my caller", stacklevel=2)


@program
def of_a_caller(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        helper()
    return x + 1, texts(found)


@program
def to_a_stream(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("to a stream", stacklevel=1)
    warnings.warn("and once more", stacklevel=1)
    return x + 1


@program
def left_written(x: Any) -> Any:
    warnings.simplefilter("ignore", Own)
    warnings.warn("a", Own, stacklevel=1)
    return x + 1


@program
def of_a_number(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn(3, UserWarning, stacklevel=1)  # type: ignore[call-overload]
    return x + 1, found[0].message.args  # type: ignore[union-attr]


@program
def entered_twice(x: Any) -> Any:
    context = warnings.catch_warnings()
    with context:
        try:
            context.__enter__()
        except RuntimeError as error:
            return x + 1, type(error)


# ---- with a break --------------------------------------------------------------------------------
@broken
def of_c(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        truth = not NotImplemented
    return x + 1, truth, [str(m.message)[:20] for m in found]


@broken
def of_c_as_an_error(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return x + 1, not NotImplemented
        except DeprecationWarning as error:
            return x + 2, str(error)[:20]


@broken
def of_a_compiler(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        value = eval("1 is 1")
    return x + 1, value, [m.category for m in found]


@broken
def over_a_break(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn("a", stacklevel=1)
        time.sleep(0)
        warnings.warn("b", stacklevel=1)
    return x + 1, texts(found)


@broken
def once_for_all(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("once")
        warnings.warn("for all", stacklevel=1)
        warnings.warn("for all", stacklevel=1)
    return x + 1, len(found) <= 1


@broken
def a_break_where_it_is_shown(x: Any) -> Any:
    found = []

    def show(message: Any, *rest: Any) -> None:
        time.sleep(0)
        found.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show  # type: ignore[assignment]
        warnings.warn("careful", stacklevel=1)
    return x + 1, found


@broken
def its_registry(x: Any) -> Any:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("default")
        warnings.warn("noted", stacklevel=1)
    noted = [key for key in globals()["__warningregistry__"] if key != "version"]
    return x + 1, [(text, kind) for text, kind, _ in noted]


@broken
def of_an_operator(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        y = torch.nn.functional.mse_loss(x, x[:, None])
    return y, [m.category for m in found]


ALL = {**PROGRAMS, **BROKEN}
NOTES = 2


def outcome(call: Program, x: Any) -> Any:
    """What it gives, what it prints, and which filters and notes it leaves."""
    before = vars(warnings)["filters"], warnings.showwarning
    globals().pop("__warningregistry__", None)
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        result = call(x)
    registry = globals().get("__warningregistry__", {})
    notes = {key for key in registry if key != "version" and key[1] is not PerformanceWarning}
    after = vars(warnings)["filters"], warnings.showwarning
    restored = [a is b for a, b in zip(before, after, strict=True)]
    return result[1:] if isinstance(result, tuple) else (), stream.getvalue(), notes, restored


def check(name: str, **options: Any) -> Any:
    call = ALL[name]
    fast = compiled(call, **options)
    for rows in (3, 3, 0):
        x = torch.ones(rows)
        found = []
        for each in (call, fast):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("default", UserWarning)
                filters = list(warnings.filters)
                found.append(outcome(each, x))
                found[-1] += (warnings.filters[: -len(filters)],)
        if not options["fullgraph"]:  # ours, where a call ends, have filters of their own
            found = [tuple(part for i, part in enumerate(each) if i != NOTES) for each in found]
        assert found[1] == found[0], (found[1], found[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted, got = call(x), fast(x)
        first = wanted[0] if isinstance(wanted, tuple) else wanted
        torch.testing.assert_close(got[0] if isinstance(got, tuple) else got, first, equal_nan=True)
    assert not fast.mistakes, fast.mistakes
    return fast


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_written_in_one_graph(name: str) -> None:
    check(name, fullgraph=True)


@pytest.mark.parametrize("name", BROKEN)
def test_where_c_is_asked_there_is_a_break(name: str) -> None:
    check(name, fullgraph=False)
    with pytest.raises(GraphBreakError):
        compiled(BROKEN[name], fullgraph=True)(torch.ones(3))


OF_C = ("of_c", "of_c_as_an_error", "of_a_compiler")
"""Behind a break, C asks the filters of the process while capture runs it, and warns there alone."""


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", [name for name in ALL if name not in OF_C])
def test_a_break_may_come_anywhere(name: str, every: int) -> None:
    check(name, fullgraph=False, break_every=every)


def test_the_filters_of_the_process_are_its_own_while_one_captures() -> None:
    with warnings.catch_warnings():
        before = list(warnings.filters)
        fast = compiled(recorded, fullgraph=True)
        fast(torch.ones(2))
        assert warnings.filters == before
        fast = compiled(of_c, fullgraph=True)
        with pytest.raises(GraphBreakError):
            fast(torch.ones(2))
        assert warnings.filters == before


def test_other_threads_are_warned_meanwhile() -> None:
    """By the filters that the process has."""
    found: list[str] = []
    stop = threading.Event()

    def warns() -> None:
        while not stop.is_set():
            warnings.warn("another", stacklevel=1)
            found.append("it went on")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thread = threading.Thread(target=warns)
        thread.start()
        try:
            compiled(ignored, fullgraph=True)(torch.ones(2))
        finally:
            stop.set()
            thread.join()
    assert found


def test_what_another_thread_has_copied_of_the_filters_breaks_nothing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By `catch_warnings`, while something is captured."""
    heard = HeardInC(filters := [("always", None, UserWarning, None, 0)])
    copied = filters[:]
    heard.end()
    assert len(filters) == 1 and len(copied) == 2
    with warnings.catch_warnings(record=True) as found:
        monkeypatch.setattr(warnings, "filters", copied)
        warnings.warn("careful", stacklevel=1)
    assert [str(each.message) for each in found] == ["careful"]
