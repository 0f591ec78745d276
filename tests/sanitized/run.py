"""Runs Python under the sanitizers: ``python tests/sanitized/run.py -m pytest tests/fuzz``.

Sets what the address sanitizer needs and becomes that Python: libasan comes first in the process, so that
every allocation of torch's has its bounds known, and libstdc++ beside it, whose exceptions it wraps.
ANYSHAPE_SANITIZE=1 has the compiler build C with the sanitizers; what they find ends the process.
"""

from __future__ import annotations

import os
import subprocess
import sys

COMPILER = os.environ.get("CC", "gcc")
LIBRARIES = ("libasan.so", "libstdc++.so.6")


def library(name: str) -> str:
    """The path of one of the compiler's libraries; its bare name, which the loader may know, where
    there is none: libstdc++ is with the compiler of C++, and without it in the system's folders."""
    return subprocess.run(
        [COMPILER, f"-print-file-name={name}"], capture_output=True, text=True
    ).stdout.strip()


def environment() -> dict[str, str]:
    """The environment of a sanitized Python. Python itself frees not all at its end; tensors of sizes that
    no memory holds are asked for on purpose; Python's own handler of faults would hide reports."""
    return os.environ | {
        "LD_PRELOAD": " ".join(map(library, LIBRARIES)),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "ANYSHAPE_SANITIZE": "1",
    }


if __name__ == "__main__":
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment())
