"""Every program that a test has made is proven to write over nothing that is still needed. What the
C compiler makes is optimized only where a test may tell: it takes most of its time for that."""

from __future__ import annotations

import os
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

os.environ.setdefault("ANYSHAPE_VERIFY_PROGRAMS", "1")

TESTS = Path(__file__).parent
UNOPTIMIZED = TESTS / "unoptimized_gcc"
ABOUT_SOMETHING_ELSE = (
    *("autograd/*", "capture/*", "dispatch/*", "dynamo/*"),
    *(
        "ops/test_strides*",
        "ops/test_refused*",
        "ops/test_samples*",
        "ops/test_facets.py",
        "ops/test_raises.py",
    ),
    *("ops/test_integers_as_arguments.py", "ops/test_row_major_results.py"),
    *("ops/test_sure_copies.py", "ops/test_whose_memory.py", "ops/test_copied_storages.py"),
    *("ops/test_tensors_without_dimensions.py", "ops/test_channels_last.py"),
    *("bounds/test_later_checks.py", "test_aliasing.py", "test_view_calls.py"),
)
"""Files whose subject is what stands above generated code: Python, graphs, gradients, and what
operators refuse, return and share."""
OPTIMIZED = frozenset(
    f"autograd/test_{name}.py"
    for name in ("rows", "random_programs", "attention", "complex_gradients")
)
"""Of these, what compares the gradients of every row, and of programs nobody chose."""


def _is_gcc(name: str) -> bool:
    return "gcc" in Path(shutil.which(name) or name).resolve().name


GIVEN = {"CC", "ANYSHAPE_SANITIZE"} & {*os.environ}
MAY_CHOOSE = not GIVEN and _is_gcc("cc") and os.access(UNOPTIMIZED, os.X_OK)


@pytest.fixture(autouse=True)
def _unoptimized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """C without optimizations for tests that are about something else."""
    if not MAY_CHOOSE:
        return
    path = request.path.relative_to(TESTS).as_posix()
    above = any(fnmatchcase(path, pattern) for pattern in ABOUT_SOMETHING_ELSE)
    if above and path not in OPTIMIZED:
        monkeypatch.setenv("CC", str(UNOPTIMIZED))
