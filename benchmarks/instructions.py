"""Instructions of first and later calls in two checkouts: the load of a machine moves none of them.

    python -m benchmarks.instructions BEFORE AFTER [--only NAME ...] [--save NOTE]

For the short programs of `against_worker.py`, under valgrind's callgrind, which must be installed
with its headers. A first call is from `anyshape.compile` to the result, of a program whose kernels
are in the cache; collections of garbage are off. Kernels are run with the vector instructions that
valgrind knows. What is counted is work: caches of a processor, and what a kernel waits for, are
not in it, so that `against.py` on a quiet machine has the last word.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import save

WORKER = Path(__file__).with_name("against_worker.py")
FIRST, LATER = 3, 200
WARM = 40
"""So many later calls before those that count: what is loaded in one of them does not count."""
REQUESTS = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(const char *name) { CALLGRIND_STOP_INSTRUMENTATION; CALLGRIND_DUMP_STATS_AT(name); }
"""
FIGURE = re.compile(r"Client Request: (.*)$", re.MULTILINE)
TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def measure(library: str, only: Sequence[str]) -> None:
    """In a process of one checkout: dumps of what each row takes."""
    requests = ctypes.CDLL(library)
    worker = runpy.run_path(str(WORKER), run_name="worker")
    compiled, another = worker["anyshape"].compile, worker["another"]

    def counted(name: str, calls: Sequence[Callable[[], object]]) -> None:
        gc.collect()
        requests.start()
        for call in calls:
            call()
        requests.stop(f"{len(calls)} {name}".encode())

    gc.disable()
    worker["torch"].set_num_threads(1)
    with worker["torch"].no_grad():
        for name, (function, arguments) in worker["programs"]().items():
            if only and name not in only:
                continue
            for _ in range(FIRST + 1):
                worker["first_call"](function, arguments)
            new = [another(function) for _ in range(FIRST)]
            counted(f"first call, {name}", [partial(called, compiled, f, arguments) for f in new])
            fast = partial(compiled(function, fullgraph=True), *arguments)
            for _ in range(WARM):
                fast()
            counted(f"later call, {name}", [fast] * LATER)


def called(
    compiled: Callable[..., Any], function: Callable[..., Any], arguments: tuple[Any, ...]
) -> object:
    """A first call."""
    return compiled(function)(*arguments)


def of_checkout(folder: Path, work: Path, library: Path, only: Sequence[str]) -> dict[str, float]:
    """Instructions of each row."""
    work.mkdir()
    environ = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONHASHSEED": "0",
        "ANYSHAPE_CACHE_DIR": str(work / "cache"),
        "ANYSHAPE_PROGRESS": "0",
        "OMP_NUM_THREADS": "1",
    }
    counter = ("valgrind", "--tool=callgrind", "--instr-atstart=no")
    out = f"--callgrind-out-file={work / 'counted'}"
    ours = (sys.executable, "-P", "-W", "ignore", str(Path(__file__)), "--measure", str(library))
    command = [*counter, out, *ours, *(("--only", *only) if only else ())]
    subprocess.run(command, env=environ, cwd=folder, check=True, stderr=subprocess.DEVNULL)
    found = {}
    for path in work.glob("counted.*"):
        text = path.read_text(encoding="utf-8")
        if (name := FIGURE.search(text)) is not None:
            count, _, row = name[1].partition(" ")
            found[row] = max(map(int, TOTAL.findall(text))) / int(count)
    return found


def table(before: Mapping[str, float], after: Mapping[str, float]) -> list[dict[str, object]]:
    """A row for each figure, and the geometric means."""
    both = sorted(before.keys() & after.keys())
    ratios = {row: after[row] / before[row] for row in both}
    rows: list[dict[str, object]] = [
        {
            "row": row,
            "before, thousands": before[row] / 1e3,
            "after, thousands": after[row] / 1e3,
            "ratio": ratios[row],
        }
        for row in both
    ]
    for kind in ("first call", "later call"):
        of_kind = [math.log(ratio) for row, ratio in ratios.items() if row.startswith(kind)]
        if of_kind:
            mean = math.exp(sum(of_kind) / len(of_kind))
            rows.append({"row": f"{kind}s, geometric mean", "ratio": mean})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--save", metavar="NOTE", help="put them on the page, with this note")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.only)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source, library = work / "requests.c", work / "requests.so"
        source.write_text(REQUESTS, encoding="utf-8")
        subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        before, after = (
            of_checkout(checkout.resolve(), work / name, library, arguments.only)
            for name, checkout in (("before", arguments.before), ("after", arguments.after))
        )
    rows = table(before, after)
    if arguments.save is not None:
        save("instructions", rows, arguments.save)
    for row in rows:
        print("  ".join(f"{x:12.3f}" if isinstance(x, float) else f"{x:44}" for x in row.values()))


if __name__ == "__main__":
    main()
