"""gcc without its optimizations, which take most of its time, for tests that are about something else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

WRAPPER = Path(__file__).with_name("unoptimized_gcc")


def _is_gcc(name: str) -> bool:
    return "gcc" in Path(shutil.which(name) or name).resolve().name


GIVEN = {"CC", "ANYSHAPE_SANITIZE"} & {*os.environ}
MAY_CHOOSE = not GIVEN and _is_gcc("cc") and os.access(WRAPPER, os.X_OK)


def choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what the test compiles from here on, unless the user has chosen a compiler."""
    if MAY_CHOOSE:
        monkeypatch.setenv("CC", str(WRAPPER))
