"""Schedules that are chosen by measuring them: once for a kind of sizes, kept with their times, told by ``explain``."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import pytest
import torch

import anyshape
from anyshape.runtime.cache import DiskCache
from anyshape.targets.triton import tuning
from anyshape.targets.triton.schedules import Choice, KernelSchedule
from anyshape.targets.triton.tuning import Tuned
from tests.fake_gpu import FakeGpu

CHOICES = [Choice(KernelSchedule(block, wide=False), 1, 1) for block in (1024, 512, 256)]
TEXTS = ["tiles of 1024, 4 warps", "tiles of 512, 4 warps", "tiles of 256, 4 warps"]


@pytest.fixture
def took(monkeypatch):
    """How long each candidate takes, in order; what is left when all were measured."""
    times = []
    monkeypatch.setattr(tuning, "microseconds", lambda launch: times.pop(0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    return times


def tuned(path) -> Tuned:
    return Tuned("add_1f", 0, DiskCache.open(str(path)))


def test_the_fastest_is_taken_and_found_on_disk_with_the_others_times(tmp_path, took):
    took += [3.0, 2.0, 2.5]
    first, second = tuned(tmp_path), tuned(tmp_path)
    for each in (first, first, second):
        assert each.best(("a kind",), CHOICES, lambda choice: print) is CHOICES[1] and not took
    told = ["add_1f: tiles of 512, 4 warps: 2.0 us, measured beside"]
    told += ["    2.5 us: tiles of 256, 4 warps", "    3.0 us: tiles of 1024, 4 warps"]
    assert [*first.lines()] == [*second.lines()] == told
    took += [1.0, 1.0, 1.0]
    assert first.best(("another",), CHOICES, lambda choice: print) is CHOICES[0] and not took


def test_the_rules_stays_where_nothing_is_worth_a_change(tmp_path, took):
    took += [2.0, 1.99, 2.5]
    assert tuned(tmp_path).best((), CHOICES, lambda choice: print) is CHOICES[0]


def test_measuring_ends_in_time_and_the_rules_is_always_measured(tmp_path, took, monkeypatch):
    monkeypatch.setattr(tuning, "SECONDS", -1.0)
    took += [9.0, 1.0, 1.0]
    assert tuned(tmp_path).best((), CHOICES, lambda choice: print) is CHOICES[0]
    assert took == [1.0, 1.0]


def test_what_takes_long_is_said(tmp_path, took, monkeypatch, capfd):
    monkeypatch.setattr("anyshape.runtime.progress.PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr("anyshape.runtime.progress.doing.__wrapped__.__defaults__", (sys.stderr,))
    took += [1.0] * 3
    tuned(tmp_path).best((), CHOICES, lambda choice: time.sleep(0.3))
    assert "measuring 3 schedules of add_1f" in capfd.readouterr().err


def test_explain_tells_what_was_measured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(tuning, "microseconds", lambda launch: 1.5)
    gpu = FakeGpu(monkeypatch, tune=True)
    text = str(anyshape.explain(lambda x: torch.softmax(x, -1))(torch.randn(64, 2048)))
    assert "tiles of 1 x 2048, 4 warps: 1.5 us, measured beside" in text.replace(
        ", 8 warps", ", 4 warps"
    )
    assert text.count("    1.5 us: ") > 2 and gpu.chosen == 1
    quiet = FakeGpu(monkeypatch)
    assert (
        "us" not in str(anyshape.explain(torch.exp)(torch.randn(3))).split() and quiet.chosen == 1
    )


def test_what_was_measured_of_other_candidates_is_not_asked(tmp_path, took):
    took += [3.0, 1.0, 2.5]
    tuned(tmp_path).best((), CHOICES, lambda choice: print)
    library = [replace(CHOICES[0], library=True), *CHOICES]
    took += [3.0, 2.0, 1.0, 2.5]
    assert tuned(tmp_path).best((), library, lambda choice: print) is CHOICES[1] and not took
