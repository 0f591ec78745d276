"""`python -m tests.fuzz_python 200000 --seed 0 --jobs 2`: many random programs of Python, and how
they differ from CPython.

Each batch of seeds leaves a line in the file of results, so that what was stopped goes on where it
was. At the end a few programs of each cause are made small and printed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz_python.shrink import cause
from tests.fuzz_python.workers import differing, small, warm, way_of

BATCH = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the programs and says which differ; the status is 1 if any does."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_python", description=__doc__)
    parser.add_argument("count", type=int, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--shrink", type=int, default=0, help="how many of each cause to make small"
    )
    parser.add_argument("--results", type=Path, default=Path("build/fuzz_python.jsonl"))
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    options.results.parent.mkdir(exist_ok=True)
    known = dict(_known(options.results))
    firsts = range(options.seed, options.seed + options.count, BATCH)
    warm()
    with (
        multiprocessing.get_context("fork").Pool(options.jobs) as pool,
        options.results.open("a") as file,
    ):
        for first, found in pool.imap(_batch, [n for n in firsts if n not in known]):
            known[first] = found
            file.write(json.dumps([first, found]) + "\n")
            file.flush()
    found = [row for first in firsts for row in known[first]]
    print(f"{len(firsts) * BATCH:,} programs were run, {len(found):,} differ from CPython")
    _report(found, options.shrink)
    return 1 if found else 0


def _known(path: Path) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        first, found = json.loads(line)
        yield first, found


def _batch(first: int) -> tuple[int, list[tuple[int, str]]]:
    return first, list(differing(range(first, first + BATCH)))


def _report(found: Sequence[tuple[int, str]], shrink: int) -> None:
    causes = defaultdict(list)
    for seed, difference in found:
        causes[cause(difference)].append((seed, difference))
    for text, members in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"\n=== {len(members)} x {text}")
        for seed, difference in members[:12]:
            print(f"seed {seed} ({way_of(seed)}): {difference}")
        for seed, _ in members[:shrink]:
            program, difference = small(seed)
            print(f"--- seed {seed} made small\n{program}# {difference}")


if __name__ == "__main__":
    sys.exit(main())
