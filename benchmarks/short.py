"""What short programs cost before they run: `python -m benchmarks.short`.

Importing anyshape behind torch; what the first use of a public name imports; the first call of
`x + 1` in a process that has compiled before, without a cache of kernels and with one; a program
of forty different kernels. Milliseconds of a processor, the C compiler's included, the median of
some processes each. And the first calls of eight models in as many threads at once: seconds by the
clock, and how many times that is the work's share of each processor (on a machine that does nothing
else).
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

import anyshape
from anyshape.tools import models
from benchmarks import report

PROCESSES = 7
NAMES = "sin cos tanh exp sigmoid abs neg sqrt rsqrt log log1p expm1 erf atan sinh cosh asinh"
IMPORTS = """
import sys, time, torch
modules, start = len(sys.modules), time.process_time()
import anyshape
print(1e3 * (time.process_time() - start), len(sys.modules) - modules)
anyshape.compile
print(1e3 * (time.process_time() - start), len(sys.modules) - modules)
"""


def forty(x: Tensor, w: Tensor) -> Tensor:
    """Two kernels for each function, as a product ends a kernel."""
    for name in (*NAMES.split(), "floor", "relu", "sign"):
        function = getattr(torch, name)
        x = function(x) @ w
        x = (function(x) - x) @ w
    return x


def milliseconds() -> float:
    """Of a processor, for this process and those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (time.process_time() + children.ru_utime + children.ru_stime)


def first_call(function: Callable[..., Tensor], *args: Tensor) -> float:
    fast = anyshape.compile(function)
    start = milliseconds()
    fast(*args)
    return milliseconds() - start


def worker() -> None:
    """Prints what each program took in this process, whose cache may be empty."""
    torch.set_num_threads(1)
    first_call(lambda x: x * 3, torch.ones(4))
    found = {
        "x + 1": first_call(lambda x: x + 1, torch.ones(8)),
        "forty kernels": first_call(forty, torch.rand(6, 7), torch.rand(7, 7)),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def at_once() -> None:
    """Prints the seconds of the first calls of eight models in a thread each, and those of a
    processor."""
    torch.set_num_threads(1)
    names = models.present()[:8]
    fast = [anyshape.compile(models.build(name)) for name in names]
    given = [models.inputs(name, *models.SHAPES[0]) for name in names]
    first_call(lambda x: x * 3, torch.ones(4))

    def called(index: int) -> None:
        with torch.no_grad():
            fast[index](**given[index])

    clock, work = time.perf_counter(), milliseconds()
    with ThreadPoolExecutor(len(names)) as threads:
        for _ in threads.map(called, range(len(names))):
            pass
    found = time.perf_counter() - clock, (milliseconds() - work) / 1e3
    sys.stdout.write(json.dumps(found) + "\n")


def eight_threads() -> dict[str, object]:
    """The row of ``at_once``."""
    ratios, seconds = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            environ = {**os.environ, "ANYSHAPE_CACHE_DIR": directory}
            command = [sys.executable, "-m", "benchmarks.short", "--threads"]
            text = subprocess.check_output(command, env=environ, cwd=report.ROOT, text=True)
        clock, work = json.loads(text)
        seconds.append(clock)
        ratios.append(clock * len(os.sched_getaffinity(0)) / work)
    return {
        "what": "first calls of eight models at once",
        "s": statistics.median(seconds),
        "times its share of a processor": statistics.median(ratios),
    }


def in_processes() -> list[dict[str, object]]:
    """The first call of each program, with an empty cache and with that of the process before."""
    empty, full = [], []
    for _ in range(PROCESSES):
        with tempfile.TemporaryDirectory() as directory:
            environ = {**os.environ, "ANYSHAPE_CACHE_DIR": directory}
            command = [sys.executable, "-m", "benchmarks.short", "--worker"]
            for figures in (empty, full):
                text = subprocess.check_output(command, env=environ, cwd=report.ROOT, text=True)
                figures.append(json.loads(text))
    return [
        {
            "what": f"first call of {name}",
            "ms": statistics.median(each[name] for each in empty),
            "ms with a cache": statistics.median(each[name] for each in full),
        }
        for name in empty[0]
    ]


def imports() -> list[dict[str, object]]:
    """What is imported behind torch."""
    runs = []
    for _ in range(PROCESSES):
        text = subprocess.check_output([sys.executable, "-c", IMPORTS], cwd=report.ROOT, text=True)
        runs.append([line.split() for line in text.splitlines()])
    names = "import anyshape", "import anyshape, first use of a name"
    return [
        {
            "what": what,
            "ms": statistics.median(float(run[number][0]) for run in runs),
            "modules": int(runs[0][number][1]),
        }
        for number, what in enumerate(names)
    ]


def main() -> None:
    if "--worker" in sys.argv:
        worker()
        return
    if "--threads" in sys.argv:
        at_once()
        return
    rows = [*imports(), *in_processes(), eight_threads()]
    print(report.table(rows))
    report.save("short", rows)


if __name__ == "__main__":
    main()
