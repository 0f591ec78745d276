"""One compiled function at sizes 0, 1, 2, odd and large of every name, independently: as eager, and without a
crash. The programs run in processes of their own, so that a crash is a failing test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sized_programs import DTYPES, PROGRAMS

NUMBERS = range(len(PROGRAMS))
FEW = [n for n in NUMBERS if n in (0, 3, 5, 19, 22, 75, 87) or n % 6 == 1]
"""Those of `make test`: the ones that crashed or were wrong, and of every kind one."""


def check(dtype: str, most: int, numbers) -> None:
    command = [
        sys.executable,
        str(Path(__file__).parent / "run_sized.py"),
        dtype,
        str(most),
        *map(str, numbers),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [f"{PROGRAMS[n].text}\n{said}" for n, said in lines if said]
    assert not wrong, "\n\n".join(wrong)
    assert [n for n, _ in lines] == [*numbers], done.stderr[-3000:]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(2))
def test_no_size_leads_outside_of_a_buffer(part):
    check("turn", 8, FEW[part::2])


@pytest.mark.slow
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("dtype", [str(d).removeprefix("torch.") for d in DTYPES])
@pytest.mark.parametrize("part", range(4))
def test_no_size_of_any_program_leads_outside_of_a_buffer(dtype, part):
    check(dtype, 40, NUMBERS[part::4])
