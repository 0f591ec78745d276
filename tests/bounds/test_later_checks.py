"""What a later check says of a size is not relied on before: no crash, and what eager raises. The programs
run in processes of their own, so that a crash is a failing test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from later_checks import COMBINATIONS

PARTS = 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_program_relies_on_a_check_that_it_makes_later(part):
    numbers = range(len(COMBINATIONS))[part::PARTS]
    command = [sys.executable, str(Path(__file__).parent / "later_checks.py"), *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [f"{COMBINATIONS[number]}\n{said}" for number, said in lines if said]
    assert not wrong, "\n\n".join(wrong)
    assert [number for number, _ in lines] == [*numbers], done.stderr[-3000:]
