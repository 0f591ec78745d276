"""compute-sanitizer finds nothing in the kernel suite, and finds a planted bug of each kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(not shutil.which("compute-sanitizer"), reason="needs compute-sanitizer"),
]
SCRIPT = Path(__file__).parent / "sanitized_programs.py"


def sanitized(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable]
    alone = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": str(SCRIPT.parents[2])}
    return subprocess.run(
        [*command, str(SCRIPT), *arguments],
        env=os.environ | alone,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_nothing_is_found(tool):
    done = sanitized(tool)
    assert done.returncode == 0 and "done" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    "tool, planted, told",
    [
        ("memcheck", "past", "Invalid __global__"),
        ("initcheck", "unwritten", "Uninitialized __global__"),
        ("racecheck", "race", "hazard"),
    ],
)
def test_what_is_planted_is_found(tool, planted, told):
    assert told in sanitized(tool, "--plant", planted).stdout
