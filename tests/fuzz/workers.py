"""Many programs in processes of their own, so that a crash is one more difference.

A worker takes a batch of seeds; `together.py` has their kernels compiled in a few runs of the C
compiler.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import anyshape
from anyshape.costs import COSTS
from anyshape.targets.cpu import native_regions
from tests.forked import in_a_process
from tests.fuzz.on_device import is_said_by_torch, moved, raises_anywhere
from tests.fuzz.oracle import Catching, catching, wrong
from tests.fuzz.programs import Fuzzed, grow
from tests.fuzz.together import run_together

SECONDS = 300
"""A program that takes longer hangs. The C compiler's work for other programs may be in it."""
MEMORY_BYTES = 16 << 30
MAPPED_BYTES_OF_A_GPU = 1 << 46
"""CUDA maps the memory of the machine and of its GPUs."""
LINES = 8


@dataclass(frozen=True, slots=True)
class Way:
    """A way to compile programs: options, which runs of steps become native regions, and where
    tensors lie."""

    verify: bool = False
    concrete: bool = False
    fewest_steps: int = COSTS.region_steps
    long: int = COSTS.long_region_steps
    device: str = "cpu"

    @property
    def memory_bytes(self) -> int:
        return MEMORY_BYTES if self.device == "cpu" else MAPPED_BYTES_OF_A_GPU


WAYS: Mapping[str, Way] = {
    "plain": Way(),
    "verified": Way(verify=True, concrete=True),
    "without native regions": Way(fewest_steps=1 << 30),
    "native regions of one step": Way(fewest_steps=1, long=1),
    "on a GPU": Way(device="cuda"),
}
ON_THE_CPU = tuple(name for name, way in WAYS.items() if way.device == "cpu")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Choices of a seeded generator."""

    generator: random.Random

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.generator.randrange(len(options))]


def program_of(seed: int) -> Fuzzed:
    """The random program of that number."""
    drawn = Drawn(random.Random(seed))
    return grow(drawn, drawn.choose(range(1, LINES + 1)))


def quick_compiler(level: str) -> str:
    """A C compiler that optimizes less, whatever it is told; the default one for level 3."""
    if level == "3":
        return ""
    path = Path(tempfile.gettempdir()) / f"anyshape-fuzz-cc-O{level}-{os.getuid()}"
    text = f'#!/bin/sh\nexec cc "$@" -O{level}\n'
    if not path.exists() or path.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o755)
        os.replace(file.name, path)
    return str(path)


# --- a worker ---


@contextmanager
def going(way: Way) -> Iterator[dict[str, object]]:
    """The options of a way, with what it sets for the time being."""
    before = native_regions.COSTS
    native_regions.COSTS = replace(  # type: ignore[misc]
        before, region_steps=way.fewest_steps, long_region_steps=way.long
    )
    try:
        yield {"cache": False, "verify_programs": True}
    finally:
        native_regions.COSTS = before


def judged(
    program: Fuzzed, way: Way, settings: Mapping[str, object], catch: Catching = catching
) -> list[str]:
    """How the program differs from eager."""
    there = program
    if way.device != "cpu":
        if raises_anywhere(program):
            return []
        torch.cuda.init()
        there = moved(program, way.device)
    found = wrong(
        there,
        verify=way.verify,
        concrete=way.concrete,
        options=settings,
        silent=False,
        catch=catch,
    )
    if way.device != "cpu":
        torch.cuda.synchronize()  # raises here what a kernel has done wrong
        if found and not is_said_by_torch(program, way.device):
            return []
    return found


def run_batch(seeds: Sequence[int], way: Way, level: str, tell: Callable[[Any], None]) -> None:
    """What a worker does; ``tell`` is called before and after each program."""
    with going(way) as settings:
        settings["cc"] = quick_compiler(level)
        programs = {}
        for seed in seeds:
            tell(["run", seed])
            signal.alarm(SECONDS)
            programs[seed] = program_of(seed)

        def work(seed: int, catch: Catching) -> None:
            found = judged(programs[seed], way, settings, catch)
            tell(["found", seed, found])

        def goes_on(seed: int) -> None:
            tell(["run", seed])
            signal.alarm(SECONDS)

        run_together({seed: partial(work, seed) for seed in seeds}, settings, goes_on)
        signal.alarm(0)


IMPORTED_BY_TORCH = (
    "torch._dynamo.convert_frame",
    "torch._refs",
    "torch._subclasses.schema_check_mode",
    "torch.fx.experimental.symbolic_shapes",
)
"""What torch imports when it is first needed: a second, in each worker."""


def warm() -> None:
    """Makes this process ready to compile, so that its workers need not."""
    torch.set_num_threads(1)
    for name in IMPORTED_BY_TORCH:
        importlib.import_module(name)
    anyshape.compile(lambda x: (x[1:] + 1).sum(0), options={"cache": False})(torch.ones(3, 2))
    gc.collect()
    gc.freeze()  # a worker shares these objects' memory until it writes there


def differences_of(seeds: Sequence[int], way: Way, level: str) -> Iterator[tuple[int, list[str]]]:
    """Of each seed how its program differs from eager; a crash ends a worker, not the batch."""
    left = list(seeds)
    while left:
        at = left[0]
        ended = ""
        for told in in_a_process(lambda tell: run_batch(left, way, level, tell), way.memory_bytes):
            if told[0] == "found":
                yield told[1], told[2]
                left.remove(told[1])
            elif told[0] in ("crash", "broken"):
                ended = f"{told[0]}: {told[1]}"
            else:
                at = told[1]
        if ended:
            yield at, [ended]
            left.remove(at)


def differences_alone(program: Fuzzed, way: Way, level: str) -> list[str]:
    """How one program differs from eager, found out in a process of its own."""

    def work(tell: Callable[[Any], None]) -> None:
        with going(way) as settings:
            settings["cc"] = quick_compiler(level)
            signal.alarm(SECONDS)
            tell(judged(program, way, settings))

    found: list[str] = []
    for told in in_a_process(work, way.memory_bytes):
        found += [f"{told[0]}: {told[1]}"] if told and told[0] in ("crash", "broken") else told
    return found
