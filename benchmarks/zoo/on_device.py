"""`python -m benchmarks.zoo.on_device FILE`: the zoo on a GPU, several entries at a time.

Entries run in forked processes, which share a disk cache. FILE holds what was found, by setting;
what it holds is not run again, so that the same command goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch

from anyshape.optional import require
from anyshape.targets.triton.binaries import COMPILER
from benchmarks.zoo import page
from benchmarks.zoo.catalogue import ENTRIES
from benchmarks.zoo.entry import Entry
from benchmarks.zoo.judge import Finding, examine
from benchmarks.zoo.setting import Setting

FAMILIES = (
    *("experts", "decoder", "encoder", "vision", "encoder-decoder", "state space"),
    *("segmentation", "detection", "text and pictures", "super resolution"),
)
"""In order of importance; those that are not named come last."""
PATIENCE_SECONDS = 150
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], choices=DTYPES)
    parser.add_argument("--attention", default="", help="transformers' name of an implementation")
    parser.add_argument("--gradients", action="store_true", help="compare those of parameters")
    parser.add_argument("--fullgraph", action="store_true", help="breaks and refusals are errors")
    parser.add_argument("--families", nargs="+", default=[], help="only these")
    parser.add_argument("--names", nargs="+", default=[], help="only what contains one of these")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=9.0)
    given = parser.parse_args()
    settings = [
        Setting(given.device, DTYPES[d], given.attention, given.gradients, given.fullgraph)
        for d in given.dtypes
    ]
    session = Session(given.file, time.monotonic() + given.minutes * 60, given.jobs)
    session.run([*waiting(settings, given.families, given.names)])
    print(*summary(session.found), sep="\n")
    return 0


def waiting(
    settings: Sequence[Setting], families: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[Entry, Setting]]:
    """Every entry that is wanted, the families of most importance first."""
    order = {family: number for number, family in enumerate(FAMILIES)}
    for entry in sorted(ENTRIES, key=lambda e: order.get(e.family, len(order))):
        named = not names or any(name.lower() in entry.name.lower() for name in names)
        if named and (not families or entry.family in families):
            for setting in settings:
                yield entry, setting


@dataclass(slots=True)
class Running:
    entry: Entry
    setting: Setting
    process: ForkProcess
    start: float


@dataclass(slots=True)
class Session:
    """What runs and what was found, by setting."""

    file: Path
    until: float
    jobs: int
    found: dict[str, list[Finding]] = field(default_factory=dict)
    running: dict[Connection, Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            self.found = {name: [Finding(**each) for each in rows] for name, rows in kept.items()}

    def run(self, wanted: list[tuple[Entry, Setting]]) -> None:
        """Entries that are not known yet, until the time is over."""
        prepare()
        known = {(setting, f.name) for setting, rows in self.found.items() for f in rows}
        wanted = [(e, s) for e, s in wanted if (str(s), e.name) not in known][::-1]
        while wanted or self.running:
            while wanted and len(self.running) < self.jobs and time.monotonic() < self.until - 15:
                self.begin(*wanted.pop())
            for pipe in wait([*self.running], 1.0):
                assert isinstance(pipe, Connection)
                self.end(pipe)
            self.give_up()
            if time.monotonic() > self.until:
                break
        for run in self.running.values():
            run.process.kill()

    def begin(self, entry: Entry, setting: Setting) -> None:
        ours, theirs = multiprocessing.get_context("fork").Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=send_finding, args=(entry, setting, theirs)
        )
        process.start()
        theirs.close()
        self.running[ours] = Running(entry, setting, process, time.monotonic())

    def end(self, pipe: Connection) -> None:
        """A process has sent what it found, or died."""
        run = self.running.pop(pipe)
        try:
            finding = pipe.recv()
        except EOFError:
            run.process.join()
            why = f"the process died with status {run.process.exitcode}"
            finding = Finding(run.entry.name, run.entry.family, wrong=[why])
        run.process.kill()
        run.process.join()
        self.keep(run, finding)

    def give_up(self) -> None:
        for pipe, run in [*self.running.items()]:
            if time.monotonic() - run.start > PATIENCE_SECONDS:
                run.process.kill()
                del self.running[pipe]
                why = f"took more than {PATIENCE_SECONDS} s"
                self.keep(run, Finding(run.entry.name, run.entry.family, why))

    def keep(self, run: Running, finding: Finding) -> None:
        self.found.setdefault(str(run.setting), []).append(finding)
        text = {name: [asdict(each) for each in rows] for name, rows in self.found.items()}
        self.file.write_text(json.dumps(text, indent=1) + "\n")
        seconds = time.monotonic() - run.start
        if not finding.right or finding.eager_graphs:
            print(f"{run.setting}: {page.line(finding)} [{seconds:.0f} s]", flush=True)


def prepare() -> None:
    """What all processes need is imported once; none of it touches the device."""
    require("transformers")
    importlib.import_module("triton.compiler")
    COMPILER.workers.count = 1  # kernels are made in the process itself
    assert not COMPILER.workers.usable
    gc.freeze()


def send_finding(entry: Entry, setting: Setting, pipe: Connection) -> None:
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # eager's own error would hide ours
    try:
        finding = examine(entry, False, setting)
    except Exception as error:
        finding = Finding(entry.name, entry.family, f"{type(error).__name__}: {error}"[:300])
    pipe.send(finding)
    pipe.close()


def summary(found: dict[str, list[Finding]]) -> Iterator[str]:
    """Counts by setting and family: right and compiled, right with graphs that eager torch runs,
    wrong, not run."""
    for setting, rows in found.items():
        for family in dict.fromkeys(each.family for each in rows):
            of_it = [each for each in rows if each.family == family]
            refused = sum(each.right and bool(each.eager_graphs) for each in of_it)
            right = sum(each.right for each in of_it) - refused
            wrong = sum(bool(each.wrong) for each in of_it)
            rest = len(of_it) - right - refused - wrong
            counts = f"{right} right, {refused} by eager, {wrong} wrong, {rest} not run"
            yield f"{setting}, {family}: {counts}"


if __name__ == "__main__":
    sys.exit(main())
