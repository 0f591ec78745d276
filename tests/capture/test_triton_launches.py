"""The program's own Triton kernels without a GPU: launched in Triton's interpreter, in a process of its own; and operators
made of them (`torch.library.triton_op`), which have another implementation on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import anyshape

pytest.importorskip("triton")
CASES = Path(__file__).with_name("triton_launch_cases.py")
ROOT = CASES.parents[2]


@pytest.mark.timeout(600)
def test_launches_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]


def test_operators_made_of_kernels() -> None:
    """What they make is said by their own code, run on tensors without memory, where launches do nothing; what they write,
    by their schemas."""
    from tests.capture import triton_operators as own

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x * 2
        before, made = z + 1, own.add(z, y)
        own.add_into(z, y)
        return before, made * z

    fast = anyshape.compile(program, fullgraph=True)
    for n in (5, 1, 33, 2):
        x, y = torch.randn(n), torch.randn(n)
        torch.testing.assert_close(fast(x, y), program(x, y))
    assert fast.stats().specializations == 1 and fast.stats().eager_ops == 2
