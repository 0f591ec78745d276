"""The Triton kernels without a GPU: computed in Triton's interpreter, and compiled for sm_90. Each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECKS = tuple(pytest.importorskip("benchmarks.moe_check", reason="needs Triton").CHECKS)

pytestmark = pytest.mark.timeout(600)  # each is minutes of work where others are at work too

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(arguments: list[str], **environment: str) -> str:
    """What a new Python process printed; the test fails with it if the process failed."""
    inherited = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_kernels_are_the_reference_in_the_interpreter() -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "triton_cases.py")]
    assert " passed" in run(command, TRITON_INTERPRET="1")


def test_the_kernels_compile_for_sm_90() -> None:
    printed = run([str(HERE / "compile_cases.py")], TRITON_INTERPRET="0")
    assert printed.splitlines()[-1].startswith("compiled ")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("check", CHECKS)
def test_the_kernels_are_the_reference_on_the_gpu(check: str) -> None:
    assert "FAIL" not in run(["-m", "benchmarks.moe_check", check])
