"""Several programs whose kernels are compiled in one run of the C compiler.

Each program runs in a thread of its own, one at a time, until it wants kernels. When all that are
left wait for theirs, these are compiled together, and the programs go on one after the other.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from anyshape.errors import AnyshapeError
from anyshape.ir.code import NativeFunction
from anyshape.options import from_user
from anyshape.runtime.launch import Loaded
from anyshape.targets.cpu import target as cpu
from anyshape.targets.cpu.build import Builder, Building
from anyshape.targets.cpu.target import builder_of
from tests.fuzz.oracle import Catching
from tests.fuzz.programs import put_back, random_state

Work = Callable[[Catching], None]


@dataclass(slots=True, eq=False)
class Turn:
    """One program: when it may go on, what it waits for, and what it was warned of."""

    work: Work
    goes: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    wanted: dict[str, NativeFunction] = field(default_factory=dict)
    caught: list[Any] = field(default_factory=list)
    over: bool = False
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Table:
    """Whose turn it is."""

    back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    current: Turn | None = None

    def run(self, turn: Turn) -> None:
        """Lets a program go on until it waits or is over."""
        self.current = turn
        turn.goes.release()
        self.back.acquire()

    def wait_for(self, wanted: Mapping[str, NativeFunction]) -> None:
        """Called in a program's thread: others run meanwhile, with random numbers of their own."""
        turn, state = self.current, random_state()
        assert turn is not None
        turn.wanted = dict(wanted)
        self.back.release()
        turn.goes.acquire()
        turn.wanted = {}
        put_back(state)

    def thread(self, turn: Turn) -> None:
        """What runs in a program's thread."""
        turn.goes.acquire()
        try:
            turn.work(self.catching)
        except BaseException as error:
            turn.error = error
        turn.over = True
        self.back.release()

    @contextmanager
    def catching(self) -> Iterator[list[Any]]:
        """What the program of this thread is warned of; `warnings` itself knows no threads."""
        turn = self.current
        assert turn is not None
        turn.caught = []
        yield turn.caught

    def note(self, message: Any, category: Any, *_: Any, **__: Any) -> None:
        """In place of `warnings.showwarning`."""
        if self.current is not None:
            self.current.caught.append(warnings.WarningMessage(message, category, "", 0))


@dataclass(slots=True)
class Waiting(Builder):
    """A builder that first waits for the others."""

    real: Any = None
    table: Any = None

    def load(self, wanted: Mapping[str, NativeFunction]) -> dict[str, Loaded]:
        if any(name not in self.real.loaded for name in wanted):
            self.table.wait_for(wanted)
        return self.real.load(wanted)

    def start(self, wanted: Mapping[str, NativeFunction]) -> list[Building]:
        return []


def run_together(
    works: Mapping[int, Work], settings: Mapping[str, object], goes_on: Callable[[int], None]
) -> None:
    """Does all work; ``goes_on`` is told whose turn it is."""
    table = Table()
    options = from_user(options=settings)
    real = builder_of(options)
    key = next(k for k, builder in cpu._BUILDERS.items() if builder is real)
    parts = real.toolchain, real.cache, real.prelude, real.address
    cpu._BUILDERS[key] = Waiting(*parts, real=real, table=table)
    turns = {number: Turn(work) for number, work in works.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = table.note
            for turn in turns.values():
                threading.Thread(target=table.thread, args=(turn,), daemon=True).start()
            while turns:
                _load(real, {n: f for turn in turns.values() for n, f in turn.wanted.items()})
                for number, turn in list(turns.items()):
                    goes_on(number)
                    table.run(turn)
                    if turn.over:
                        del turns[number]
                        if turn.error is not None:
                            raise turn.error
    finally:
        cpu._BUILDERS[key] = real


def _load(real: Builder, wanted: Mapping[str, NativeFunction]) -> None:
    if wanted:
        try:
            real.load(wanted)
        except AnyshapeError:
            pass  # the program that it is about says so, alone
