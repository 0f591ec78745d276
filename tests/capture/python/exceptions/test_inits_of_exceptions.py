"""`super().__init__(...)` of an exception that is made inside breaks no graph; one from outside is written to
in each call."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape


class Located(Exception):
    def __init__(self, text: str, position: int) -> None:
        self.position = position
        super().__init__(f"{text} at {position}", position)


class Late(ValueError):
    def __init__(self, text: str) -> None:
        ValueError.__init__(self, text)
        ValueError.__init__(self, text, "again")


class Missing(OSError):
    def __init__(self, name: str) -> None:
        super().__init__(2, "no such thing", name)


class Coded(SystemExit):
    def __init__(self) -> None:
        super().__init__(3)


class Refused(Exception):
    def __init__(self) -> None:
        super().__init__(text="named")  # type: ignore[call-arg]


class Given(StopIteration):
    def __init__(self, value: Any) -> None:
        super().__init__(value)


def raised(make: Callable[[], BaseException]) -> Any:
    try:
        raise make()
    except BaseException as error:
        fields = ("position", "errno", "filename", "code", "value", "name", "pos")
        found = {name: getattr(error, name) for name in fields if hasattr(error, name)}
        return type(error), error.args, str(error), found, error.__context__


CASES: dict[str, Callable[[], BaseException]] = {
    "placed": lambda: Located("a", 3),
    "late": lambda: Late("a"),
    "missing": lambda: Missing("thing"),
    "coded": Coded,
    "refused": Refused,
    "given": lambda: Given([1]),
    "of re": lambda: re.error("m", "pattern", 2),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_made_inside_breaks_no_graph(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, raised(CASES[name])

    fast = anyshape.compile(program, fullgraph=True)
    for _ in range(2):
        assert fast(torch.ones(2))[1] == program(torch.ones(2))[1]


def test_what_it_stores_may_be_a_size_or_a_tensor() -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            raise Located("a", x.shape[0])
        except Located as error:
            return error.args[1] + x, error.position, Given(x).value

    fast = anyshape.compile(program, fullgraph=True)
    for size in (2, 3, 4):
        found = fast(torch.ones(size))
        assert torch.equal(found[0], torch.ones(size) + size)
        assert found[1] == size
        assert torch.equal(found[2], torch.ones(size))


@pytest.mark.filterwarnings("ignore")
def test_one_from_outside_is_written_to_in_each_call() -> None:
    def program(x: torch.Tensor, error: Exception) -> Any:
        y = x + 1
        error.__init__("again")  # type: ignore[misc]
        return y * 2, error.args

    fast = anyshape.compile(program)
    for _ in range(3):
        error = ValueError("first")
        assert fast(torch.ones(2), error)[1] == ("again",)
        assert error.args == ("again",)


@pytest.mark.filterwarnings("ignore")
def test_one_goes_over_a_break_and_is_written_to_on_one_side() -> None:
    def program(x: torch.Tensor) -> Any:
        error = Missing("a")
        if x.shape[0] > 2:
            ValueError.__init__(Late("x"), "y")
            OSError.__init__(error, 5, "other", "b")
        time.monotonic()
        return x + 1, error.errno, error.filename, error.args

    fast = anyshape.compile(program)
    for size in (2, 3, 2, 5):
        assert fast(torch.ones(size))[1:] == program(torch.ones(size))[1:]


def test_what_leaves_the_function_is_not_asked_for_its_text() -> None:
    asked: list[object] = []

    class Texted(Exception):
        def __str__(self) -> str:
            asked.append(self)
            return "text"

    def refusing(x: torch.Tensor, k: int) -> torch.Tensor:
        if k:
            raise Texted([k, 2])
        return x + k

    fast = anyshape.compile(refusing)
    for k in (3, 4, 5):
        with pytest.raises(Texted) as caught:
            fast(torch.ones(2), k)
        assert caught.value.args == ([k, 2],)
    assert not asked and fast.stats().internal_errors == 0
