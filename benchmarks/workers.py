"""A benchmark's own module again, in a process of its own that measures one row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import report


def figures_of(
    module: str, arguments: Sequence[str], caches: str, limit: float | None
) -> dict[str, object] | str:
    """What ``python -m module --worker`` prints as JSON in its last line; where there is nothing,
    why: it took more than ``limit`` seconds, or its error. ``caches`` is the folder of kernels."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, "--worker", *arguments],
            env={**os.environ, "ANYSHAPE_CACHE_DIR": caches, "ANYSHAPE_PROGRESS": "0"},
            cwd=report.ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"over {limit:.0f}"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:60]
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))
