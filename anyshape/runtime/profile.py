"""What torch's profilers see of compiled code, and how long its kernels take.

While one records, a twin of the host function runs in its place, in which each kernel and each call
of a library is an event of its own (``torch.profiler.record_function``) and all of the segment is
one around them. Without a profiler the twin is not even made. ``measure`` makes calls under a
profiler; a kernel's time is the device's where it runs on a GPU, else that of its event.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from anyshape.ir.step_labels import KernelUse
from anyshape.ir.variants import Variants
from anyshape.nouns import mutable, replace
from anyshape.symbolic import Condition, evaluate

CALLS = 5
"""That are measured."""
COPIED_BYTES = 1 << 26
"""What a copy that is measured reads: more than caches hold on a CPU."""


def recorded(
    run: Callable[..., Any], label: str, launched: Launched | None = None
) -> Callable[..., Any]:
    """``run`` as one event of this name; what is ``launched`` is noted anew."""

    def recording(*arguments: Any) -> Any:
        if launched is not None:
            launched.forget()
        with record_function(label):
            return run(*arguments)

    return recording


@mutable(eq=False)
class Launched:
    """What a program's last run under a profiler launched, by the kernel's name: the bytes that
    each launch reads and writes; of the last one its sizes, and its schedule where the host's code
    chooses one."""

    moved: dict[str, list[int]] = field(default_factory=dict)
    schedules: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def forget(self) -> None:
        """A run begins."""
        self.moved.clear()

    def record(
        self, label: str, size_bytes: int | None, variants: Variants, sizes: Mapping[str, int]
    ) -> record_function:
        """The event of a launch with these sizes; None where data has decided how much it moves."""
        name = label.partition(" ")[0]
        self.sizes[name] = sizes
        if size_bytes is not None:
            self.moved.setdefault(name, []).append(size_bytes)
        for variant in variants:
            if _holds(variant.predicate, sizes):
                self.schedules[name] = str(variant.schedule)
                break
        return record_function(label)

    def line(self, use: KernelUse, times: Times, chosen: Iterable[str] = ()) -> str:
        """The kernel with what was measured of it: what its last launches moved, the time of one,
        the share of the speed of memory that it reaches, and which schedule ran: what the launch
        has ``chosen``, or the host's code."""
        moved = self.moved.get(use.name)
        if not moved or use.name not in times:
            return str(use)
        took, each = times[use.name], statistics.mean(moved)
        share = each / took / copy_speed(use.device)
        known = str(replace(use, bytes=round(each)))
        parts = known, f"{took:.1f} us", f"{share:.0%} of a copy's speed"
        return ", ".join((*parts, "; ".join(chosen) or self.schedules.get(use.name, "")))


def _holds(predicate: Condition | bool, sizes: Mapping[str, int]) -> bool:
    """Under parameters of a kernel; False where one of them is known to the device alone."""
    if isinstance(predicate, bool):
        return predicate
    known = {s: sizes[s.name] for s in predicate.symbols if s.name in sizes}
    return len(known) == len(predicate.symbols) and bool(evaluate(predicate, known))


Times = Mapping[str, float]
"""Microseconds of a launch, on average, by the name of the kernel."""


def measure(call: Callable[[], object]) -> Times:
    """How long a launch takes in ``CALLS`` calls, after one that is not measured."""
    call()
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(CALLS):
            call()
        _wait()
    launches, host, device = Counter[str](), Counter[str](), Counter[str]()
    for event in profiler.events() or ():
        name = event.name.partition(" ")[0]
        if event.device_type == torch.autograd.DeviceType.CPU:
            launches[name] += 1
            host[name] += event.cpu_time_total
        else:
            device[name] += event.device_time_total
    return {name: (device[name] or host[name]) / count for name, count in launches.items()}


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


@functools.cache
def copy_speed(device: str) -> float:
    """Bytes a microsecond that a large copy on the device reads and writes."""
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        _wait()
        start = time.perf_counter()
        target.copy_(source)
        _wait()
        times.append(time.perf_counter() - start)
    return 2 * COPIED_BYTES / (statistics.median(times[1:]) * 1e6)


@contextlib.contextmanager
def profile(region: str) -> Iterator[None]:
    """Marks what runs inside as a region of this name: an event of ``torch.profiler``, and a range
    of NVTX where CUDA is used. Inside of a compiled function it marks nothing: there the names of
    kernels and lines say what runs."""
    with record_function(region):
        ranged = torch.cuda.is_available() and torch.cuda.is_initialized()
        with torch.cuda.nvtx.range(region) if ranged else contextlib.nullcontext():
            yield
