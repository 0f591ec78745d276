"""Times that can be compared: the candidates take turns in one process, and ratios are medians of
pairs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from anyshape.nouns import frozen

ROUNDS = 31
SAMPLE_SECONDS = (
    2e-4  # a sample shorter than this is repeated within one round: the clock and the loop cost too
)


@frozen
class Timing:
    """Seconds a call of each candidate, one sample a round."""

    samples: Mapping[str, tuple[float, ...]]

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])

    def speedup(self, name: str, over: str) -> float:
        """How many times `name` is as fast as `over`: the median of the ratios of each round."""
        pairs = zip(self.samples[over], self.samples[name])
        return statistics.median(theirs / ours for theirs, ours in pairs)


def interleaved(candidates: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> Timing:
    """Call each candidate in turn, `rounds` times over, after two calls that do not count."""
    repeats = {}
    for name, call in candidates.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, round(SAMPLE_SECONDS / max(time.perf_counter() - start, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            samples[name].append(seconds_of(candidates[name], repeats[name]))
    return Timing({name: tuple(values) for name, values in samples.items()})


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
