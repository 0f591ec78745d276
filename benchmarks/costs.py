"""What the cost model (anyshape/costs.py) says, beside what this machine takes.

    python -m benchmarks.costs

Prints a line a cost: the name, what the model has, what was measured here (medians), and how it was
measured. Nothing is written; a model that is far from its machine is edited by hand.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import anyshape
from anyshape.costs import COSTS

CHAIN = 64
BREAKS = 10
REPEATS = 15


def median_us(
    run: Callable[[], Any], calls: int = 50, clock: Callable[[], float] = time.process_time
) -> float:
    """The median time of one call in microseconds; what else runs on the machine does not count."""
    run()
    times = []
    for _ in range(REPEATS):
        start = clock()
        for _ in range(calls):
            run()
        times.append((clock() - start) / calls * 1e6)
    return statistics.median(times)


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(CHAIN):
        x = x * 1.5
    return x


def with_breaks(x: torch.Tensor) -> torch.Tensor:
    for _ in range(BREAKS):
        for _ in range(COSTS.few_operators):  # fewer would run natively
            x = x + 1
        re.compile("a").scanner("a")  # C code that nobody knows: a break
    return x


def segment_us() -> float:
    """Calls in which segments still run, before the function is given up; what fusing saves is
    added."""
    x, times = torch.ones(8), []
    for _ in range(REPEATS):
        fast = anyshape.compile(lambda x: with_breaks(x))
        fast(x)
        start = time.process_time()
        fast(x)
        times.append((time.process_time() - start) * 1e6)
    saved = BREAKS * COSTS.few_operators * COSTS.operator_us
    return (statistics.median(times) - median_us(lambda: with_breaks(x)) + saved) / (BREAKS + 1)


def saved_us(size: int) -> float:
    """What an operator of a compiled chain saves on tensors of this size."""
    x, fast = torch.rand(size), anyshape.compile(chain)
    fast(x)
    calls = max(2, 20_000 // size)
    return (median_us(lambda: chain(x), calls) - median_us(lambda: fast(x), calls)) / CHAIN


def threads_cells() -> int:
    """The size from which two threads are faster than one at one simple operation."""
    fast = anyshape.compile(lambda x: x + 1)
    for exponent in range(12, 22):
        x, found = torch.rand(1 << exponent), []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(median_us(partial(fast, x), clock=time.perf_counter))
        if found[1] < found[0]:
            return int(1 << exponent)
    return 1 << 22


def main() -> None:
    torch.set_num_threads(1)
    small = saved_us(8)
    large = 1 << 16
    x = torch.ones(8)
    rows = [
        ("segment_us", COSTS.segment_us, segment_us(), "a call with ten breaks, less eager"),
        ("eager_operator_us", COSTS.eager_operator_us, median_us(lambda: x + 1), "x + 1, eager"),
        ("operator_us", COSTS.operator_us, small, f"{CHAIN} products of 8 elements"),
        (
            "element_us",
            COSTS.element_us,
            max(0.0, (saved_us(large) - small) / large),
            f"{CHAIN} products of {large} elements",
        ),
        ("threads_cells", COSTS.threads_cells, threads_cells(), "x + 1, one thread and two"),
    ]
    print(f"{'cost':<20}{'model':>12}{'here':>12}  how")
    for name, model, here, how in rows:
        print(f"{name:<20}{model:>12.6g}{here:>12.4g}  {how}")


if __name__ == "__main__":
    main()
