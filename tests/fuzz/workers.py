"""Many programs in processes of their own, so that a crash is one more difference.

A worker takes a batch of seeds; `together.py` has their kernels compiled in a few runs of the C
compiler.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import anyshape
from anyshape.targets.cpu import native_regions
from anyshape.targets.cpu.build import has_sanitizer
from tests.fuzz.oracle import Catching, catching, wrong
from tests.fuzz.programs import Fuzzed, grow
from tests.fuzz.together import run_together

SECONDS = 60
"""A program that takes longer hangs."""
MEMORY_BYTES = 16 << 30
LINES = 8
SANITIZER = re.compile(r"(ERROR: AddressSanitizer: |runtime error: ).*")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to compile programs: options, and which runs of steps become native regions."""

    verify: bool = False
    concrete: bool = False
    fewest_steps: int = native_regions.MIN_COMPUTE_STEPS
    long: int = native_regions.LONG


WAYS: Mapping[str, Way] = {
    "plain": Way(),
    "verified": Way(verify=True, concrete=True),
    "without native regions": Way(fewest_steps=1 << 30),
    "native regions of one step": Way(fewest_steps=1, long=1),
}


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
    before = native_regions.MIN_COMPUTE_STEPS, native_regions.LONG
    native_regions.MIN_COMPUTE_STEPS, native_regions.LONG = way.fewest_steps, way.long
    try:
        yield {"cache": False}
    finally:
        native_regions.MIN_COMPUTE_STEPS, native_regions.LONG = before


def judged(
    program: Fuzzed, way: Way, settings: Mapping[str, object], catch: Catching = catching
) -> list[str]:
    """How the program differs from eager."""
    return wrong(
        program,
        verify=way.verify,
        concrete=way.concrete,
        options=settings,
        silent=False,
        catch=catch,
    )


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


def warm() -> None:
    """Makes this process ready to compile, so that its workers need not."""
    torch.set_num_threads(1)
    anyshape.compile(lambda x: (x[1:] + 1).sum(0), options={"cache": False})(torch.ones(3, 2))


def in_a_process(work: Callable[[Callable[[Any], None]], None]) -> Iterator[Any]:
    """What the work tells from a process of its own; at last ``["crash", how]`` if that dies."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    said = tempfile.TemporaryFile("w+", errors="replace")
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(said.fileno(), 2)
        _be_modest()
        with os.fdopen(writing, "w") as file:

            def tell(what: Any) -> None:
                file.write(json.dumps(what) + "\n")
                file.flush()

            try:
                work(tell)
            except BaseException as error:
                tell(["broken", f"{type(error).__name__}: {error}"])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        for line in file:
            yield json.loads(line)
    _, status = os.waitpid(child, 0)
    if status:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        how = signal.Signals(number).name if number else f"status {status}"
        said.seek(0)
        report = SANITIZER.search(said.read())
        yield ["crash", f"{how} {report[0] if report else ''}"]
    said.close()


def _be_modest() -> None:
    """A program that asks for all memory gets none, and leaves no picture of it."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not has_sanitizer():  # whose shadow is terabytes
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    torch.set_num_threads(1)


def differences_of(seeds: Sequence[int], way: Way, level: str) -> Iterator[tuple[int, list[str]]]:
    """Of each seed how its program differs from eager; a crash ends a worker, not the batch."""
    left = list(seeds)
    while left:
        at = left[0]
        ended = ""
        for told in in_a_process(lambda tell: run_batch(left, way, level, tell)):
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
    for told in in_a_process(work):
        found += [f"{told[0]}: {told[1]}"] if told and told[0] in ("crash", "broken") else told
    return found
