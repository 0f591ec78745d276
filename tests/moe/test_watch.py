"""A rank that never answers ends the process, also where only the GPU waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from anyshape.moe import watch
from anyshape.moe.watch import Watch

NEVER = """
from anyshape.moe.watch import Watch
import time

class Never:
    def query(self):
        return False

Watch().mark(Never(), 0.1)
time.sleep(60)
"""


class Reached:
    """A point that the GPU reaches at a given time."""

    def __init__(self, at: float) -> None:
        self.at = at

    def query(self) -> bool:
        return time.monotonic() >= self.at


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds within ten seconds."""
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def test_a_point_that_is_never_reached_ends_the_process_with_e154() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NEVER], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 1
    assert "E154 another rank did not answer within 0.1 s" in done.stderr


def test_points_that_are_reached_one_after_the_other_are_not_late() -> None:
    late = []
    watched, now = Watch(late.append), time.monotonic()
    for i in range(4):
        watched.mark(Reached(now + 0.2 * (i + 1)), 0.5)
    time.sleep(1.1)
    assert not late
    watched.mark(Reached(float("inf")), 0.05)
    assert eventually(lambda: late == [0.05])


def test_the_thread_goes_when_there_is_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LINGER_SECONDS", 0.1)
    before, watched = threading.active_count(), Watch()
    for _ in range(2):
        watched.mark(Reached(0.0), 1.0)
        assert eventually(lambda: threading.active_count() == before)
