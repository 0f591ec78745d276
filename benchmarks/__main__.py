"""Run the benchmarks named, or all of one checkout, one after the other: `python -m benchmarks
[NAME ...]`.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.report import BENCHMARKS, OF_TWO_CHECKOUTS


def main() -> int:
    names = sys.argv[1:] or [name for name in BENCHMARKS if name not in OF_TWO_CHECKOUTS]
    status = 0
    for name in names:
        print(f"--- {name} ---", flush=True)
        # A process each: what one leaves behind (threads, caches, memory) is not the next one's.
        status |= subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"], check=False
        ).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
