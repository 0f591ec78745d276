"""One specialization: a segment is captured from its entry on, and its graph compiled.

In: a program point, with what has been widened there, and an entry. Out: a `Specialization`.
Where the program ends in what cannot be rebuilt, or raises, it says to run that natively.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from anyshape.capture.guards import execution_modes
from anyshape.capture.heap.allocation_age import collection_paused
from anyshape.capture.segments.capturing import Captured, Capturer
from anyshape.capture.segments.cleared_gradients import let_go
from anyshape.capture.segments.flagged_arguments import with_flags
from anyshape.capture.segments.program_points import Entry
from anyshape.dispatch.parameter_guards import entry_of
from anyshape.dispatch.specializations import (
    EMPTY,
    Point,
    Specialization,
    released_with_modules,
    replayable,
    run_once,
    tested,
    under_inference,
    without_autocast,
)
from anyshape.eager import CheckFailed
from anyshape.errors import stage_of
from anyshape.ir.graph import Node
from anyshape.nouns import mutable
from anyshape.ops.gradients.backward import APPLIED
from anyshape.options import Options
from anyshape.symbolic.work import Stage, Work, summed

CompileGraph = Callable[..., Any]
"""Of a graph, its constants, and why autograd is to see each operator, if it is."""
WATCHED = "the gradient of a tensor in it is watched"


@mutable
class Specializer:
    """Makes the specializations of one function; see `Compiled` for `compile_graph`."""

    capturer: Capturer
    options: Options
    compile_graph: CompileGraph
    compile_seconds: float = 0.0
    capture_seconds: float = 0.0

    @property
    def stages(self) -> list[Stage]:
        """The stages of all compiles."""
        return [stage for work in self.capturer.works for stage in work.stages]

    def specialization(self, point: Point, entry: Entry) -> Specialization:
        """One capture from the entry on, compiled."""
        started, first = time.perf_counter(), len(self.capturer.works)
        with collection_paused():
            try:
                specialization = self._made(point, entry)
                if nodes := _run_by_eager(specialization):
                    specialization = self._fit_for_eager(point, entry, specialization, nodes)
                return released_with_modules(specialization)
            finally:
                self.compile_seconds += time.perf_counter() - started
                self._tell(self.capturer.works[first:])

    def _fit_for_eager(
        self, point: Point, entry: Entry, made: Specialization, nodes: Sequence[Node]
    ) -> Specialization:
        """Eager torch runs these nodes: it would keep all that checkpoints compute in the graph,
        and autograd may call functions of the program's own itself, and hooks of leaves."""
        if any(node.modes is not None and node.modes.checkpoint for node in nodes):
            made = self._made(point, entry, checkpoints=False)
            nodes = _run_by_eager(made)
        if nodes and (made.captured.asked or any(node.op == APPLIED for node in nodes)):
            made = self._made(point, entry, checkpoints=False, functions=False)
        return made

    def _made(
        self, point: Point, entry: Entry, *, checkpoints: bool = True, functions: bool = True
    ) -> Specialization:
        started = time.perf_counter()
        captured = self.capturer.capture(
            entry,
            point.widen,
            general=point.general,
            checkpoints=checkpoints,
            functions=functions,
        )
        self.capture_seconds += time.perf_counter() - started
        return self._compiled(captured, entry)

    def _tell(self, works: list[Work]) -> None:
        """Says what the stages took, where that is asked for."""
        if self.options.times:
            fn = self.capturer.fn
            name = getattr(fn, "__qualname__", type(fn).__name__)
            stages = summed(stage for work in works for stage in work.stages)
            lines = [f"anyshape: {name}", *map(str, stages)]
            sys.stderr.write("".join(f"{line}\n" for line in lines))

    def _compiled(self, captured: Captured, entry: Entry) -> Specialization:
        graph, guards = captured.graph, captured.guards
        first = graph.first_line if graph is not None else lambda: None
        with stage_of("the guards", first), captured.work.stage("guards"):
            test, fresh = entry_of(guards, execution_modes.snapshot, self.options)
        if graph is None:
            return Specialization(captured, test, None, captured.rebuild, returns=captured.returns)
        needed = graph.nodes or graph.outputs
        given = (graph, captured.constants, *((WATCHED,) if captured.watched else ()))
        compiled = self.compile_graph(*given) if needed else EMPTY
        run = replayable(compiled.run, graph, captured.restartable)
        if captured.modes is not None:
            run = without_autocast(run, captured.modes)
        if captured.inference:
            run = under_inference(run)
        failures = Exception if captured.restartable else CheckFailed
        specialization = Specialization(
            captured,
            test,
            with_flags(captured.flagged, let_go(captured.cleared, run), failures),
            captured.rebuild if captured.proved else tested(entry.declared, captured.rebuild),
            fresh,
            compiled,
            entry.declared,
            returns=captured.returns,
        )
        if captured.once:
            run_once(specialization)
        return specialization


def _run_by_eager(specialization: Specialization) -> Sequence[Node]:
    """The nodes, where eager torch runs the graph."""
    compiled, graph = specialization.compiled, specialization.graph
    return () if graph is None or not getattr(compiled, "why", "") else graph.nodes
