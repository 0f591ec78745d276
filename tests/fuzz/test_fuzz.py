"""Random programs do what eager does: compiled, after every pass, and in the concrete domain.

`make test` runs the same programs each time; `make fuzz` others, as many as wanted. A failure prints
the program, made small; once mended, it becomes a line in `test_found.py`.
"""

from __future__ import annotations

import pytest

from tests.fuzz.shrink import shrunk
from tests.fuzz.workers import WAYS, differences_alone, differences_of, program_of, warm

BATCH = 50
BATCHES = {"plain": 16, "verified": 2, "without native regions": 2, "native regions of one step": 2}


@pytest.mark.parametrize(
    ("way", "number"), [(way, n) for way, count in BATCHES.items() for n in range(count)]
)
def test_random_programs_do_what_eager_does(way: str, number: int) -> None:
    warm()
    seeds = range(number * BATCH, (number + 1) * BATCH)
    for seed, found in differences_of(seeds, WAYS[way], level="0"):
        if found:
            program, left = shrunk(program_of(seed), lambda p: differences_alone(p, WAYS[way], "0"))
            pytest.fail(f"seed {seed}: {found[0]}\n{program}\n# {left}")
