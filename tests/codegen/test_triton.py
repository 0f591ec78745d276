"""The kernels of the C emitter, printed as Triton: right in Triton's interpreter, and compiled for sm_90.

In a process of their own, because Triton reads TRITON_INTERPRET when it is imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

NAMES = [
    "layer norm gelu", "softmax", "rms norm", "swiglu", "cross entropy", "masked softmax", "chain",
    "transposed add", "argmax", "embedding and add", "sum of columns", "cat of three", "cumsum",
]  # fmt: skip


def run(mode, names):
    script = Path(__file__).parent / "triton_programs.py"
    done = subprocess.run(
        [sys.executable, str(script), mode, *names], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("ok ") == len(names)


@pytest.mark.timeout(600)
def test_right_in_the_interpreter():
    run("interpret", NAMES)


@pytest.mark.timeout(600)
def test_compiles_for_sm_90():
    run("compile", NAMES)
