"""Generated C under the address and undefined-behaviour sanitizers: a sample; `make test-sanitized` runs whole
suites. What is planted is seen, so that the suites' silence says something.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anyshape.errors import AnyshapeError
from anyshape.options import Options, from_environment
from anyshape.targets.cpu.build import Builder, has_sanitizer
from tests.bounds.sized_programs import PROGRAMS

HERE = Path(__file__).parent
SAMPLE = range(0, len(PROGRAMS), 8)

pytestmark = pytest.mark.timeout(900)


def sanitized(*command: str) -> list[str]:
    """The lines that a sanitized Python prints."""
    whole = [sys.executable, str(HERE / "run.py"), *command]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What the sanitizers say of each mistake that `planted.py` plants."""
    (line,) = sanitized(str(HERE / "planted.py"))
    return json.loads(line)


@pytest.mark.parametrize(
    ("mistake", "finding"),
    [
        ("a read past an argument", "heap-buffer-overflow"),
        ("a write past a buffer", "heap-buffer-overflow"),
        ("buffers too short", "heap-buffer-overflow"),
        ("a number past what an integer holds", "outside the range of representable values"),
    ],
)
def test_a_planted_mistake_is_seen(said: dict[str, str], mistake: str, finding: str) -> None:
    assert finding in said[mistake]
    assert said["nothing"] == ""


def test_a_sample_of_programs_at_every_size_stays_inside_of_its_buffers() -> None:
    numbers = map(str, SAMPLE)
    lines = sanitized(str(HERE.parent / "bounds" / "run_sized.py"), "turn", "4", *numbers)
    found = dict(map(json.loads, lines))
    assert [f"{PROGRAMS[n].text}\n{said}" for n, said in found.items() if said] == []
    assert [*found] == [*SAMPLE]


@pytest.mark.skipif(has_sanitizer(), reason="about a process without the sanitizer's runtime")
def test_without_the_runtime_it_is_refused() -> None:
    with pytest.raises(AnyshapeError, match="LD_PRELOAD"):
        Builder.create(Options(sanitize=True), "")


def test_the_environment_asks_for_it() -> None:
    assert from_environment({"ANYSHAPE_SANITIZE": "1"}).sanitize
    assert not from_environment({}).sanitize
