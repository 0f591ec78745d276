"""A program without an end is left out, and costs the others of its process nothing."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest

from tests.forked import in_a_process, mapped_bytes
from tests.fuzz_python import workers
from tests.fuzz_python.classes import PRELUDE
from tests.fuzz_python.workers import MEMORY_BYTES, NATIVE_BYTES, verdict, warm

PROGRAM = """
A0 = A1 = B = TABLE = STATE = None

def world(k):
    global GLOBAL
    GLOBAL = [[k, 2], k]
    return [torch.arange(3.0) + k]

def program(x):
    y = x + 1
    try:
        GLOBAL.extend({rest})
    except Exception as error:
        note(type(error).__name__)
    return y * 2, len(GLOBAL)
"""
ENDLESS = ["itertools.pairwise(GLOBAL)", "itertools.repeat(GLOBAL)", "pairs(GLOBAL)"]


@pytest.mark.parametrize("rest", ENDLESS)
def test_what_an_endless_program_makes_is_dropped(rest: str) -> None:
    def work(tell: Callable[[Any], None]) -> None:
        program = PRELUDE + PROGRAM.format(rest=rest)
        verdict(program, "whole")  # memory that is mapped once
        before = mapped_bytes()
        tell(verdict(program, "whole"))
        tell(mapped_bytes() - before)
        tell(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)

    warm()
    found, grown_bytes, most_bytes = in_a_process(work, MEMORY_BYTES)
    assert found == ""
    assert grown_bytes < NATIVE_BYTES * 3 // 4
    assert most_bytes < 2 * NATIVE_BYTES


def test_a_program_that_ends_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "differences", lambda *given: "differs")
    assert verdict(PRELUDE + PROGRAM.format(rest="list(pairs(GLOBAL))"), "whole") == "differs"
