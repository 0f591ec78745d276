"""Schedules that are chosen by measuring them (``mode="max-autotune"``), once for a kind of sizes.

In: the candidates of a launch. Out: the fastest, on this device and with the launch's arguments.
What was found is kept on disk by the kernel's name, which is its content, and the device's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from anyshape.runtime.cache import DiskCache, digest
from anyshape.targets.triton.schedules import Choice

FASTEST = "fastest"
LAUNCHES, ROUNDS = 10, 5
WORTH = 0.98
"""Of the time of the rule's schedule: only what is faster than that takes its place."""

Run = Callable[[Choice], Callable[[], None]]
"""Prepares a launch."""


@dataclass(slots=True)
class Tuned:
    """What was measured of one kernel on one device. ``times``: microseconds of each candidate, in
    order; not of what was found on disk."""

    name: str
    device: int
    cache: DiskCache
    found: dict[tuple[object, ...], int] = field(default_factory=dict)
    times: dict[tuple[object, ...], list[float]] = field(default_factory=dict)

    def best(self, kind: tuple[object, ...], choices: Sequence[Choice], run: Run) -> Choice:
        """The fastest of the choices, of which the first is the rule's."""
        if kind not in self.found:
            key = digest("tuned", self.name, torch.cuda.get_device_name(self.device), repr(kind))
            kept = self.cache.load(key)
            if kept is None:
                launches = [run(choice) for choice in choices]  # all are compiled then
                times = self.times[kind] = [microseconds(launch) for launch in launches]
                fastest = min(range(len(times)), key=times.__getitem__)
                self.found[kind] = fastest if times[fastest] < times[0] * WORTH else 0
                self.cache.store(key, {FASTEST: str(self.found[kind]).encode()})
            else:
                self.found[kind] = int(kept[FASTEST])
        number = self.found[kind]
        return choices[number if number < len(choices) else 0]


def microseconds(launch: Callable[[], None]) -> float:
    """The time of a launch on the device alone: a graph of several, replayed."""
    launch()
    torch.cuda.synchronize()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(LAUNCHES):
                launch()
        finally:
            graph.capture_end()
    took = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()  # the device is at work while the host hands it what is measured
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        took.append(start.elapsed_time(end) * 1e3 / LAUNCHES)
    return statistics.median(took)
