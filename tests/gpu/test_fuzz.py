"""The fuzzer's programs on a GPU do what eager does there. `python -m tests.fuzz 10000 --ways "on a GPU"` runs more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.timeout(600)
def test_random_programs_do_what_eager_does(tmp_path: Path) -> None:
    """In a process of its own: its workers are forks, which a process that uses CUDA cannot have."""
    arguments = ["64", "--ways", "on a GPU", "--jobs", "4", "--batch", "8", "--shrink", "0"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.fuzz", *arguments]
        + ["--directory", str(tmp_path)],
        env={**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert "64 programs were run, 0 differ" in done.stdout, done.stdout + done.stderr[-2000:]
