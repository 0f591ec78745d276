"""`compile` of text that is known breaks no graph; what it raises or says is as CPython has it."""

from __future__ import annotations
import __future__

import time
import warnings
from collections.abc import Callable
from typing import Any, ForwardRef

import pytest
import torch

import anyshape
from tests.capture.by_reference import in_one_graph


def evaluated() -> Any:
    code = compile("[n * n for n in range(4)]", "<text>", "eval")
    return code.co_filename, eval(code)


def executed() -> Any:
    names: dict[str, Any] = {}
    exec(compile("def twice(a):\n    return 2 * a\n", "<text>", "exec"), names)
    return names["twice"](21)


def refused() -> Any:
    try:
        compile("a +", "<text>", "eval")
    except SyntaxError as error:
        return error.filename, error.lineno, error.text, error.msg
    return None


def without_a_mode() -> Any:
    try:
        compile("a", "<text>", "none")
    except ValueError as error:
        return str(error)
    return None


def with_flags() -> Any:
    flag = __future__.annotations.compiler_flag
    return compile("a: int = 1", "<text>", "exec", flag).co_flags & flag == flag


def references() -> Any:
    class Holder:
        value: ForwardRef("int")  # type: ignore[valid-type]

    return ForwardRef("int").__forward_code__.co_names, Holder.__annotations__


PROGRAMS: list[Callable[[], Any]] = [
    evaluated,
    executed,
    refused,
    without_a_mode,
    with_flags,
    references,
]


@pytest.mark.parametrize("work", PROGRAMS)
def test_it_is_as_cpython_has_it_in_one_graph(work: Callable[[], Any]) -> None:
    in_one_graph(work)


@pytest.mark.filterwarnings("ignore::anyshape.errors.PerformanceWarning")
def test_what_it_says_is_said_in_each_call() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, eval(compile("1 is 1", "<text>", "eval"))

    fast = anyshape.compile(program)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            fast(torch.ones(2))
        assert [w.category for w in said if issubclass(w.category, SyntaxWarning)] == [
            SyntaxWarning
        ]


def test_a_time_that_is_given_is_taken_apart() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, time.gmtime(0), time.struct_time((1970, 1, 1, 0, 0, 0, 3, 1, 0))

    fast = anyshape.compile(program, fullgraph=True)
    for _ in range(2):
        assert fast(torch.ones(2))[1:] == (time.gmtime(0),) * 2
