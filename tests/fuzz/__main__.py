"""`python -m tests.fuzz 100000 --seed 0 --jobs 2`: many random programs, and what is wrong with them.

Each batch of seeds leaves a file in the directory, so that what was stopped goes on where it was.
At the end each program that differs from eager is made small, and what is left is grouped by
its cause.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.fuzz.programs import Fuzzed
from tests.fuzz.shrink import cause, shrunk
from tests.fuzz.workers import (
    ON_THE_CPU,
    WAYS,
    differences_alone,
    differences_of,
    program_of,
    warm,
)

SECONDS_BETWEEN_LINES = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the programs and says what is wrong; the status is 1 if anything is."""
    options = _parser().parse_args(arguments)
    if options.job is None:
        return _all_jobs(options)
    warm()
    ends = time.monotonic() + options.seconds
    for batch in _batches(options)[options.job :: options.jobs]:
        if not batch.file.exists() and time.monotonic() < ends:
            seeds = [s for s in batch.seeds if _is_like(s, options.like)]
            found = list(differences_of(seeds, WAYS[batch.way], options.level))
            _write(batch.file, found)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("count", type=int, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--ways", default="plain", help=f"of {', '.join(WAYS)}; or 'all' on the CPU"
    )
    parser.add_argument("--level", default="0", help="how far the C compiler optimizes: 0 to 3")
    parser.add_argument("--like", default="", help="only programs whose text matches this")
    parser.add_argument(
        "--batch", type=int, default=200, help="programs in one worker: as many threads"
    )
    parser.add_argument("--shrink", type=int, default=100, help="how many to make small")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no batch is begun")
    parser.add_argument("--directory", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    return parser


class Batch:
    """Some seeds, one way to compile, and the file that holds what was found."""

    def __init__(self, options: argparse.Namespace, way: str, first: int) -> None:
        end = min(first + options.batch, options.seed + options.count)
        self.way, self.seeds = way, range(first, end)
        pattern = re.sub(r"\W+", "_", options.like)
        folder = options.directory / f"{way.replace(' ', '_')}-O{options.level}{pattern}"
        self.file = folder / f"{first}-{end}.json"


def _batches(options: argparse.Namespace) -> list[Batch]:
    ways = list(ON_THE_CPU) if options.ways == "all" else options.ways.split(",")
    firsts = range(options.seed, options.seed + options.count, options.batch)
    return [Batch(options, way, first) for first in firsts for way in ways]


def _is_like(seed: int, pattern: str) -> bool:
    return not pattern or re.search(pattern, program_of(seed).source) is not None


def _write(file: Path, what: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial_file = file.with_suffix(f".{os.getpid()}")
    partial_file.write_text(json.dumps(what))
    partial_file.replace(file)


def _all_jobs(options: argparse.Namespace) -> int:
    batches, started = _batches(options), time.monotonic()
    there = sum(batch.file.exists() for batch in batches)
    jobs = [
        subprocess.Popen([sys.executable, "-m", "tests.fuzz", *sys.argv[1:], "--job", str(job)])
        for job in range(options.jobs)
    ]
    told = ""
    while any(job.poll() is None for job in jobs):
        time.sleep(SECONDS_BETWEEN_LINES)
        line = _progress(batches, there, started)
        if line != told:
            print(f"\r{line:<70}", end="", file=sys.stderr, flush=True)
            told = line
    print(file=sys.stderr)
    found = list(_found(batches))
    seeds = {(batch_way, seed) for batch_way, seed, _ in found}
    total = sum(len(batch.seeds) for batch in batches if batch.file.exists())
    print(f"{total:,} programs were run, {len(seeds):,} differ from eager")
    _report(options, found)
    return 1 if found or any(job.returncode for job in jobs) else 0


def _progress(batches: Sequence[Batch], there: int, started: float) -> str:
    done = [batch for batch in batches if batch.file.exists()]
    elapsed = time.monotonic() - started
    left = elapsed / max(len(done) - there, 1) * (len(batches) - len(done))
    count, differ = sum(len(batch.seeds) for batch in done), len(list(_found(done)))
    return f"{count:,} programs, {differ} differ, {left / 60:.0f} min left"


def _found(batches: Sequence[Batch]) -> Iterator[tuple[str, int, list[str]]]:
    for batch in batches:
        if batch.file.exists():
            for seed, differences in json.loads(batch.file.read_text()):
                if differences:
                    yield batch.way, seed, differences


def _report(options: argparse.Namespace, found: Sequence[tuple[str, int, list[str]]]) -> None:
    """The distinct causes, each with its smallest program."""
    groups: dict[tuple[str, str], list[tuple[int, str, Fuzzed | None, str]]] = {}
    tried = 0
    for way, seed, differences in found:
        known = cause(differences[0])
        if tried < options.shrink:
            tried += 1
            print(f"making seed {seed} small", file=sys.stderr, flush=True)
            small, text = _small(options, way, seed)
            key = known, _shape(small)
        else:
            small, text, key = None, differences[0], (known, "")
        groups.setdefault(key, []).append((seed, way, small, text))
    for (known, _), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        seed, way, small, text = min(members, key=lambda m: len(m[2].source) if m[2] else 10**6)
        others = ", ".join(str(m[0]) for m in members[:12])
        print(f"\n=== {len(members)} x {known}\n    ({way}; seeds {others})")
        print(text if small is None else f"{small}\n# {text}".replace("\n#", "\n#"))


def _small(options: argparse.Namespace, way: str, seed: int) -> tuple[Fuzzed, str]:
    """The program made small, in a process that may die over it."""
    differs = partial(differences_alone, way=WAYS[way], level=options.level)
    program, problems = shrunk(program_of(seed), differs)
    return program, "\n# ".join(problems[0].split("\n")) if problems else "(not alone)"


def _shape(program: Fuzzed) -> str:
    """The program without its names and numbers: two of one shape have one cause."""
    return re.sub(r"\d+", "#", re.sub(r"\b[a-z]+\d+_?\b", "v", program.source))


if __name__ == "__main__":
    sys.exit(main())
