"""A program without an end is left out, and costs the others of its process nothing."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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
SCRIPT = """
import json, sys
from tests.fuzz_python.test_workers import measured
print(json.dumps(measured(sys.argv[1])))
"""
ENDLESS = ["itertools.pairwise(GLOBAL)", "itertools.repeat(GLOBAL)", "pairs(GLOBAL)"]


def measured(rest: str) -> list[Any]:
    """How an endless program differs, the memory that it leaves, and the most that it took."""

    def work(tell: Callable[[Any], None]) -> None:
        program = PRELUDE + PROGRAM.format(rest=rest)
        verdict(program, "whole")  # memory that is mapped once
        before = mapped_bytes()
        tell(verdict(program, "whole"))
        tell(mapped_bytes() - before)
        tell(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)

    warm()
    return [*in_a_process(work, MEMORY_BYTES)]


@pytest.mark.parametrize("rest", ENDLESS)
def test_what_an_endless_program_makes_is_dropped(rest: str) -> None:
    """In a process of its own: what is free in a process that has run other tests decides where the
    program meets its bound."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, rest],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found, grown_bytes, most_bytes = json.loads(run.stdout)
    assert found == ""
    assert grown_bytes < NATIVE_BYTES * 3 // 4
    assert most_bytes < 2 * NATIVE_BYTES


def test_a_program_that_ends_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "differences", lambda *given: "differs")
    assert verdict(PRELUDE + PROGRAM.format(rest="list(pairs(GLOBAL))"), "whole") == "differs"
