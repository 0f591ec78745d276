"""Random programs do what CPython does whatever PYTHONHASHSEED is: no order of a set of ours decides
a result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = 30
SCRIPT = """
import sys
from tests.fuzz_python.workers import differing, warm
first, count = map(int, sys.argv[1:])
warm()
for seed, found in differing(range(first, first + count)):
    print(seed, found)
print("done")
"""


@pytest.mark.parametrize(
    "hash_seed", [1, 4294967295, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_results_do_not_depend_on_the_seed_of_hashes(hash_seed: int) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, "100", str(PROGRAMS)],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout == "done\n"
