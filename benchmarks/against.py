"""The rows of `make bench` over two checkouts that take turns, as ratios of one to the other.

    python benchmarks/against.py BEFORE AFTER [--minutes 8] [--jobs NAME ...] [--cores N]
                                 [--out FILE]

BEFORE and AFTER are folders; any Python that has torch will do, and without transformers the rows
of its models are left out. Rows are milliseconds of a processor on one thread. Those of later calls
and of first calls in a process that has compiled before alternate between two processes that stay;
those of new processes, with a cache of kernels and without, are a process each. What is printed
is, for each row, the median of the ratios of neighbours (over 1: AFTER is slower), the rows over
5 %, and the geometric mean of each kind and of all. Rounds are repeated until the minutes are over.
BEFORE twice says what the machine's noise is.

Where a process has its memory makes rows up to a fifth faster or slower for as long as it lives,
with the same kernels. So many pairs of processes say more than many turns of one: `--cores N`
measures on N cores side by side, each with a job of its own from the list, in turn; a job that
stands in the list twice has twice as many.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

WORKER = Path(__file__).with_name("against_worker.py")
SERVED = ("warm", "warm models")
USUAL = (*SERVED, "process", "models", "symbols")
JOBS = (*USUAL, "overhead")
"""The last one takes the checkout's own script apart, which has to fit its code."""
SLOWER = 1.05
TURNS_OF_FIRST_CALLS = 5
"""A round has so many of each first call of a short program."""
PROCESSES = 3
"""A round has so many new processes of short programs."""
ROUNDS_OF_SYMBOLS = 2
"""They take long and vary little."""
LONGEST_SECONDS = 240
"""A process that needs more is stopped."""

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Side:
    """One checkout, with a folder of its own for caches."""

    folder: Path
    caches: Path

    def environ(self, cache: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "ANYSHAPE_CACHE_DIR": str(self.caches / cache),
            "ANYSHAPE_PROGRESS": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "",  # as where it is installed
        }

    def command(self, job: str) -> list[str]:
        return [sys.executable, "-P", "-W", "ignore", str(WORKER), job]

    def run(self, job: str, cache: str = "shared") -> dict[str, float]:
        """The figures of a new process; none if it fails."""
        try:
            done = subprocess.run(
                self.command(job),
                env=self.environ(cache),
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            print(f"{job} of {self.folder} took too long", file=sys.stderr)
            return {}
        if done.returncode:
            print(f"{job} of {self.folder} failed:\n{done.stderr[-800:]}", file=sys.stderr)
            return {}
        return dict(json.loads(done.stdout.splitlines()[-1]))


class Server:
    """A process that stays, and measures what it is asked for."""

    def __init__(self, side: Side, job: str, log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            side.command(job),
            env=side.environ("shared"),
            cwd=side.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.rows: list[str] = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended; see {self._log.name}")
        return line

    def measure(self, row: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(row + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._line()))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@dataclass(slots=True)
class Figures:
    """What was measured, a pair a turn."""

    jobs: Sequence[str] = USUAL
    pairs: defaultdict[str, list[Pair]] = field(default_factory=lambda: defaultdict(list))

    def add(self, before: Mapping[str, float], after: Mapping[str, float], head: str = "") -> None:
        for row in before.keys() & after.keys():
            self.pairs[head + row].append((before[row], after[row]))


def ratio(pairs: Sequence[Pair]) -> float:
    """The median over the turns of how much longer the second took."""
    return statistics.median(after / before for before, after in pairs)


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(each) for each in ratios))


def kind(row: str) -> str:
    return row.split(",")[0]


def report(pairs: Mapping[str, Sequence[Pair]]) -> Iterator[str]:
    """The lines of the table and what they come to."""
    ratios = {row: ratio(turns) for row, turns in pairs.items() if turns}
    width = max(map(len, ratios), default=0)
    heads = f"{'before ms':>10} {'after ms':>10} {'ratio':>6} {'middle half':>13} turns"
    yield f"{'row':{width}}  {heads}"
    for row in sorted(ratios):
        turns = pairs[row]
        before, after = (statistics.median(each) for each in zip(*turns))
        each = sorted(after / before for before, after in turns)
        low, high = each[len(each) // 4], each[-1 - len(each) // 4]
        spread = f"{low:.3f}..{high:.3f}"
        yield (
            f"{row:{width}}  {before:10.4f} {after:10.4f} {ratios[row]:6.3f} {spread:>13}"
            f" {len(turns):5}"
        )
    slow = sorted((row for row in ratios if ratios[row] > SLOWER), key=ratios.__getitem__)
    yield f"\nrows over {SLOWER}: {len(slow)} of {len(ratios)}"
    yield from (f"  {ratios[row]:.3f} {row}" for row in reversed(slow))
    yield "geometric means:"
    for name in dict.fromkeys(map(kind, sorted(ratios))):
        of_kind = [each for row, each in ratios.items() if kind(row) == name]
        yield f"  {geometric_mean(of_kind):.3f} {name} ({len(of_kind)} rows)"
    if ratios:
        yield f"  {geometric_mean([*ratios.values()]):.3f} all ({len(ratios)} rows)"


def served_round(servers: Sequence[Server], figures: Figures) -> None:
    """Each row of two processes that stay, one after the other."""
    for row in servers[0].rows:
        short = row.startswith("first call,")
        for turn in range(TURNS_OF_FIRST_CALLS if short else 1):
            order = (0, 1) if turn % 2 == len(figures.pairs[row]) % 2 else (1, 0)
            found = {side: {row: servers[side].measure(row)} for side in order}
            figures.add(found[0], found[1])


def both(sides: Sequence[Side], job: str, cache: str, turn: int) -> list[dict[str, float]]:
    """A new process of each side; who is first alternates."""
    order = (0, 1) if turn % 2 == 0 else (1, 0)
    found = {number: sides[number].run(job, cache) for number in order}
    return [found[0], found[1]]


def process_round(sides: Sequence[Side], figures: Figures, number: int, caches: str) -> None:
    """Rows of new processes."""
    if "process" in figures.jobs:
        for turn in range(PROCESSES):
            figures.add(*both(sides, "process", "shared", turn))
    if "models" in figures.jobs:
        for head in ("empty cache, ", "second process, "):
            figures.add(*both(sides, "models", f"{caches}, models {number}", number), head)
    for job in {"symbols", "overhead"}.intersection(figures.jobs):
        if number < ROUNDS_OF_SYMBOLS:
            figures.add(*both(sides, job, "shared", number))


def begun(
    sides: Sequence[Side], logs: Path, jobs: Sequence[str], name: str, stack: ExitStack
) -> list[list[Server]]:
    """The processes that stay, after the first figure of each row, which does not count."""
    pairs = []
    for job in filter(SERVED.__contains__, jobs):
        servers = [
            stack.enter_context(Server(side, job, logs / f"{name}, {job} {number}.log"))
            for number, side in enumerate(sides)
        ]
        for row in servers[0].rows:
            for server in servers:
                server.measure(row)
        pairs.append(servers)
    if "process" in jobs:
        both(sides, "process", "shared", 0)
    return pairs


def rounds(
    sides: Sequence[Side], logs: Path, jobs: Sequence[str], until: float, core: int | None = None
) -> Figures:
    """Rounds until there is no time for one more, on this core."""
    if core is not None:
        os.sched_setaffinity(0, {core})  # of this thread, and of what it starts
    figures, name = Figures(jobs), "all cores" if core is None else f"core {core}"
    with ExitStack() as stack:
        pairs = begun(sides, logs, jobs, name, stack)
        taken, number = 0.0, 0
        while time.monotonic() + taken < until or number == 0:
            start = time.monotonic()
            for servers in pairs:
                served_round(servers, figures)
            process_round(sides, figures, number, name)
            taken = time.monotonic() - start
            number += 1
            print(f"{name}: round {number} took {taken:.0f} s", file=sys.stderr, flush=True)
            if not pairs and {"process", "models"}.isdisjoint(jobs) and number == ROUNDS_OF_SYMBOLS:
                break
    return figures


def side_by_side(
    sides: Sequence[Side], logs: Path, jobs: Sequence[str], until: float, cores: int
) -> Figures:
    """Each core with the next job of the list; all figures together."""
    own = sorted(os.sched_getaffinity(0))[-cores:]
    dealt = [jobs[index % len(jobs)] for index in range(len(own))]
    with ThreadPoolExecutor(len(own)) as pool:
        parts = [
            pool.submit(rounds, sides, logs, [job], until, core)
            for job, core in zip(dealt, own, strict=True)
        ]
    whole = Figures(jobs)
    for part, job, core in zip(parts, dealt, own, strict=True):
        if (error := part.exception()) is not None:
            print(f"{job} on core {core} failed: {error!r}", file=sys.stderr)
            continue
        for row, pairs in part.result().pairs.items():
            whole.pairs[row] += pairs
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--jobs", nargs="+", default=USUAL, choices=JOBS)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file for all pairs, as JSON")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        sides = [
            Side(checkout.resolve(), Path(folder) / name)
            for name, checkout in (("before", arguments.before), ("after", arguments.after))
        ]
        given = (sides, Path(folder), arguments.jobs, until)
        alone = arguments.cores == 1
        figures = rounds(*given) if alone else side_by_side(*given, arguments.cores)
    print("\n".join(report(figures.pairs)))
    if arguments.out:
        arguments.out.write_text(json.dumps(figures.pairs, indent=1) + "\n")


if __name__ == "__main__":
    main()
