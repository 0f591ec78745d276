"""Per compiled function: look up the program point, test guards, run the compiled segment, replay
effects; capture on a miss.

In: calls. Out: results. A point has specializations, tried in order, the last one used first; each
is one guard function, one compiled graph and one function that rebuilds Python objects. How one is
made is in `specialize.py`; what runs between segments in `native_steps.py`, beside what captures
them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.guard_failures import explain_failure, moved
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.segments.capturing import Capturer
from anyshape.capture.segments.native_steps import (
    concrete_machine,
    goes_on_alone,
    hand_over,
    interrupted,
    is_watched,
    let_go,
    resume,
    step,
)
from anyshape.capture.segments.program_points import Entry, Numbers, flatten
from anyshape.declare import Declaration, check_returned
from anyshape.dispatch import replaced_builtins, slow_paths
from anyshape.dispatch.callables import current_stance, own_line, parameters_of
from anyshape.dispatch.inside import code_text, counts, guards_text, kernels_text, noted
from anyshape.dispatch.interpreted_regions import InterpretedRegions
from anyshape.dispatch.printed_graphs import printed_graphs
from anyshape.dispatch.profitability import CallRecord, largest
from anyshape.dispatch.ranks import Notices
from anyshape.dispatch.specializations import Point, Specialization, denies, let_go_of
from anyshape.dispatch.specialize import CompileGraph, Specializer
from anyshape.dispatch.stats import Explanation, Stats
from anyshape.dispatch.widening import widened
from anyshape.errors import MISTAKES, PASSING, AnyshapeError, mistake, raised
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Location
from anyshape.nouns import replace
from anyshape.options import Options
from anyshape.symbolic.work import summed

MAX_SEGMENTS = 10_000  # of one call, before it goes on natively
OURS = (TypeError, AttributeError, NameError, KeyError, AssertionError)  # not torch's own errors
MAX_POINTS = 256
ATTEMPTS = 3  # at a specialization: another thread may change what it relies on, a tool may fail
MAX_SPENT = 2  # specializations of a point that could run once only


def _watchers() -> tuple[Any, Any]:
    """What watches each line and call of this thread."""
    return sys.gettrace(), sys.getprofile()


def _outcome(run: Callable[..., Any], inputs: list[Any]) -> tuple[Any, Exception | None]:
    """What a run gives, or raises. The error is no context of what is raised later: nobody handles
    it any more."""
    try:
        return run(*inputs), None
    except Exception as error:
        return None, error


class Compiled:
    """The machinery behind one compiled function; see the module.

    `compile_graph(graph, constants)` gives an object with `run(*argument_inputs) -> tuple of
    outputs`; `constants` are the tensors of the inputs that are no arguments, by the name of
    their value. Whatever else it holds is kept for `code()`.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        options: Options,
        compile_graph: CompileGraph,
        declaration: Declaration | None = None,
    ) -> None:
        self.fn = fn
        self.options = options
        self.capturer = Capturer(fn, options)
        self.specializer = Specializer(self.capturer, options, compile_graph)
        self.points: dict[Any, Point] = {}
        self.interpreted = InterpretedRegions(self.capturer.captured)
        self.lock = threading.Lock()
        self.failures: list[str] = []
        self.calls = 0
        self.uncompiled = self.denied = 0
        self.mistakes: dict[tuple[Any, ...], AnyshapeError] = {}  # of ours, each reported once
        self.warned: set[str] = set()  # other codes
        self.slow_paths: set[str] = set()  # of what is slower than it could be
        self.notices = Notices()
        self.stressed = options.break_every > 0
        self.max_points = sys.maxsize if self.stressed else MAX_POINTS
        self.parameters = parameters_of(fn)
        self.names = self.parameters.positional
        self.declaration = declaration

    # ---- calling ---------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function on these arguments, compiling what was not seen before."""
        self.calls += 1
        if kwargs:
            slots, key = (*args, *kwargs.values()), (len(args), *kwargs)
        else:
            slots, key = args, (len(args),)
        point = self.points.get(key)
        if point is not None:
            for specialization in point.specializations:
                inputs = specialization.entry(slots)
                if inputs is not None:
                    if specialization.returns and specialization.run is not None:
                        try:
                            outs = specialization.run(*inputs)
                        except Exception as error:
                            failed = error
                        else:
                            return specialization.rebuild(outs, slots)
                        try:
                            return self._rerun(specialization, failed, args, kwargs)
                        finally:
                            del failed  # its traceback holds this frame
                            self.notices.tell()
                    break
        try:
            return self._slow(args, kwargs, [*slots])
        finally:
            self.notices.tell()

    def _rerun(
        self,
        specialization: Specialization,
        error: Exception,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self._forget(specialization, error)
        result = self.fn(*args, **kwargs)
        self._note(error, specialization.line())
        return result

    def _forget(self, specialization: Specialization, error: Exception) -> None:
        """Lets go of what a run that has not happened held; raises the error of one that has. Where
        data was too often not as expected, there is to be one that expects nothing."""
        let_go_of(specialization, error)
        if denies(specialization, error):
            self.denied += 1
            if specialization.is_denied(self.calls):
                self.capturer.expects = False
                with self.lock:
                    points = self.points.items()
                    self.points = {key: point.without(specialization) for key, point in points}

    def _note(self, error: Exception, line: Location | None) -> None:
        """Eager torch did what our code could not: a mistake of ours, unless it is an error of
        torch's, which the program may have expected."""
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        if isinstance(cause, OURS):
            self._mistaken(mistake("running", cause, line))

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any], slots: list[Any]) -> Any:
        stance = current_stance()
        if stance == "force_eager" or len(self.points) > self.max_points:
            return self.fn(*args, **kwargs)
        texts = [
            self.names[i] if i < len(self.names) else f"args[{i}]" for i in range(len(args))
        ] + list(kwargs)
        declared = None
        if self.declaration is not None:
            declared = self.parameters.bind(self.declaration, len(args), tuple(kwargs))
        entry = Entry(
            *((len(args), *kwargs), slots, texts, len(args), tuple(kwargs)),
            declared=declared,
            dynamic=self.options.dynamic is True,
        )
        if declared is None:
            return self._enter(entry, args, kwargs, stance)
        sizes = declared.values(slots)
        result = self._enter(entry, args, kwargs, stance)
        check_returned(declared.declaration, result, sizes)
        return result

    def _enter(
        self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], stance: str
    ) -> Any:
        """Runs the function from its first instruction on."""
        slots = entry.slots
        specialization, inputs = self._specialization(entry, stance)
        if specialization is None or specialization.run is None or inputs is None:
            result = self.fn(*args, **kwargs)
            if specialization is not None and specialization.captured.suspect is not None:
                self._mistaken(specialization.captured.suspect)
            return result
        if specialization.profitability.is_lost(slots) and not self.stressed:
            self.uncompiled += 1
            return self.fn(*args, **kwargs)
        outs, failed = _outcome(specialization.run, inputs)
        if failed is not None:
            return self._rerun(specialization, failed, args, kwargs)
        if specialization.returns:
            return specialization.rebuild(outs, slots)
        machine = concrete_machine(self.capturer.codes)
        suspect, numbers = specialization.captured.suspect, specialization.captured.numbers
        spent, elements = specialization.captured.spent, largest(slots)
        call = CallRecord(given=frozenset(map(id, slots)))
        call.segment(specialization.node_count(), slots, outs)
        try:
            machine.frame = specialization.rebuild(outs, slots)
            del outs, slots, entry, inputs
            if spent:
                result = hand_over(machine)
            else:
                result = self._go_on(machine, stance, suspect, numbers, call)
        except BaseException as error:
            if machine.frame is None or not is_interrupt(error):
                raise
            result = interrupted(machine, error)
        finally:
            let_go(machine)
        specialization.profitability.settle(call, elements)
        return result

    def _go_on(
        self,
        machine: Machine,
        stance: str,
        suspect: AnyshapeError | None,
        numbers: Numbers,
        call: CallRecord,
    ) -> Any:
        """The trampoline: an instruction natively, then the segment of the point that it leads
        to, until the program returns. Nothing here holds what the program has dropped.

        `suspect` is what capture could not do at this instruction; reported where eager torch can.
        `numbers` are those that were symbolic where the last segment ended, and stay so. `call`
        are counted.
        """
        watchers = _watchers()
        for _ in range(sys.maxsize if self.stressed else MAX_SEGMENTS):
            done, value, raised = step(machine)
            if suspect is not None and not raised:
                self._mistaken(suspect)
            suspect = None
            if not done and not self.stressed:
                done, value = self.interpreted.go_on(machine, call)
            if done:
                return value
            if goes_on_alone(machine) or _watchers() != watchers:
                return hand_over(machine)  # the program watches what happens from here on
            assert machine.frame is not None
            at = flatten(machine.frame)
            if is_watched(machine) or at.holds_finalized(call.given):
                del at
                continue  # a segment would hold it after the program has dropped it
            entry = Entry(at.key, at.slots, point=at, numbers=numbers)
            specialization, inputs = self._specialization(entry, stance)
            if specialization is None or specialization.run is None or inputs is None:
                del at, entry
                if specialization is None:
                    return resume(machine)
                if specialization.captured.lost is not None and not self.stressed:
                    lost = specialization.captured.lost
                    done, value = self.interpreted.go_past(machine, lost, call)
                    if done:
                        return value
                continue
            outs, failed = _outcome(specialization.run, inputs)
            if failed is not None:
                self._forget(specialization, failed)
                del at, entry, inputs
                resumed = resume(machine)
                self._note(failed, specialization.line())
                return resumed
            call.segment(specialization.node_count(), at.slots, outs)
            if specialization.returns:
                return specialization.rebuild(outs, at.slots)
            machine.go_on_from(specialization.rebuild(outs, at.slots))
            if specialization.captured.spent:
                return hand_over(machine)
            suspect, numbers = specialization.captured.suspect, specialization.captured.numbers
            del at, entry, inputs, outs
        return resume(machine)

    # ---- specializations -------------------------------------------------------------------------
    def _specialization(
        self, entry: Entry, stance: str
    ) -> tuple[Specialization | None, list[Any] | None]:
        """The one whose guards hold, captured if there is none, and inputs; None: go natively."""
        if execution_modes.is_watched():
            self._warn(slow_paths.of_mode(self.fn, execution_modes.watching()))
            return None, None
        point = self.points.get(entry.key) or Point()
        for known in point.specializations:
            inputs = known.entry(entry.slots)
            if inputs is not None:
                return known, inputs
        native = point.native or self._waits(point, entry) or replaced_builtins.are_there()
        specialization = None if native else self._new(point, entry, stance)
        return specialization, None if specialization is None else specialization.entry(entry.slots)

    def _new(self, point: Point, entry: Entry, stance: str) -> Specialization | None:
        """One for this entry; None where none may be made, or where a mistake of ours keeps one
        from being made."""
        if stance == "fail_on_recompile" and self.points:
            failure = slow_paths.of_miss(point.specializations, entry.slots)
            raise AnyshapeError(
                "E221", guard=str(failure) if failure else "this call was never compiled"
            )
        point = self._without_stale(self._without_used(point, entry), entry)
        if point.native:
            return None
        if len(self.points) > self.max_points:
            self._go_native(entry.key, self._too_many(point, entry))
            return None
        point = widened(point, entry, self.options.fullgraph)
        for _ in range(ATTEMPTS):
            specialization = self._try(point, entry)
            if specialization is None:
                return None
            if specialization.entry(entry.slots) is not None:
                return self._publish(entry, point, specialization)
            failure = explain_failure(
                specialization.guards, execution_modes.snapshot(), entry.slots
            )
            why = f"a new specialization does not fit its own arguments: {failure}"
            suspect = mistake("the guards", why, specialization.line())
        self._go_native(entry.key, suspect)
        return None

    def _try(self, point: Point, entry: Entry) -> Specialization | None:
        """One whose guards may fail if another thread has written meanwhile; None where a mistake
        of ours keeps one from being made."""
        breaks = self.capturer.breaks
        before = len(breaks)
        try:
            specialization = self.specializer.specialization(point, entry)
        except AnyshapeError as error:
            if error.code not in MISTAKES:
                raise
            self._go_native(entry.key, error)
        except Exception as error:
            if is_interrupt(error):
                raise
            self._go_native(entry.key, mistake("the compiler", error))
        else:
            for found in breaks[before:]:
                self._warn(slow_paths.of_break(found, specialization))
            self._warn(slow_paths.of_eager_graph(specialization))
            self._warn(slow_paths.of_unreplayed(specialization))
            return specialization
        return None

    def _without_used(self, point: Point, entry: Entry) -> Point:
        """Without those that ran their only time; where each call needs a new one, the program runs
        natively from there on."""
        kept = tuple(
            specialization for specialization in point.specializations if not specialization.used
        )
        if len(kept) == len(point.specializations):
            return point
        spent = point.spent + len(point.specializations) - len(kept)
        lasts = self.options.fullgraph or self.stressed
        native = spent >= MAX_SPENT and not lasts
        if spent >= MAX_SPENT:
            used = next(found for found in point.specializations if found.used)
            self._warn(slow_paths.of_single_use(used, native=native))
        updated = replace(point, specializations=kept, spent=spent, native=native)
        with self.lock:
            self.points = {**self.points, entry.key: updated}
        return updated

    def _waits(self, point: Point, entry: Entry) -> bool:
        """Whether some have been given up too lately for another one."""
        if self.calls >= point.again or not point.is_full(self.options.max_variants):
            return False
        if "E222" not in self.slow_paths:
            self._warn(self._too_many(point, entry))
        return True

    def _without_stale(self, point: Point, entry: Entry) -> Point:
        """At the limit: without those whose parameters, modules or functions have been replaced
        since."""
        if len(point.specializations) < self.options.max_variants:
            return point
        snapshot = execution_modes.snapshot()
        kept = tuple(v for v in point.specializations if not self._is_stale(v, snapshot, entry))
        updated = replace(point, specializations=kept)
        with self.lock:
            self.points = {**self.points, entry.key: updated}
        return updated

    def _is_stale(
        self, specialization: Specialization, snapshot: tuple[Any, ...], entry: Entry
    ) -> bool:
        if moved(specialization.guards):
            return True
        failure = explain_failure(specialization.guards, snapshot, entry.slots)
        return failure is not None and failure.stale

    def _publish(
        self, entry: Entry, point: Point, specialization: Specialization
    ) -> Specialization:
        """Makes it known, unless another thread was first: then that one's is used. Past the limit
        the oldest is given up, and nothing holds it any more."""
        with self.lock:
            now = self.points.get(entry.key, point)
            for other in now.specializations:
                if other not in point.specializations and other.entry(entry.slots) is not None:
                    return other
            captured, specialization.made_at = specialization.captured, self.calls
            if entry.point is not None and specialization.run is not None:
                self.interpreted.note(entry.point, captured.end, specialization.node_count())
            elif entry.point is not None and captured.lost is not None:
                self.interpreted.note_lost(entry.point, captured.lost)
            if now.specializations:
                self.failures.append(str(slow_paths.of_miss(now.specializations, entry.slots)))
            updated = replace(
                now,
                specializations=(specialization, *now.specializations),
                widen=specialization.captured.widen | now.widen,
                general=False,
                failed=0,
            ).within(self.options.max_variants, self.calls)
            self.points = {**self.points, entry.key: updated}
        return specialization

    def _too_many(self, point: Point, entry: Entry) -> AnyshapeError:
        """What to say of a point that needs one specialization more than it may have."""
        if point.is_full(self.options.max_variants):
            return slow_paths.of_limit(point.specializations, entry.slots)
        why = f"graph breaks have cut it into more than {MAX_POINTS} pieces"
        return AnyshapeError("E222", count=len(self._specializations()), why=why)

    def _go_native(self, key: Any, why: AnyshapeError) -> None:
        """Runs natively from this point on: for good, or until a later call's attempt. A mistake of
        ours is an error instead where nothing may run natively."""
        tell = self._mistaken if why.code in MISTAKES else self._warn
        tell(why)
        with self.lock:
            point = self.points.get(key, Point())
            failed = point.failed + 1
            native = why.code not in PASSING or failed >= ATTEMPTS
            updated = replace(point, native=native, failed=failed)
            self.points = {**self.points, key: updated}

    def _mistaken(self, why: AnyshapeError) -> None:
        """A mistake of ours: an error where nothing may run natively, else one warning of each
        kind, though each instruction is counted."""
        why = why if why.location is not None else why.at(own_line(self.fn))
        first = all(why.what != other.what for other in self.mistakes.values())
        self.mistakes.setdefault((why.what, why.location), why)
        if self.options.fullgraph or self.options.fallback == "error":
            raise raised(why)
        if first:
            self.notices.add(why)

    def _warn(self, why: AnyshapeError | None) -> None:
        """One visible warning of each code for each compiled function."""
        if why is not None and why.code not in self.slow_paths:
            self.slow_paths.add(why.code)
            self.notices.add(why)

    # ---- seeing inside ---------------------------------------------------------------------------
    def _specializations(self) -> list[Specialization]:
        return [
            v
            for point in self.points.values()
            for v in reversed(point.specializations)
            if v.graph is not None
        ]

    def stats(self) -> Stats:
        """The counts so far."""
        stages = summed(self.specializer.stages)
        return Stats(
            programs=sum(point.programs() for point in self.points.values()),
            segments=sum(
                any(v.graph is not None for v in p.specializations) for p in self.points.values()
            ),
            graph_breaks=len(self.capturer.breaks),
            recompiles=len(self.failures),
            calls=self.calls,
            uncompiled=self.uncompiled,
            denied=self.denied,
            compile_seconds=self.specializer.compile_seconds,
            capture_seconds=self.specializer.capture_seconds,
            questions=sum(stage.questions for stage in stages),
            solver_steps=sum(stage.steps for stage in stages),
            stages=stages,
            internal_errors=len(self.mistakes),
            **counts(self._specializations()),
        )

    def guards(self) -> str:
        """What is relied on, each with the user's line that made it."""
        return guards_text(self._specializations())

    def graphs(self) -> list[str]:
        """The captured graphs as Python, each followed by what differentiation made of it."""
        return [text for made in self._specializations() for text in printed_graphs(made)]

    def code(self) -> str:
        """The generated code."""
        return code_text(self._specializations())

    def kernels(self, times: Mapping[str, float]) -> str:
        """The generated kernels, each with what it computes, and its time where that is known."""
        return kernels_text(self._specializations(), times)

    def recompiles(self) -> list[str]:
        """Which guard failed each time that a specialization was made after the first."""
        return list(self.failures)

    def explain(self) -> Explanation:
        """Every break, and the counts."""
        refusals = dict.fromkeys(
            text for specialization in self._specializations() for text in specialization.notes()
        )
        return Explanation(
            tuple(self.capturer.breaks),
            self.stats(),
            tuple(refusals),
            self.guards(),
            tuple(self.mistakes.values()),
            *noted(self._specializations()),
        )

    def reset(self) -> None:
        """Forgets every specialization."""
        with self.lock:
            self.points = {}
            self.interpreted = InterpretedRegions(self.capturer.captured)
            self.capturer.breaks.clear()
            self.failures = []
            self.mistakes = {}
