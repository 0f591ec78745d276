"""Random programs of Python do what CPython does: compiled, and with breaks at many instructions.

`make test` runs the same programs each time; `make fuzz-python` others, as many as wanted. A failure
prints the program, made small; once mended, it becomes a function in
`tests/capture/python/test_found_by_fuzzing.py`.
"""

from __future__ import annotations

import sys

import pytest

from tests.fuzz_python.workers import differing, small, warm, way_of

BATCH = 50
BATCHES = 10
NOT_MENDED = frozenset({103} if sys.version_info >= (3, 13) else ())
"""Seeds of programs that are known to differ: docs/python.md and its like tell of them. Where a
program is broken up depends on the version's instructions."""


@pytest.mark.parametrize("number", range(BATCHES))
def test_random_programs_do_what_cpython_does(number: int) -> None:
    warm()
    seeds = [s for s in range(number * BATCH, (number + 1) * BATCH) if s not in NOT_MENDED]
    for seed, found in differing(seeds):
        program, left = small(seed)
        pytest.fail(f"seed {seed} ({way_of(seed)}): {found}\n{program}\n# {left}")
