"""Timing and progress: counts and texts, never times."""

from __future__ import annotations

import io
import time

import pytest

from anyshape.runtime import progress
from anyshape.tools.timing import Timing, interleaved


def test_candidates_take_turns() -> None:
    calls: list[str] = []
    timing = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=4)
    assert len(timing.samples["a"]) == len(timing.samples["b"]) == 4
    assert "ab" in "".join(calls) and "ba" in "".join(calls)


def test_speedup_is_the_median_of_the_pairs() -> None:
    timing = Timing({"ours": (1.0, 1.0, 1.0), "theirs": (2.0, 3.0, 100.0)})
    assert timing.speedup("ours", over="theirs") == 3.0


def test_nothing_is_said_of_what_is_quick() -> None:
    stream = io.StringIO()
    with progress.doing("compiling", stream):
        pass
    assert stream.getvalue() == ""


def test_what_takes_long_is_said_once_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    stream = io.StringIO()
    with progress.doing("compiling", stream):
        while not stream.getvalue():
            pass
    assert stream.getvalue() == "compiling ...\n"


def test_the_environment_silences_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("ANYSHAPE_PROGRESS", "0")
    stream = io.StringIO()
    with progress.doing("compiling", stream):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_the_line_goes_away_when_the_body_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    stream = io.StringIO()
    stream.isatty = lambda: True
    with pytest.raises(ValueError, match="oops"), progress.doing("compiling", stream):
        while not stream.getvalue():
            pass
        raise ValueError("oops")
    assert stream.getvalue().endswith("\r\x1b[K")
