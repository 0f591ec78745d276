"""Schedules that are chosen by measuring them (``mode="max-autotune"``), once for a kind of sizes.

In: the candidates of a launch. Out: the fastest, on this device and with the launch's arguments.
What was found is kept on disk by the kernel's name, which is its content, the device's and the
candidates, with the times of all, which ``explain`` prints.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

import torch

from anyshape.nouns import mutable
from anyshape.runtime.cache import DiskCache, digest
from anyshape.runtime.progress import doing
from anyshape.targets.triton.schedules import Choice

TIMES = "times"
LAUNCHES, ROUNDS = 10, 5
SECONDS = 5.0
"""Of measuring one kind of launch; what was not measured by then is not chosen."""
WORTH = 0.98
"""Of the time of the rule's schedule: only what is faster than that takes its place."""

Run = Callable[[Choice], Callable[[], None]]
"""Prepares a launch."""


@mutable
class Tuned:
    """What was measured of one kernel on one device. ``times``: of each kind of sizes the
    candidates, the rule's first, with their microseconds."""

    name: str
    device: int
    cache: DiskCache
    times: dict[tuple[object, ...], list[tuple[str, float]]] = field(default_factory=dict)

    def best(self, kind: tuple[object, ...], choices: Sequence[Choice], run: Run) -> Choice:
        """The fastest of the choices, of which the first is the rule's."""
        if kind not in self.times:
            about = repr((kind, [(str(c.schedule), c.library) for c in choices]))
            key = digest("measured", self.name, torch.cuda.get_device_name(self.device), about)
            kept = self.cache.load(key)
            if kept is None:
                with doing(f"measuring {len(choices)} schedules of {self.name}"):
                    self.times[kind] = _measured(choices, run)
                self.cache.store(key, {TIMES: json.dumps(self.times[kind]).encode()})
            else:
                self.times[kind] = [(text, took) for text, took in json.loads(kept[TIMES])]
        number = fastest(self.times[kind])
        return choices[number if number < len(choices) else 0]

    def lines(self) -> Iterator[str]:
        """Of each kind of sizes what was chosen, and what it was faster than."""
        for times in self.times.values():
            (text, took), number = times[fastest(times)], fastest(times)
            yield f"{self.name}: {text}: {took:.1f} us, measured beside"
            others = (other for n, other in enumerate(times) if n != number)
            yield from (f"    {took:.1f} us: {other}" for other, took in sorted(others, key=_time))


def fastest(times: Sequence[tuple[str, float]]) -> int:
    """The number of the fastest; the rule's, which is the first, where nothing is worth more."""
    number = min(range(len(times)), key=lambda n: times[n][1])
    return number if times[number][1] < times[0][1] * WORTH else 0


def _time(candidate: tuple[str, float]) -> float:
    return candidate[1]


def _measured(choices: Sequence[Choice], run: Run) -> list[tuple[str, float]]:
    """The rule's, and the others as long as there is time."""
    launches = [run(choice) for choice in choices]  # all are compiled then
    end, times = time.monotonic() + SECONDS, list[tuple[str, float]]()
    for choice, launch in zip(choices, launches, strict=True):
        if times and time.monotonic() > end:
            break
        times.append((str(choice), microseconds(launch)))
    return times


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
