"""Every program that a test has made is proven to write over nothing that is still needed. What the
C compiler makes is optimized only where a test may tell: it takes most of its time for that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

os.environ.setdefault("ANYSHAPE_VERIFY_PROGRAMS", "1")

TESTS = Path(__file__).parent
UNOPTIMIZED = TESTS / "unoptimized_gcc"
ABOUT_PYTHON_AND_GRAPHS = ("autograd", "capture", "dispatch", "dynamo")
"""Folders whose subject is what stands above generated code."""
OPTIMIZED = frozenset(
    f"autograd/test_{name}.py"
    for name in ("rows", "random_programs", "attention", "complex_gradients")
)
"""Of these folders, what compares the gradients of every row, and of programs nobody chose."""


def _is_gcc(name: str) -> bool:
    return "gcc" in Path(shutil.which(name) or name).resolve().name


MAY_CHOOSE = not {"CC", "ANYSHAPE_SANITIZE"} & {*os.environ} and _is_gcc("cc")


@pytest.fixture(autouse=True)
def _unoptimized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """C without optimizations for tests that are about something else."""
    if not MAY_CHOOSE:
        return
    path = request.path.relative_to(TESTS)
    if path.parts[0] in ABOUT_PYTHON_AND_GRAPHS and path.as_posix() not in OPTIMIZED:
        monkeypatch.setenv("CC", str(UNOPTIMIZED))
