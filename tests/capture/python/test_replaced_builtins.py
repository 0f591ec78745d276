"""A builtin that the program has replaced by another function: the program calls that one
from then on, whether a segment, or native code between two, has done it.
"""

from __future__ import annotations

import builtins
import functools
from typing import Any

import pytest
import torch

from tests.capture.by_reference import compiled


def wrapped(x: Any, seen: list[Any]) -> Any:
    old = builtins.len
    try:
        builtins.len = functools.lru_cache(4)(len)
        found = [len("abcdef"[:n]) for n in (0, 0, 1, 2, 2)]
        seen.append(builtins.len.cache_info())
    finally:
        builtins.len = old
    return x + 1, found


def replaced(x: Any, seen: list[Any]) -> Any:
    old = builtins.len
    try:
        builtins.len = lambda value: 7
        found = [len(""), len([1])]
    finally:
        builtins.len = old
    return x + 1, [*found, len("")]


def removed(x: Any, seen: list[Any]) -> Any:
    old = builtins.abs
    try:
        del builtins.abs
        try:
            abs(3)
        except NameError as error:
            seen.append(str(error))
        builtins.abs = max
        found = [abs(3, 4)]
    finally:
        builtins.abs = old
    return x + 1, [*found, abs(-1)]


def shadowed(x: Any, seen: list[Any]) -> Any:
    scope = globals()
    scope["ord"] = lambda text: "shadow"
    found = [ord("a")]
    del scope["ord"]
    return x + 1, [*found, ord("a")]


PROGRAMS = (wrapped, replaced, removed, shadowed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [0, 1, 3])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_program_meets_what_it_has_put_there(program: Any, every: int) -> None:

    expected: list[Any] = []
    wanted = program(torch.ones(2), expected)[1]
    fast = compiled(program, fullgraph=False, break_every=every)
    for _ in range(3):
        seen: list[Any] = []
        assert fast(torch.ones(2), seen)[1] == wanted
        assert seen == expected
    assert not fast.mistakes
