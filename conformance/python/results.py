"""Runs modules, and keeps what was found in a file, a line a method.

In: names of modules. Out: `Method`s. Each module is loaded in a fork of this process, which has
torch loaded, and each run of a method is a fork of that one.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyshape
from conformance.python import exam, modules
from conformance.python.exam import Outcome
from conformance.python.forks import Died, forked

NATIVE_SECONDS = 5.0
"""Of processor time: a method that takes longer natively is not counted."""
COMPILED_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class Method:
    """One test method and the outcome of each way to run it."""

    module: str
    name: str  # of class and method
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def counted(self) -> bool:
        return self.outcomes["native"].kind == "right"

    @property
    def kind(self) -> str:
        """The worst of the runs under `fullgraph=True` and `False`."""
        if not self.counted:
            return "uncounted"
        found = [o.kind for name, o in self.outcomes.items() if name in ("whole", "pieces")]
        for kind in ("wrong", "hang", "E901", "unjudged", "break"):
            if kind in found:
                return kind
        return "right"

    @property
    def why(self) -> str:
        """What is said of it: by the run that is worst."""
        found = [o for o in self.outcomes.values() if o.kind == self.kind]
        return found[0].why if found else ""

    @property
    def for_peers(self) -> str:
        """The kind of the run in one graph on the peer's terms."""
        return self.outcomes.get("peers", self.outcomes["whole"]).kind


def warm() -> None:
    """Compiles once before the forks, so that none of them has to load anything."""
    for fullgraph in (True, False):
        anyshape.compile(exam.program, fullgraph=fullgraph)(exam.argument(), len_of_nothing)
    anyshape.compile(exam.program)(exam.argument(), lambda: os.getpid())


def len_of_nothing() -> None:
    """A method that does nothing."""
    len(())


@dataclass(frozen=True, slots=True)
class Selection:
    """Which methods are run: every n-th one from the `first`th on, of those with `only` in their
    name, of those the `part`th of `parts`; none that `done` has, and where `among` is given only
    what that has."""

    every: int = 1
    first: int = 0
    only: str = ""
    done: frozenset[tuple[str, str]] = frozenset()
    among: frozenset[tuple[str, str]] | None = None
    part: int = 0
    parts: int = 1

    def of(self, module: str) -> list[tuple[str, unittest.TestCase]]:
        """The chosen cases of a module, with their names."""
        named = [
            c for c in _named(modules.cases(module))[self.first :: self.every] if self.only in c[0]
        ]
        if self.among is not None:
            named = [c for c in named if (module, c[0]) in self.among]
        chosen = named[self.part :: self.parts]
        return [(label, case) for label, case in chosen if (module, label) not in self.done]


def run(names: Sequence[str], path: Path, selection: Selection, jobs: int = 1) -> None:
    """Runs methods of these modules in so many processes; each writes lines to the same file."""
    warm()
    workers = []
    for part in range(jobs):
        child = os.fork()
        if child == 0:
            _work(names, path, dataclasses.replace(selection, part=part, parts=jobs))
            os._exit(0)
        workers.append(child)
    for child in workers:
        os.waitpid(child, 0)


def _work(names: Sequence[str], path: Path, selection: Selection) -> None:
    """In one of the processes: its part of each module, each in a fork."""
    for name in names:
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _module(name, path, selection)
            os._exit(0)
        os.waitpid(child, 0)
        print(f"{name} {selection.part}: {time.monotonic() - started:.0f}s", flush=True)


def _module(name: str, path: Path, selection: Selection) -> None:
    """In the fork of a module: its chosen methods."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory, path.open("a") as file:
        os.chdir(directory)
        try:
            cases = selection.of(name)
            getattr(__import__(f"test.{name}", fromlist=["_"]), "setUpModule", _nothing)()
        except (Exception, unittest.SkipTest) as error:
            file.write(json.dumps({"module": name, "skipped": repr(error)}) + "\n")
            return
        for label, case in cases:
            found = Method(name, label, _outcomes(case))
            file.write(json.dumps(dataclasses.asdict(found)) + "\n")
            file.flush()


def _named(cases: Sequence[unittest.TestCase]) -> list[tuple[str, unittest.TestCase]]:
    """The cases with the names of class and method, numbered where one is met again."""
    seen: Counter[str] = Counter()
    named = []
    for case in cases:
        name = ".".join(case.id().split(".")[-2:])
        seen[name] += 1
        named.append((name if seen[name] == 1 else f"{name}#{seen[name]}", case))
    return named


def _nothing() -> None:
    """A module without fixtures."""


def _outcomes(case: unittest.TestCase) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for kind, work in exam.RUNS.items():
        if kind == "peers" and outcomes["whole"].kind != "break":
            continue
        outcomes[kind] = _in_a_fork(functools.partial(_as_data, work, case), kind == "native")
        if outcomes["native"].kind != "right":
            break
    return outcomes


def _as_data(work: Any, case: unittest.TestCase) -> dict[str, Any]:
    return dataclasses.asdict(work(case))


def _in_a_fork(work: Any, native: bool) -> Outcome:
    bad, slow = ("uncounted", "uncounted") if native else ("wrong", "hang")
    try:
        found = forked(work, NATIVE_SECONDS if native else COMPILED_SECONDS)
    except TimeoutError:
        return Outcome(slow, "takes too long")
    except Died as error:
        return Outcome(bad, str(error))
    if "crash" in found:
        return Outcome("uncounted" if native else "unjudged", found["crash"][-300:])
    return Outcome(**found)


def load(path: Path) -> list[Method]:
    """What the file at `path` holds; the last line of a method counts."""
    return list({(m.module, m.name): m for m in _lines(path)}.values())


def _lines(path: Path) -> Iterator[Method]:
    lines: Iterable[str] = path.read_text().splitlines() if path.exists() else ()
    for line in lines:
        data = json.loads(line)
        if "skipped" not in data:
            outcomes = {kind: Outcome(**found) for kind, found in data["outcomes"].items()}
            yield Method(data["module"], data["name"], outcomes)
