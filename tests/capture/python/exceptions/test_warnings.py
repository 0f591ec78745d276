"""Warnings of a program: recorded, or errors that it handles; ours are not among them."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
import torch

from tests.capture.by_reference import compiled


class Own(DeprecationWarning):
    pass


def handled(x: Any) -> Any:
    found = []
    for message, category in (("a", None), (Own("b"), None), ("c", Own), ("d", FutureWarning)):
        try:
            warnings.warn(message, category)
            found.append("warned")
        except Warning as error:
            found.append((type(error).__name__, str(error)))
    return x + 1, found


@pytest.mark.parametrize("every", [0, 1])
def test_a_warning_that_has_become_an_error_is_raised_where_it_is(every: int) -> None:
    fast = compiled(handled, fullgraph=False, break_every=every)
    for action, category in (
        ("ignore", Warning),
        ("error", DeprecationWarning),
        ("ignore", Warning),
        ("error", Warning),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter(action, category)  # type: ignore[arg-type]
            found = []
            for call in (handled, fast):
                try:
                    found.append(call(torch.ones(2))[1])
                finally:
                    fast.notices.waiting.clear()
            assert found[0] == found[1]
    assert not fast.mistakes


def recorded(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        y = x + 1
        os.getpid()
        warnings.warn("own")
        print(y, end="")
    return y, [str(warning.message) for warning in found]


def turned_into_errors(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = x + 1
        os.getpid()
        names = sorted(os.environ)[:0]
        print(y, end="")
    return y, names


@pytest.mark.parametrize("program", [recorded, turned_into_errors])
@pytest.mark.parametrize("every", [0, 1])
def test_ours_are_not_among_them(program: Any, every: int) -> None:
    fast = compiled(program, fullgraph=False, break_every=every)
    wanted = program(torch.ones(2))[1]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert fast(torch.ones(2))[1] == wanted
    assert [warning for warning in found if "E230" in str(warning.message)]
