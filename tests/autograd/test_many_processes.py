"""Training in two processes gives eager's numbers: replicated, sharded and split models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.autograd.processes import WAYS, WORLD

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_a_step_in_two_processes_is_eagers(tmp_path: Path) -> None:
    """All ways in the same two processes: what they import takes longer than what they do."""
    right = [f"right {name}" for name in WAYS]
    command = [sys.executable, "-m", "tests.autograd.processes"]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), *WAYS],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(WORLD)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * WORLD, "\n".join(said)
    for text in said:
        assert [line for line in text.splitlines() if line in right] == right, text
