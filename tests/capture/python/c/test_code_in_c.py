"""C code that runs Python code of the program, and answers of the process: what they rest on may
change between two calls, and the next call is right."""

from __future__ import annotations

import bisect
import functools
import heapq
import logging
import operator
import re
import string
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

STATE = [1.0]


class Changing:
    """Its methods read what changes between calls."""

    def __repr__(self) -> str:
        return str(STATE[0])

    def __eq__(self, other: object) -> bool:
        return STATE[0] > 2

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> bool:
        return STATE[0] > 2


ONE = Changing()
WORD = re.compile("a")

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "text of a list": lambda x: x * float(str([ONE])[1:-1]),
    "text of a dict": lambda x: x + len(repr({1: ONE, 2: STATE})),
    "a formatted list": lambda x: x * float(f"{[ONE]}"[1:-1]),
    "format of a list": lambda x: x * float("{}".format([ONE])[1:-1]),
    "format by key": lambda x: x * float("{0[a]}".format({"a": ONE})),
    "format_map": lambda x: x * float("{a}".format_map({"a": ONE})),
    "percent": lambda x: x * float(("%s" % [ONE])[1:-1]),
    "substitution": lambda x: x * float(WORD.sub(lambda match: str(STATE[0]), "a")),
    "substitution of re": lambda x: x * float(re.sub("a", lambda match: str(STATE[0]), "a")),
    "substitution of the class": lambda x: (
        x * float(re.Pattern.sub(WORD, lambda _: str(STATE[0]), "a"))
    ),
    "template": lambda x: x * float(string.Template("$a").substitute({"a": STATE[0]})),
    "equal lists": lambda x: x + ([ONE] == [5]),
    "equal lists in lists": lambda x: x + ([[ONE]] == [[5]]),
    "equal tuples": lambda x: x + ((ONE, 4) == (5, 4)),
    "equal dicts": lambda x: x + ({1: ONE} == {1: 5}),
    "in a list": lambda x: x + (77 in [ONE]),
    "in a list of numbers": lambda x: x + (ONE in [77]),
    "in a deque": lambda x: x + (77 in deque([ONE])),
    "count": lambda x: x + [9, ONE].count(77),  # type: ignore[list-item]
    "countOf": lambda x: x + operator.countOf([ONE], 5),
    "contains": lambda x: x + operator.contains([ONE], 5),
    "max": lambda x: x + (max([ONE, Changing()]) is ONE),  # type: ignore[type-var]
    "sorted": lambda x: x + (sorted([ONE, Changing()])[0] is ONE),  # type: ignore[type-var]
    "bisect": lambda x: x + bisect.bisect_left([ONE], ONE),
    "heap": lambda x: x + (heapq.heappushpop([ONE], Changing()) is ONE),  # type: ignore[misc]
    "operator.call": lambda x: x * operator.call(lambda: STATE[0]),
    "order by a function": lambda x: x * sorted([1, 2], key=lambda v: v * (2 - STATE[0]))[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_c_code_asks_the_program_is_asked_in_each_call(name: str) -> None:
    program, x = PROGRAMS[name], torch.linspace(1, 2, 6)
    STATE[0] = 1.0
    try:
        fast = anyshape.compile(program)
        torch.testing.assert_close(fast(x), program(x), rtol=0, atol=0)
        STATE[0] = 3.0
        torch.testing.assert_close(fast(x), program(x), rtol=0, atol=0)
    finally:
        STATE[0] = 1.0


def test_texts_of_the_librarys_own_objects_are_no_break() -> None:
    fast = anyshape.compile(lambda x: x * len(f"{[torch.float32, 1.5, (2, 'a')]}"), fullgraph=True)
    assert fast(torch.ones(())).item() == len(f"{[torch.float32, 1.5, (2, 'a')]}")


def test_a_remembering_function_that_was_made_to_forget() -> None:
    factors = [2.0]

    @functools.lru_cache
    def factor(times: int) -> float:
        return factors[0] * times

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * factor(3)

    fast, x = anyshape.compile(scaled, fullgraph=True), torch.ones(2)
    assert fast(x).tolist() == [6.0] * 2
    factors[0] = 5.0
    assert fast(x).tolist() == [6.0] * 2  # as eager: it remembers
    factor.cache_clear()
    assert fast(x).tolist() == scaled(x).tolist() == [15.0] * 2


def test_questions_to_the_process() -> None:
    logger = logging.getLogger("anyshape.test_questions")
    before = torch.get_num_threads()

    def asks(x: torch.Tensor) -> torch.Tensor:
        x = x * torch.get_num_threads()
        return x + 2 if logger.isEnabledFor(logging.INFO) else x

    fast, x = anyshape.compile(asks, fullgraph=True), torch.ones(3)
    changes: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: torch.set_num_threads(2 if before == 1 else 1),
        lambda: logger.setLevel(logging.DEBUG),
        lambda: logger.setLevel(logging.ERROR),
    )
    try:
        for change in changes:
            change()
            assert fast(x).tolist() == asks(x).tolist()
    finally:
        torch.set_num_threads(before)


def test_objects_that_cannot_be_hashed_are_captured() -> None:
    view = memoryview(bytearray(b"ab"))

    def reads(x: torch.Tensor) -> torch.Tensor:
        return x + view[1]

    fast = anyshape.compile(reads)
    assert fast(torch.zeros(2)).tolist() == [98.0] * 2
    view[1] = 5
    assert fast(torch.zeros(2)).tolist() == [5.0] * 2
