"""What `inspect` says of the program's functions and classes: of what they are in this call, of what
the segment has written, and by asking their code as often as CPython does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

X = torch.arange(3.0)
ASKED: list[str] = []


def function() -> Any:
    def target(a: int, b: int = 2, *, c: Any = 3) -> str:
        return f"{a} {b} {c}"

    return target


def wrapped() -> Any:
    return functools.wraps(function())(lambda *args: args)


class Method:
    def method(self, a: int, b: str = "b") -> int:
        return a


def made_class() -> Any:
    class Made:
        def __init__(self, a: int, b: int = 2) -> None:
            pass

    return Made


class Signed:
    @property
    def __signature__(self) -> inspect.Signature:
        ASKED.append("__signature__")
        return inspect.signature(lambda q, r=1: None)

    def __call__(self) -> None:
        pass


def partial() -> Any:
    return functools.partial(function(), 1, b=4)


TARGETS: dict[str, Callable[[], Any]] = {
    "function": function,
    "wrapped": wrapped,
    "method": lambda: Method().method,
    "class": made_class,
    "signed": Signed,
    "partial": partial,
    "of a library": lambda: functools.wraps,
    "module": lambda: torch.nn.Linear(2, 2).forward,
}
ASKING: dict[str, Callable[[Any], Any]] = {
    "signature": lambda fn: str(inspect.signature(fn)),
    "parameters": lambda fn: list(inspect.signature(fn).parameters.items()),
    "full": inspect.getfullargspec,
    "unwrapped": lambda fn: inspect.unwrap(fn) is fn,
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_said_of_what_is_handed_in(target: str, asking: str, fullgraph: bool) -> None:
    ask = ASKING[asking]

    def program(x: torch.Tensor, fn: Any) -> Any:
        return x + 1, ask(fn)

    whole = fullgraph and target != "partial"  # C code over the parameters that it has changed
    fast = anyshape.compile(program, fullgraph=whole)
    for _ in range(2):
        fn = TARGETS[target]()
        ASKED.clear()
        expected, count = program(X, fn)[1], len(ASKED)
        ASKED.clear()
        assert repr(fast(X, fn)[1]) == repr(expected)
        assert len(ASKED) == count


def _new_defaults(fn: Any) -> None:
    fn.__defaults__ = (7,)


def _new_keyword_defaults(fn: Any) -> None:
    fn.__kwdefaults__ = {"c": 8}


def _changed_keyword_defaults(fn: Any) -> None:
    fn.__kwdefaults__["c"] = 9


def _new_annotations(fn: Any) -> None:
    fn.__annotations__ = {"b": str}


def _changed_annotations(fn: Any) -> None:
    fn.__annotations__["c"] = float


def _no_defaults(fn: Any) -> None:
    fn.__defaults__ = None


def _signed(fn: Any) -> None:
    fn.__signature__ = inspect.signature(lambda z: None)


def _wrapping(fn: Any) -> None:
    fn.__wrapped__ = lambda w, v=3: None


def _renamed(fn: Any) -> None:
    fn.__name__, fn.__qualname__ = "renamed", "renamed in full"


CHANGES = (
    *(_new_defaults, _new_keyword_defaults, _changed_keyword_defaults, _new_annotations),
    *(_changed_annotations, _no_defaults, _signed, _wrapping, _renamed),
)


def _said(fn: Any) -> Any:
    def called() -> str:
        try:
            return str(fn(1))
        except TypeError as error:
            return str(error)

    try:
        fn()
    except TypeError as error:
        text = str(error)
    return str(inspect.signature(fn)), called(), text, repr(fn).partition(" at ")[0], fn.__name__


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changes_between_calls_is_said(change: Callable[[Any], None]) -> None:
    def program(x: torch.Tensor, fn: Any) -> Any:
        return x + 1, _said(fn)

    fast, fn, other = anyshape.compile(program), function(), function()
    for _ in range(2):
        assert fast(X, fn)[1] == program(X, other)[1]
        change(fn)
        change(other)
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_the_segment_has_changed_is_said(change: Callable[[Any], None]) -> None:
    def program(x: torch.Tensor, fn: Any) -> Any:
        y = x + 1
        change(fn)
        return y, _said(fn)

    fast = anyshape.compile(program)
    for _ in range(2):
        fn, other = function(), function()
        assert fast(X, fn)[1] == program(X, other)[1]
        assert _said(fn) == _said(other)
    assert fast.stats().internal_errors == 0


def test_a_loop_of_wrappers_is_refused_as_natively() -> None:
    def first() -> None:
        pass

    def second() -> None:
        pass

    first.__wrapped__, second.__wrapped__ = second, first  # type: ignore[attr-defined]

    def program(x: torch.Tensor) -> str:
        try:
            inspect.unwrap(first)
        except ValueError as error:
            return str(error).partition(" at ")[0]
        return ""

    assert anyshape.compile(program, fullgraph=True)(X) == program(X) != ""


def test_generators_are_called_as_their_function_is_where_it_makes_them() -> None:
    def numbers() -> Any:
        yield 1

    def program(x: torch.Tensor) -> Any:
        numbers.__name__ = numbers.__qualname__ = "renamed"
        made = numbers()
        numbers.__name__ = numbers.__qualname__ = "numbers"
        return made.__name__, made.__qualname__, x + 1

    fast = anyshape.compile(program)
    for _ in range(2):
        assert fast(X)[:2] == program(X)[:2] == ("renamed", "renamed")


def test_defaults_of_a_function_that_is_handed_in_are_one_object() -> None:
    def program(x: torch.Tensor, fn: Any) -> Any:
        return x + 1, fn.__defaults__ is fn.__defaults__, fn.__defaults__

    assert anyshape.compile(program, fullgraph=True)(X, function())[1:] == (True, (2,))
