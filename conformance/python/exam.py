"""One test method, once natively and once compiled, and what became of it.

In: a `unittest` case. Out: an `Outcome`. Fixtures run natively; the method is called by a function
that computes with a tensor before and after, and that function is compiled. A method that does not
pass natively says nothing of the compiler and is not counted.
"""

from __future__ import annotations

import contextlib
import itertools
import traceback
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

import anyshape
from anyshape.errors import MISTAKES, AnyshapeError, GraphBreakError
from conformance.python.modules import name_of

KINDS = ("right", "break", "E901", "wrong", "hang", "uncounted", "unjudged")
"""What one run of a method comes to; `uncounted`: it does not pass natively; `unjudged`: the exam
itself failed, as where a method leaves the process without what the exam needs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`why` is the first reason for a break, or what went wrong; `interpreted` says that no part of
    the function was left to CPython as a whole."""

    kind: str
    why: str = ""
    interpreted: bool = True


def program(x: torch.Tensor, method: Callable[[], None]) -> torch.Tensor:
    """What is compiled: tensor operations around the test method."""
    y = x + 1
    method()
    return y * 2


def argument() -> torch.Tensor:
    return torch.arange(3.0)


EXPECTED = program(argument(), lambda: None)


def natively(case: unittest.TestCase) -> Outcome:
    """Whether the method passes under CPython."""
    return _judged(case, program, lambda: None)


def whole(case: unittest.TestCase) -> Outcome:
    """The method in one graph: a break is an error."""
    fast = anyshape.compile(program, fullgraph=True)
    return _judged(case, fast, lambda: fast._lazy.machinery)


def as_peers(case: unittest.TestCase) -> Outcome:
    """The same, without `unittest`'s `clear_frames` and `subTest`, as Dynamo's port of these tests
    does without them."""
    with (
        mock.patch.object(traceback, "clear_frames", _nothing),
        mock.patch.object(unittest.TestCase, "subTest", _no_subtest),
    ):
        return whole(case)


def in_pieces(case: unittest.TestCase) -> Outcome:
    """The method with graph breaks where capture wants them."""
    fast = anyshape.compile(program)
    return _judged(case, fast, lambda: fast._lazy.machinery)


RUNS = {"native": natively, "whole": whole, "peers": as_peers, "pieces": in_pieces}


def _nothing(tb: object) -> None:
    """In place of `traceback.clear_frames`."""


@contextlib.contextmanager
def _no_subtest(self: object, msg: object = None, **params: object) -> Iterator[None]:
    yield


def _judged(case: unittest.TestCase, fn: Callable[..., Any], machinery: Callable[[], Any]) -> Any:
    error = _failure(case, fn)
    made = machinery()
    breaks = [] if made is None else made.capturer.breaks
    interpreted = made is None or _is_interpreted(made)
    if isinstance(error, GraphBreakError):
        return Outcome("break", reason(error), interpreted)
    if isinstance(error, AnyshapeError) and error.code in MISTAKES:
        return Outcome("E901", reason(error), interpreted)
    if error is not None:
        kind = "uncounted" if made is None else "wrong"
        return Outcome(kind, _said(error), interpreted)
    if made is not None and made.mistakes:
        return Outcome("E901", reason(next(iter(made.mistakes.values()))), interpreted)
    if breaks:
        return Outcome("break", reason(breaks[0].error()), interpreted)
    return Outcome("right", "", interpreted)


def _is_interpreted(made: Any) -> bool:
    points = made.points.values()
    left = any(p.native or any(map(_is_left, p.specializations)) for p in points)
    return not left and not made.uncompiled


def _is_left(specialization: Any) -> bool:
    """Whether it runs natively from its start on. One that hands on what belongs to one run has no
    code either, once it has run."""
    return specialization.run is None and not specialization.used


def _failure(case: unittest.TestCase, fn: Callable[..., Any]) -> BaseException | None:
    """What a run of the method raises, fixtures included."""
    kind = type(case)
    try:
        kind.setUpClass()
        case.setUp()
        try:
            result = fn(argument(), getattr(case, name_of(case)))
            if not torch.equal(result, EXPECTED):
                return AssertionError(f"the tensor is {result}")
        finally:
            case.tearDown()
            case.doCleanups()
            kind.doClassCleanups()
    except KeyboardInterrupt as error:
        return error
    except BaseException as error:
        return error
    return None


def reason(error: AnyshapeError) -> str:
    """What an error of ours says, on one line."""
    texts = [error.what, error.why.split("\n(")[0]]
    return " | ".join(" ".join(text.split()) for text in texts if text)[:300]


def _said(error: BaseException) -> str:
    calls = traceback.extract_tb(error.__traceback__)
    users = [c for c in calls if "anyshape" not in c.filename and "conformance" not in c.filename]
    at = next((f"{c.name}:{c.lineno}" for c in reversed(users) if "unittest" not in c.filename), "")
    text = " ".join(itertools.islice(_text(error).split(), 40))
    return f"{type(error).__name__} at {at}: {text}"[:300]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:
        return f"its text raises {type(other).__name__}"
