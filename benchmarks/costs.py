"""What the cost model (anyshape/costs.py) says, beside what this machine takes.

    python -m benchmarks.costs [NAME ...]

Prints a line a cost: what the model has, what was measured here (medians), whether the two differ
by more than a factor of two, and how it was measured. Nothing is written; a model that is far from
its machine is edited by hand. `CHOSEN` are the numbers that no measurement decides.
"""

from __future__ import annotations

import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch

import anyshape
from anyshape.costs import COSTS
from anyshape.dispatch.profitability import CallRecord, Profitability

CHAIN = 64
BREAKS = 10
REPEATS = 15
FAR = 2.0  # a factor past which the model and the machine differ
NEAR = 1.1  # what is this close to the best is as good
COMPILES = 1_000  # calls over which the compile of a kernel counts
ASKING = ("schedule.fuse", "passes.long_cats", "targets.cpu.native_regions")

CHOSEN: Mapping[str, str] = MappingProxyType(
    {
        "patience": "how sure one is that a function loses: a call may be slow by chance",
        "retry_growth": "arguments that grow by less do not change what is worth it",
        "long_gpu_region_steps": "two regions of two steps each: a GPU's memory is dear",
        "gpu_region_steps": "what a step leaves is allocated at most so many steps before it",
        "replayed_steps": "an H200: a launch 3.6 us, that of a graph 2.5 and looking for it 2",
        "replayed_call": "an H200: a library's product 12 us, a kernel's launch 3.6",
        "kernels_alike": "a compiler's run of 30 ms a kernel; fewer lose little, and constants win",
        "kept_nodes": "looking on disk takes as long as to translate so few nodes",
        "whole_launch": "starting threads costs less than an eighth of so large a launch",
    }
)
"""What no measurement decides, and why."""


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


@contextmanager
def with_costs(**changed: int) -> Iterator[None]:
    """What is compiled inside is scheduled by another model."""
    with ExitStack() as stack:
        for name in ASKING:
            module = importlib.import_module(f"anyshape.{name}")
            stack.enter_context(mock.patch.object(module, "COSTS", replace(COSTS, **changed)))
        yield


def compiled_us(program: Callable[..., Any], x: torch.Tensor, calls: int = 50) -> float:
    fast = anyshape.compile(program, fullgraph=True)
    return median_us(partial(fast, x), calls)


# --- segments ---


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(CHAIN):
        x = x * 1.5
    return x


def with_breaks(x: torch.Tensor, turns: int = 0) -> torch.Tensor:
    """Segments between breaks, and after each so many turns of a loop that has no operators."""
    for _ in range(BREAKS):
        for _ in range(COSTS.few_operators):  # fewer would run natively
            x = x + 1
        gc.isenabled()  # C code that nobody knows: a break
        for _ in range(turns):
            pass
        gc.isenabled()
    return x


def second_call(turns: int = 0) -> tuple[float, CallRecord]:
    """Microseconds of a call in which segments still run, before the function is given up; and
    what it ran."""
    x, times, calls = torch.ones(8), [], []
    settle = Profitability.settle

    def noted(self: Profitability, call: CallRecord, elements: int) -> None:
        calls.append(replace(call))
        settle(self, call, elements)

    with mock.patch.object(Profitability, "settle", noted):
        for _ in range(REPEATS):
            fast = anyshape.compile(lambda x: with_breaks(x, turns))
            fast(x)
            start = time.process_time()
            fast(x)
            times.append((time.process_time() - start) * 1e6)
    return statistics.median(times), calls[-1]


def eager_us(turns: int = 0) -> float:
    x = torch.ones(8)
    return median_us(lambda: with_breaks(x, turns))


def segment_us() -> float:
    spent, call = second_call()
    saved = call.nodes * COSTS.operator_us - call.instructions * COSTS.instruction_us
    return (spent - eager_us() + saved) / call.segments


def instruction_us(turns: int = 100) -> float:
    """What so many turns between the segments add, by instruction."""
    (plain, before), (longer, after) = second_call(), second_call(turns)
    slower = longer - plain - (eager_us(turns) - eager_us())
    return slower / (after.instructions - before.instructions)


def first_call_us() -> float:
    """Compiling a small segment whose kernels are in the cache."""
    x, times = torch.ones(8), []
    for _ in range(REPEATS):
        start = time.process_time()
        anyshape.compile(lambda x: x + 1)(x)
        times.append((time.process_time() - start) * 1e6)
    return statistics.median(times)


def retry_calls() -> float:
    """Native calls of which a call that loses is a tenth."""
    native = eager_us()
    return (second_call()[0] - native) / native * 10


def saved_us(size: int) -> float:
    """What an operator of a compiled chain saves on tensors of this size."""
    x, fast = torch.rand(size), anyshape.compile(chain)
    fast(x)
    calls = max(2, 20_000 // size)
    return (median_us(lambda: chain(x), calls) - median_us(lambda: fast(x), calls)) / CHAIN


def element_us(size: int = 1 << 16) -> float:
    return max(0.0, (saved_us(size) - saved_us(8)) / size)


def few_elements() -> float:
    """The size from which half as many operators as a segment has to have are worth one."""
    operators = COSTS.few_operators // 2
    sizes = (1 << exponent for exponent in range(10, 21))
    return next((n for n in sizes if operators * saved_us(n) > COSTS.segment_us), 1 << 21)


# --- kernels ---


def threads_cells() -> float:
    """The size from which two threads are faster than one at one simple operation."""
    fast = anyshape.compile(lambda x: x + 1)
    for exponent in range(12, 22):
        x, found = torch.rand(1 << exponent), []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(median_us(partial(fast, x), clock=time.perf_counter))
        torch.set_num_threads(1)
        if found[1] < found[0]:
            return 1 << exponent
    return 1 << 22


def cost_us(program: Callable[..., Any], x: torch.Tensor) -> float:
    """A call, and its part of the first one."""
    fast = anyshape.compile(program, fullgraph=True, options={"cache": False})
    start = time.perf_counter()
    fast(x)
    first = (time.perf_counter() - start) * 1e6
    return median_us(partial(fast, x), 10) + first / COMPILES


def best_limit(name: str, limits: Sequence[int], cost: Callable[[], float]) -> float:
    """The smallest limit that is nearly as good as the best."""
    found = {}
    for limit in limits:
        with with_costs(**{name: limit}):
            found[limit] = cost()
    return next(limit for limit in limits if found[limit] <= NEAR * min(found.values()))


def kernel_operators() -> float:
    def program(x: torch.Tensor) -> torch.Tensor:
        for n in range(192):
            x = (x * (1.0 + n / 1000)).abs() if n % 2 else x + n
        return x

    x = torch.rand(1 << 16)
    limits = (12, 24, 48, 96, 192, 384)
    return best_limit("kernel_operators", limits, lambda: cost_us(program, x))


def kernel_parts() -> float:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * n for n in range(64)]).neg()

    x = torch.rand(1 << 11)
    return best_limit("kernel_parts", (4, 8, 16, 32, 64), lambda: cost_us(program, x))


def nested_joins() -> float:
    def program(x: torch.Tensor) -> torch.Tensor:
        for n in range(8):
            x = torch.nn.functional.pad(x * 1.5, (1, 1), value=float(n))
        return x

    x = torch.rand(64, 1 << 10)
    return best_limit("nested_joins", (1, 2, 4, 8), lambda: cost_us(program, x))


# --- native regions ---


def sums(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """So many kernels, one after the other."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = x / x.sum(0)
        return x

    return program


def region_us(steps: int, **changed: int) -> float:
    with with_costs(**changed):
        return compiled_us(sums(steps), torch.rand(4, 4), 200)


def region_steps() -> float:
    """The number of kernels from which one C function is faster than the host."""
    for steps in (1, 2, 3, 4):
        if region_us(steps, region_steps=1) < region_us(steps, region_steps=99):
            return steps
    return 5


def long_region_steps() -> float:
    """The number of kernels for which a second native region costs no tenth of the call."""
    for steps in (2, 4, 8, 16, 32):
        separate = region_us(steps, long_region_steps=2)
        if separate < NEAR * region_us(steps, long_region_steps=10_000):
            return steps
    return 64


MEASURED: Mapping[str, tuple[Callable[[], float], str]] = MappingProxyType(
    {
        "segment_us": (segment_us, f"a call with {2 * BREAKS} breaks, less eager"),
        "instruction_us": (instruction_us, "a Python loop between segments, less eager"),
        "operator_us": (partial(saved_us, 8), f"{CHAIN} products of 8 elements"),
        "element_us": (element_us, f"{CHAIN} products of {1 << 16} elements"),
        "eager_operator_us": (
            lambda: median_us(partial(torch.add, torch.ones(8), 1)),
            "x + 1, eager",
        ),
        "retry_calls": (retry_calls, "a lost call is a tenth of so many native ones"),
        "few_elements": (few_elements, "half of few_operators save what a segment costs"),
        "threads_cells": (threads_cells, "x + 1, one thread and two"),
        "kernel_operators": (kernel_operators, f"384 operators, compile and {COMPILES} calls"),
        "kernel_parts": (kernel_parts, f"64 parts, compile and {COMPILES} calls"),
        "nested_joins": (nested_joins, f"8 pads of pads, compile and {COMPILES} calls"),
        "region_steps": (region_steps, "kernels of 16 elements, host and native region"),
        "long_region_steps": (long_region_steps, "kernels of 16 elements, one region and two"),
        "interpreted_instructions": (
            lambda: first_call_us() / COSTS.instruction_us,
            "instructions that take as long as compiling x + 1",
        ),
    }
)


def verdict(model: float, here: float) -> str:
    """Whether the two differ, as text."""
    if min(model, here) <= 0:
        return "differs" if model != here else ""
    return "differs" if max(model / here, here / model) > FAR else ""


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:] or [*MEASURED, *CHOSEN]
    print(f"{'cost':<26}{'model':>12}{'here':>12}  {'':<8}  how")
    for name in names:
        model = getattr(COSTS, name)
        if name in CHOSEN:
            print(f"{name:<26}{model:>12.6g}{'':>12}  {'chosen':<8}  {CHOSEN[name]}")
            continue
        measure, how = MEASURED[name]
        here = measure()
        print(
            f"{name:<26}{model:>12.6g}{here:>12.4g}  {verdict(model, here):<8}  {how}", flush=True
        )


if __name__ == "__main__":
    main()
