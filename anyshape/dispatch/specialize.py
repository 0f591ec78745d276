"""One specialization: a segment is captured from its entry on, and its graph compiled.

In: a program point, with what has been widened there, and an entry. Out: a `Variant`. Where the
program ends in what cannot be rebuilt, or raises, the variant says to run it natively.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any

import torch

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.counters import counters
from anyshape.capture.heap.breaks import GraphBreak, record_of
from anyshape.capture.heap.values import Break, InterpreterBug, ProxyLeak
from anyshape.capture.interpreter.frame import Frame, locate
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.interpreter.stressed import StressedMachine
from anyshape.capture.python.language import PYTHON, python_machine
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.segments.declared_results import prove_returned
from anyshape.capture.segments.segment_end import finish
from anyshape.capture.segments.symbolic_domain import SymbolicDomain
from anyshape.capture.tensors import aliases
from anyshape.dispatch.module_names import module_name
from anyshape.dispatch.parameter_guards import entry_of
from anyshape.dispatch.trampoline import concrete_machine, inflate, numbers_of
from anyshape.dispatch.variants import (
    EMPTY,
    Entry,
    Point,
    Variant,
    guard_set,
    never_rebuilt,
    replayable,
    run_once,
    tested,
    without_autocast,
)
from anyshape.errors import AnyshapeError, mistake, said, stage_of
from anyshape.ir.graph import Graph, Location
from anyshape.options import Options
from anyshape.symbolic.work import Stage, summed

CompileGraph = Callable[[Graph, Mapping[str, torch.Tensor]], Any]


@dataclass(frozen=True, slots=True)
class _Assumed:
    """What a capture takes for granted until the program shows otherwise: see ``texts.py``,
    ``aliases.py`` and ``counters.py``."""

    forms_texts: bool = True
    picks_are_views: bool = False
    counters: frozenset[str] = frozenset()


@dataclass(slots=True)
class Specializer:
    """Makes the variants of one function; see `Compiled` for `compile_graph`.

    `codes` are the functions decoded so far, `captured` those that lie in segments, `breaks` the
    graph breaks that were met.
    """

    fn: Callable[..., Any]
    options: Options
    compile_graph: CompileGraph
    codes: dict[Any, Any] = field(default_factory=dict)
    captured: set[CodeType] = field(default_factory=set)
    breaks: list[GraphBreak] = field(default_factory=list)
    compile_seconds: float = 0.0
    capture_seconds: float = 0.0
    stages: list[Stage] = field(default_factory=list)
    captures: int = 0

    def variant(self, point: Point, entry: Entry) -> Variant:
        """One capture from the entry on, compiled."""
        started = time.perf_counter()
        assumed, breaks = _Assumed(), len(self.breaks)
        while True:
            del self.breaks[breaks:]
            try:
                return self._captured(point, entry, started, assumed)
            except _LooksIntoTexts:
                assumed = dataclasses.replace(assumed, forms_texts=False)
            except aliases.PicksAreSeen:
                assumed = dataclasses.replace(assumed, picks_are_views=True)
            except _Counts as found:
                assumed = dataclasses.replace(assumed, counters=assumed.counters | found.places)

    def _captured(self, point: Point, entry: Entry, started: float, assumed: _Assumed) -> Variant:
        recorder = Recorder(
            dynamic=self.options.dynamic is not False,
            values=not point.general,
            whole=self.options.fullgraph,
            picks_are_views=assumed.picks_are_views,
            resumed=entry.place is not None,
        )
        domain = SymbolicDomain(
            recorder,
            widen=point.widen | assumed.counters,
            forks=self.options.fork_budget,
            turns=self.options.unroll_budget,
            forms_texts=assumed.forms_texts,
        )
        machine = self._machine(domain)
        if entry.placed is not None:
            recorder.declare(entry.placed)
            recorder.front = entry.placed.front(entry.slots)
        try:
            return self._specialize(machine, domain, entry, started)
        finally:
            self._note(recorder.space.work.stages)
            self.captured |= domain.interpreted
            domain.forget()

    def _machine(self, domain: SymbolicDomain) -> Machine:
        every = self.options.break_every
        if not every:
            return python_machine(domain, self.codes)
        self.captures += 1
        random_ = random.Random(f"{self.options.break_seed} {self.captures}")
        count = random_.randint(1, 2 * every) if self.options.break_seed else every
        return StressedMachine(domain, PYTHON, self.codes, count)

    def _note(self, stages: list[Stage]) -> None:
        """Keeps what the stages of one compile took, and says it where that is asked for."""
        self.stages += stages
        if self.options.times:
            name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
            lines = [f"anyshape: {name}", *map(str, summed(stages))]
            sys.stderr.write("".join(f"{line}\n" for line in lines))

    def _specialize(
        self, machine: Machine, domain: SymbolicDomain, entry: Entry, started: float
    ) -> Variant:
        """Captures a segment and has its graph compiled."""
        recorder = domain.recorder
        try:
            with stage_of("capture", recorder.last_location), recorder.space.work.stage("capture"):
                ending, suspect = self._run(machine, domain, entry)
                returns = not isinstance(ending, Frame)
                proved = entry.placed is None or not returns or prove_returned(recorder, ending)
                numbers = frozenset() if returns else numbers_of(ending, recorder.is_symbolic)
                new_machine = partial(concrete_machine, self.codes)
                outputs, rebuild, once = finish(domain, ending, new_machine)
                outputs = aliases.settled(recorder, outputs)
        except Break as signal:
            self._break(signal, machine)
            return self._native(recorder)
        except _Escaped as escaped:  # natively the exception comes with its effects
            return dataclasses.replace(self._native(recorder), suspect=escaped.suspect)
        with stage_of("the guards", recorder.last_location), recorder.space.work.stage("guards"):
            _check_marks(recorder)
            apart = aliases.kept_apart(recorder)
            if apart is not None and not apart.holds_for(entry.slots):
                return self._native(recorder, apart)
            guards = guard_set(recorder, apart)
            counted = counters(guards.guards, machine.heap, recorder.sources) - domain.widen
            if counted and recorder.dynamic:
                raise _Counts(counted)
            test, fresh = entry_of(guards, execution_modes.snapshot, self.options)
        graph = recorder.builder.finish(outputs)
        captured = time.perf_counter()
        compiled = (
            self.compile_graph(graph, recorder.constants) if graph.nodes or outputs else EMPTY
        )
        self.capture_seconds += captured - started
        self.compile_seconds += time.perf_counter() - started
        variant = Variant(
            guards,
            test,
            without_autocast(replayable(compiled.run, graph), recorder.entry_modes),
            rebuild if proved else tested(entry.placed, rebuild),
            returns=returns,
            restartable=not recorder.written,
            fresh=fresh,
            graph=graph,
            compiled=compiled,
            joined=domain.forks.joined,
            guarded=domain.forks.guarded,
            refusals=tuple(domain.forks.refusals),
            names=recorder.symbol_names,
            placed=entry.placed,
            numbers=numbers,
            end=None if returns else (ending.code, ending.index),
            suspect=suspect,
            widen=domain.widen,
        )
        if once:
            run_once(variant)
        return variant

    def _run(
        self, machine: Machine, domain: SymbolicDomain, entry: Entry
    ) -> tuple[Any, AnyshapeError | None]:
        """Captures from the entry on: what the program returns, or the innermost frame at a
        graph break with what of it may be a mistake of ours."""
        recorder = domain.recorder
        try:
            virtual = self._place(domain, entry)
            if entry.place is None:
                named = dict(zip(entry.names, virtual[entry.positional :]))
                return machine.run(self.fn, *virtual[: entry.positional], **named), None
            machine.frame = inflate(entry.place, virtual, domain.bound_method)
            return machine.resume(), None
        except Break as signal:
            if domain.has_formed and signal.reason in LOOKING:
                raise _LooksIntoTexts from None
            if machine.frame is None or signal.reason == "escape":
                raise
            self._break(signal, machine)
            why = signal.context.get("mistake")
            place = recorder.last_location()
            return machine.frame, mistake("capture", why, place) if why else None
        except (ProxyLeak, InterpreterBug) as error:
            raise mistake("capture", error, recorder.last_location()) from error
        except BaseException as error:
            if error is not machine.escaped:
                raise
            raise _Escaped(error) from None

    def _native(self, recorder: Recorder, apart: Any = None) -> Variant:
        """Under these guards the program runs natively: it raises, or leaves behind what cannot
        be rebuilt."""
        guards = guard_set(recorder, apart, overlapping=apart is not None)
        test, _ = entry_of(guards, execution_modes.snapshot, self.options)
        return Variant(
            guards,
            test,
            None,
            never_rebuilt,
            returns=False,
            restartable=True,
        )

    def _place(self, domain: SymbolicDomain, entry: Entry) -> list[Any]:
        sources = domain.recorder.sources
        owner = getattr(self.fn, "__self__", self.fn)
        root = sources.const(owner, getattr(owner, "__name__", type(owner).__name__.lower()))
        domain.recorder.guard(root, "type", type(owner))
        declared = domain.recorder.declared
        order = range(len(entry.slots)) if declared is None else declared.order(len(entry.slots))
        texts = entry.told()
        seen = {i: domain.see(sources.slot(i, texts[i]), entry.slots[i]) for i in order}
        return [seen[i] for i in range(len(entry.slots))]

    def _break(self, signal: Break, machine: Machine) -> None:
        location = None
        frame = machine.frame
        while frame is not None and frame.code.hidden:
            frame = frame.back
        if frame is not None:
            location = locate(frame.code, min(frame.index, len(frame.code.lines) - 1))
        found = record_of(signal, location, module_name(self.fn, frame))
        self.breaks.append(found)
        if self.options.fullgraph and signal.reason != "operator-raises":
            raise found.error()


def _check_marks(recorder: Recorder) -> None:
    """A size marked dynamic must not have become a constant."""
    for symbol, _, name in recorder.marked:
        value = recorder.cx.facts.simplify(symbol.expr)
        if isinstance(value, int):
            by = [
                str(size.location)
                for size in (*recorder.entry_sizes, *recorder.sizes)
                if symbol in size.condition.symbols
            ]
            raise AnyshapeError(
                "E301", dim=name, value=value, why=f"it is relied on at {by[0]}" if by else ""
            )


LOOKING = frozenset({"changing-value", "proxy-leak", "unknown-call"})
"""Breaks that a text of sizes may cause by being formed in each call only."""


class _Counts(BaseException):
    """The program writes another number where it has read one: it is to be a symbol."""

    def __init__(self, places: frozenset[str]) -> None:
        self.places = places


class _LooksIntoTexts(BaseException):
    """The program may look into a text of sizes: it is to be a constant."""


class _Escaped(BaseException):
    """The program itself raised, as far as capture can tell."""

    def __init__(self, error: BaseException) -> None:
        why = f"{said(error)}, which the program itself does not raise"
        self.suspect = mistake("capture", why, _innermost(error))


def _innermost(error: BaseException) -> Location | None:
    """The line that raised."""
    traceback = error.__traceback__
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return Location(code.co_filename, traceback.tb_lineno, 0, 0, code.co_qualname)
