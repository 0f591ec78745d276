"""Programs in processes of their own, so that what hangs or crashes is one more difference."""

from __future__ import annotations

import contextlib
import gc
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tests.forked import in_a_process, little_memory
from tests.fuzz_python.classes import PRELUDE
from tests.fuzz_python.grammar import program_of
from tests.fuzz_python.oracle import WAYS, differences, natively
from tests.fuzz_python.shrink import shrunk

SECONDS = 20
"""A program that takes longer hangs; natively, it is left out past one."""
MEMORY_BYTES = 3 << 30
NATIVE_BYTES = 128 << 20
"""What a program may need natively: one that extends a list by an iterator over it is endless in C,
where no signal is heard."""


class Slow(BaseException):
    """A program takes too long natively."""


def _too_slow(number: int, frame: object) -> None:
    raise Slow


def verdict(text: str, way: str) -> str:
    """How a program differs, "" if it does not."""
    wanted = _wanted(text)
    if wanted is None:
        gc.collect()  # what it made may be much
        return ""
    try:
        with limited(SECONDS):
            return str(differences(text, way, wanted) or "")
    except Slow:
        return "hangs"


def _wanted(text: str) -> list[dict[str, Any]] | None:
    """What the program shows natively; None if it has no end or shows something else each time."""
    try:
        with limited(1.0), little_memory(NATIVE_BYTES), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = natively(text)
            again = natively(text)
    except (Slow, Exception):  # of `world`, once made small
        return None
    met_bound = "MemoryError" in str(wanted)  # the program goes on behind it
    return wanted if again == wanted and not met_bound else None  # addresses differ, for one


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `Slow` past a time of the processor, and again each second while that is swallowed."""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def warm() -> None:
    """Loads what every worker needs."""
    torch.set_num_threads(1)
    verdict(PRELUDE + program_of(0), "whole")


def way_of(seed: int) -> str:
    """Half of the programs run without breaks of our making."""
    names = list(WAYS)
    return names[0] if seed % 2 == 0 else names[1 + seed // 2 % (len(names) - 1)]


def differing(seeds: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The seeds whose programs differ, and how; a crash ends a worker, not the batch."""
    left = list(seeds)
    while left:
        at, ended = left[0], ""

        def work(tell: Callable[[Any], None], seeds: Sequence[int] = tuple(left)) -> None:
            for seed in seeds:
                tell([seed, None])
                tell([seed, verdict(PRELUDE + program_of(seed), way_of(seed))])

        for told in in_a_process(work, MEMORY_BYTES):
            if told[0] in ("crash", "broken"):
                ended = f"{told[0]}: {told[1]}"
                continue
            at, found = told
            if found is not None:
                left.remove(at)
            if found:
                yield at, found
        if ended:
            yield at, ended
            left.remove(at)


def small(seed: int) -> tuple[str, str]:
    """The program of a seed made small, in a process of its own, and how it differs."""
    way = way_of(seed)

    def work(tell: Callable[[Any], None]) -> None:
        tell(shrunk(program_of(seed), lambda text: verdict(PRELUDE + text, way)))

    return next(iter(in_a_process(work, MEMORY_BYTES)))
