"""Every program that a test has made is proven to write over nothing that is still needed. What the
C compiler makes is optimized only where a test may tell: it takes most of its time for that."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from tests import unoptimized

os.environ.setdefault("ANYSHAPE_VERIFY_PROGRAMS", "1")

TESTS = Path(__file__).parent
ABOUT_SOMETHING_ELSE = (
    *("autograd/*", "capture/*", "dispatch/*", "dynamo/*", "driver/*", "passes/*"),
    *("ops/test_strides*", "ops/test_refused*", "ops/test_samples*"),
    *("ops/test_facets.py", "ops/test_raises.py"),
    *("ops/test_integers_as_arguments.py", "ops/test_row_major_results.py"),
    *("ops/test_sure_copies.py", "ops/test_whose_memory.py", "ops/test_copied_storages.py"),
    *("ops/test_tensors_without_dimensions.py", "ops/test_channels_last.py"),
    *("ops/test_losses_of_two_dtypes.py", "ops/test_smoothed_labels.py", "ops/test_as_eager.py"),
    *("ops/test_numbers_that_change.py", "ops/test_complex_operands.py", "ops/test_one_graph.py"),
    *(
        "schedule/test_launch_lists.py",
        "schedule/test_views_of_results.py",
        "models/test_declared.py",
    ),
    *("bounds/test_later_checks.py", "test_aliasing.py", "test_view_calls.py", "test_growth.py"),
    *("test_training.py", "test_watched.py", "test_tracers.py", "test_random_stream.py"),
)
"""Files whose subject is what stands above generated code: Python, graphs, gradients, and what
operators refuse, return and share."""
OPTIMIZED = frozenset(
    f"autograd/test_{name}.py"
    for name in ("rows", "random_programs", "attention", "complex_gradients")
)
"""Of these, what compares the gradients of every row, and of programs nobody chose."""


def _later(*call: object, **named: object) -> None:
    """What is done on devices once they are there: where there are none, never. Torch keeps it, with
    the stack as text, a millisecond for each `torch.manual_seed`."""


for devices in (torch.cuda, torch.xpu):
    if not devices.is_available():
        devices.random._lazy_call = _later


@pytest.fixture(autouse=True)
def _unoptimized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """C without optimizations for tests that are about something else."""
    path = request.path.relative_to(TESTS).as_posix()
    above = any(fnmatchcase(path, pattern) for pattern in ABOUT_SOMETHING_ELSE)
    if above and path not in OPTIMIZED:
        unoptimized.choose(monkeypatch)
