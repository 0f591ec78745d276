"""C code and functions that are called natively look at their caller, and find the program."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import sys
import time
import traceback
import typing
import warnings
from typing import Any

import pytest
import torch

import anyshape


def a_named_tuple(x: Any) -> Any:
    os.getpid()
    made = collections.namedtuple("made", "a b")
    return made.__module__


def a_warning(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        os.getpid()
        warnings.warn("here", stacklevel=1)
        os.getpid()
        _warns()
        _warns()
    return [(w.category.__name__, w.filename, w.lineno) for w in found]


def _warns() -> None:
    warnings.warn("there", DeprecationWarning, stacklevel=2)


def the_callers_name(x: Any) -> Any:
    os.getpid()
    return sys._getframe(0).f_globals["__name__"], sys._getframe(0).f_code.co_name


def lines_of_a_traceback(x: Any) -> Any:
    def fails() -> None:
        os.getpid()
        sorted([1, "a"])  # type: ignore[list-item]

    try:
        fails()
    except TypeError as error:
        tb = error.__traceback__
        assert tb is not None
        seen = [(f.name, f.lineno, f.line) for f in traceback.extract_tb(tb)]
        inner = tb.tb_next
        assert inner is not None
        return seen[1:], inner.tb_frame.f_lineno, inner.tb_next
    return None


def a_warning_behind_a_break(x: Any) -> Any:
    def warns() -> None:
        os.getpid()
        warnings.warn("there", stacklevel=2)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warns()
    return [(w.filename, w.lineno) for w in found]


def names_of_callers(x: Any) -> Any:
    def found(match: Any) -> str:
        caller = sys._getframe(1)
        return f"{caller.f_code.co_name} {caller.f_code.co_qualname} {caller.f_lineno}"

    os.getpid()
    return PATTERN.sub(found, "a")


PATTERN = re.compile("a")
PROGRAMS = [
    a_named_tuple,
    a_warning,
    a_warning_behind_a_break,
    the_callers_name,
    lines_of_a_traceback,
    names_of_callers,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_finds_the_program(program: Any) -> None:
    def around(x: Any) -> Any:
        return x + 1, program(x)

    wanted = around(torch.ones(2))[1]
    fast = anyshape.compile(around)
    for _ in range(2):
        assert fast(torch.ones(2))[1] == wanted


@pytest.mark.filterwarnings("ignore")
def test_hooks_of_protocols_see_who_asks() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1

        @typing.runtime_checkable
        class HasText(typing.Protocol):
            text: str

        class Holder: ...

        holder = Holder()
        before = isinstance(holder, HasText)
        holder.text = "a"  # type: ignore[attr-defined]
        found = before, isinstance(holder, HasText)
        time.perf_counter()
        return y * 2, found, isinstance(holder, HasText)

    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(torch.ones(2))[1:] == ((False, True), True)
    assert not fast._lazy.machinery.mistakes


def asks_who_calls(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    return x + 1, sys._getframe(1).f_code.co_name


def asks_further(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    return _asks_further(x)


def _asks_further(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    return x + 1, sys._getframe(2).f_code.co_name


def goes_back(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    back = sys._getframe().f_back
    os.getpid()
    return x + 1, "" if back is None else back.f_code.co_name


@pytest.mark.parametrize("program", [asks_who_calls, asks_further])
def test_who_calls_the_function_is_no_frame_of_ours(program: Any) -> None:
    def first(fn: Any) -> Any:
        return fn(torch.ones(2))[1]

    def second(fn: Any) -> Any:
        return fn(torch.ones(2))[1]

    fast = anyshape.compile(program)
    assert [first(fast), second(fast), first(fast)] == ["first", "second", "first"]


def test_a_function_has_a_caller() -> None:
    assert anyshape.compile(goes_back)(torch.ones(2))[1] != ""


def warns_of_a_template(x: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
    """In 3.11 and 3.12 `re` warns of a name in bytes that is no ASCII; later it refuses it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with contextlib.suppress(IndexError, re.error):
            re.sub(b"(?P<a>x)", b"\\g<\xc2\xb5>", b"xx")
    return x + 1, [f"{one.filename}:{one.lineno}" for one in told]


@pytest.mark.parametrize("options", [{}, {"break_every": 3}])
def test_re_warns_of_the_program_however_deep_it_calls(options: Any) -> None:
    x = torch.ones(2)
    re.purge()
    expected = warns_of_a_template(x)[1]
    re.purge()
    assert anyshape.compile(warns_of_a_template, options=options)(x)[1] == expected
