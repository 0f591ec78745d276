"""What an exception keeps alive, and what does not outlive it; who is who among objects that the end
of a segment makes anew."""

from __future__ import annotations

import contextlib
import io
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference

LOG: list[Any] = []


class Object:
    pass


def guarded(values: list[int]) -> Iterator[int]:
    try:
        yield from values
    finally:
        LOG.append("closed")


def locals_live_as_long_as_the_traceback() -> Any:
    found: list[Any] = []

    def raising() -> None:
        held = Object()
        found.append(weakref.ref(held))
        raise KeyError

    try:
        raising()
    except KeyError as error:
        names = [*error.__traceback__.tb_next.tb_frame.f_locals]  # type: ignore[union-attr]
        alive = found[0]() is not None
    return names, alive, found[0]() is None


def generators_on_a_stack_are_closed_where_the_frame_is_left() -> Any:
    def raising() -> None:
        for _ in guarded([1, 2]):
            time.perf_counter()
            raise KeyError

    try:
        raising()
    except KeyError:
        LOG.append("handled")
    return list(LOG)


def generators_in_locals_are_closed_with_the_traceback() -> Any:
    def raising() -> None:
        time.perf_counter()
        values = guarded([1, 2])
        next(values)
        raise KeyError

    try:
        raising()
    except KeyError:
        LOG.append("handled")
    return list(LOG)


def bound_methods_that_were_looked_at() -> Any:
    values: list[int] = []
    append = values.append
    name = append.__name__
    time.perf_counter()
    append(1)
    return name, values, append.__self__ is values


class Listing(Counter[str]):
    def items(self) -> Any:
        LOG.append("items")
        return super().items()


def views_of_a_class_with_methods_of_their_names() -> Any:
    counts = Listing("aab")
    shown = counts.items()
    time.perf_counter()
    return sorted(shown), list(LOG)


class Quiet:
    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...


def left_in_a_with() -> None:
    with Quiet():
        raise KeyError
    LOG.append("not here")


def left_in_a_handler() -> None:
    try:
        raise KeyError
    except KeyError as error:
        raise ValueError from error
    LOG.append("not here")


def left_behind_a_finally() -> None:
    try:
        raise KeyError
    finally:
        LOG.append("finally")
        LOG.append("behind")


def lines_that_frames_were_left_at() -> Any:
    lines = []
    for leaving in (left_in_a_with, left_in_a_handler, left_behind_a_finally):
        try:
            leaving()
        except LookupError as error:
            traceback: Any = error.__traceback__.tb_next  # type: ignore[union-attr]
            lines.append((traceback.tb_lineno, traceback.tb_frame.f_lineno))
        except ValueError as error:
            traceback = error.__traceback__.tb_next  # type: ignore[union-attr]
            lines.append((traceback.tb_lineno, traceback.tb_frame.f_lineno))
    return lines


def names_that_were_meant() -> Any:
    def raising() -> None:
        length = LOG  # noqa: F841
        print(lenght)  # type: ignore[name-defined] # noqa: F821

    try:
        raising()
    except NameError:
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            sys.__excepthook__(*sys.exc_info())
    return shown.getvalue().splitlines()[-1]


PROGRAMS: list[Callable[[], Any]] = [
    locals_live_as_long_as_the_traceback,
    generators_on_a_stack_are_closed_where_the_frame_is_left,
    bound_methods_that_were_looked_at,
    views_of_a_class_with_methods_of_their_names,
    lines_that_frames_were_left_at,
]
if sys.version_info < (3, 12):  # later ones look for what the locals are bound to
    PROGRAMS.append(names_that_were_meant)


def test_members_that_c_code_made_are_of_the_class_made_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1

        class Kind(tuple[Any, ...], Enum):
            dark = (1, "dark")

        member = Kind.dark
        time.perf_counter()
        return y * 2, member is Kind.dark, Kind((1, "dark")) is member

    assert anyshape.compile(program)(torch.ones(2))[1:] == (True, True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("work", "every"),
    [
        *[(work, every) for work in PROGRAMS for every in (0, 1, 5)],
        # without further breaks a segment of the handler holds the exception to its own end
        *[(generators_in_locals_are_closed_with_the_traceback, every) for every in (1, 5)],
    ],
)
def test_it_is_as_cpython_has_it(work: Callable[[], Any], every: int) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        result = work()
        return y * 2, result

    LOG.clear()
    wanted = program(torch.ones(2))[1]
    fast = Compiled(program, Options(break_every=every), ByReference)
    for _ in range(2):
        LOG.clear()
        assert fast(torch.ones(2))[1] == wanted
    assert not fast.mistakes
