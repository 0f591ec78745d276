"""One capture: a segment of the program, from a program point on, as one noun.

In: a program point as an `Entry`, and what may not be relied on there. Out: a `Captured`: what was
relied on, the graph, and how Python's objects are made of what it computes; or that the program
runs natively where the same holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from types import CodeType
from typing import Any, NoReturn

import torch

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.counters import counters
from anyshape.capture.guards.guard_code import GuardSet
from anyshape.capture.guards.no_alias import NoAlias
from anyshape.capture.heap.breaks import BREAKS, GraphBreak, broken, record_of
from anyshape.capture.heap.deaths import DeathsAreUnknown
from anyshape.capture.heap.past_caches import refuse_within
from anyshape.capture.heap.quiet_classes import bare_name, class_module
from anyshape.capture.heap.raised_state import traceback_of
from anyshape.capture.heap.values import NULL, Break, InterpreterBug, OpaqueValue, ProxyLeak
from anyshape.capture.interpreter.frame import Code, Frame, locate, users_frame
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.interpreter.stressed import StressedMachine
from anyshape.capture.python import pickles
from anyshape.capture.python.builtins import calls_past
from anyshape.capture.python.language import PYTHON, python_machine
from anyshape.capture.recording import decimal_contexts, past_caches
from anyshape.capture.recording.choices import ChoicesAreSeen
from anyshape.capture.recording.expected import Expectations
from anyshape.capture.recording.forks import Refusal
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.segments import weak_references
from anyshape.capture.segments.assumptions import (
    DENIALS,
    LOOKING,
    NEEDED,
    UNKNOWN_NUMBERS,
    Assumed,
    BreaksInSort,
    BreaksInWorkOfC,
    Counts,
    FactorsAreNeeded,
    FilesAreOpen,
    LedElsewhere,
    LooksIntoTexts,
    NotOnce,
    NumbersAreNeeded,
)
from anyshape.capture.segments.cleared_gradients import Cleared, without_cleared
from anyshape.capture.segments.declared_results import prove_returned
from anyshape.capture.segments.flagged_arguments import Flagged, flagged_arguments
from anyshape.capture.segments.module_names import module_name
from anyshape.capture.segments.native_steps import concrete_machine
from anyshape.capture.segments.outside_reads import OutsideNumbers
from anyshape.capture.segments.program_points import Entry, Numbers, inflate, numbers_of
from anyshape.capture.segments.segment_end import finish
from anyshape.capture.segments.symbolic_domain import SymbolicDomain
from anyshape.capture.segments.torch_warnings import tell_of_calls
from anyshape.capture.segments.watching_machine import WatchingMachine
from anyshape.capture.tensors import aliases
from anyshape.capture.tensors.autograd_functions import (
    FunctionsAreSeen,
    refuse_unspent,
    why_native,
)
from anyshape.capture.tensors.checkpoints import is_within_checkpoint
from anyshape.capture.tensors.leaves import (
    refuse_other_flags,
    with_flags_of_the_graph,
)
from anyshape.capture.tensors.mode_contexts import refuse_open, under_inference
from anyshape.capture.tensors.own_backwards import apply_with_backward, refuse_seen_memory
from anyshape.capture.tensors.refused_by_eager import Asking, RefusedByEager, ask_eager
from anyshape.capture.tensors.replaced_data import known_by_their_data
from anyshape.capture.tensors.strides_of_ones import rely_on_strides_of_ones
from anyshape.errors import AnyshapeError, mistake, said, stage_of
from anyshape.ir.graph import Arg, Graph, Location, Node
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops.table import OPS
from anyshape.options import Options
from anyshape.symbolic import Contradiction, Symbol
from anyshape.symbolic.work import Work

BY_EAGER = "in a graph that eager torch runs"


def never_rebuilt(outs: Sequence[Any], slots: Sequence[Any]) -> NoReturn:
    """Of a segment that goes on natively from its very start."""
    raise AssertionError("a segment without a graph has nothing to rebuild")


@frozen
class LostRegion:
    """What was captured up to ``end``, where its frames, of these ``codes``, hold what cannot be
    rebuilt: ``operators`` of them."""

    end: tuple[Code, int]
    codes: frozenset[CodeType]
    operators: int


@frozen(eq=False)
class Captured:
    """What one capture gives. ``graph`` None: under these guards the program runs natively, as it
    raises, or leaves behind what cannot be rebuilt.

    ``rebuild(outs, slots)`` makes Python objects and replays effects; it gives the result where
    ``returns``, else the real frame that goes on natively.
    """

    guards: GuardSet
    work: Work
    graph: Graph | None = None
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    rebuild: Callable[[Sequence[Any], Sequence[Any]], Any] = never_rebuilt
    returns: bool = False
    proved: bool = True  # what is declared of the result holds by what is known
    watched: bool = False  # the gradient of what it makes is watched behind it
    inference: bool = False  # it runs in inference mode
    spent: bool = False  # it ends as it has become too long
    once: bool = False  # it hands on what belongs to one run
    restartable: bool = True  # it writes nothing outside
    modes: execution_modes.TorchModes | None = None  # in which capture began
    names: Mapping[Symbol, str] = field(default_factory=dict)  # where the symbols come from
    joined: int = 0  # branches on sizes
    guarded: int = 0
    refusals: tuple[Refusal, ...] = ()
    numbers: Numbers = frozenset()  # what is symbolic where it ends
    end: tuple[Code, int] | None = None  # the instruction that is done natively; None: it returns
    lost: LostRegion | None = None  # why there is no graph
    widen: frozenset[str] = frozenset()  # the slots whose values are not relied on
    suspect: AnyshapeError | None = None  # what is to be reported where eager torch raises nothing
    cleared: tuple[Cleared, ...] = ()  # gradients that are set to None before the graph runs
    flagged: tuple[Flagged, ...] = ()  # whose flags are set before it
    asked: bool = False  # hooks of leaves are part of it
    expected: tuple[str, ...] = ()  # what calls are to find in data, else they run natively


@frozen(eq=False)
class _Ended:
    """A segment that has come to its end, before its guards; fields as those of `Captured`."""

    outputs: tuple[Arg, ...]
    rebuild: Callable[[Sequence[Any], Sequence[Any]], Any]
    once: bool
    returns: bool
    proved: bool
    spent: bool
    numbers: Numbers
    end: tuple[Code, int] | None
    suspect: AnyshapeError | None


@mutable
class Capturer:
    """Makes the captures of one function. `codes` are the functions decoded so far, `captured`
    those that lie in segments, `breaks` the graph breaks that were met, `works` what each took."""

    fn: Callable[..., Any]
    options: Options
    codes: dict[Any, Any] = field(default_factory=dict)
    captured: set[CodeType] = field(default_factory=set)
    breaks: list[GraphBreak] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    functions: int = 0  # captures that were begun again, see ``autograd_functions.py``
    caches: frozenset[int] = frozenset()  # called natively from the first such segment on
    expects: bool = True  # is something expected of data? Not where calls have denied it often

    def capture(
        self,
        entry: Entry,
        widen: frozenset[str],
        *,
        general: bool,
        checkpoints: bool = True,
        functions: bool = True,
    ) -> Captured:
        """One capture from the entry on. `widen` names the slots whose values are not relied on;
        where it is to be `general`, nothing is that differs from call to call. Without
        `checkpoints`, calls of `torch.utils.checkpoint` that record gradients end the segment;
        without `functions`, so do those of `autograd.Function.apply`.

        Raises `AnyshapeError`, of a mistake of ours too.
        """
        expects = self.expects and not self.options.fullgraph
        assumed = Assumed(checkpoints=checkpoints, expects=expects, caches=self.caches)
        breaks = len(self.breaks)
        if self.functions >= 2:  # this program differentiates elsewhere
            assumed = replace(assumed, own_backwards=True)
        if not functions:
            assumed = replace(assumed, functions=BY_EAGER)
        while True:
            del self.breaks[breaks:]
            try:
                return self._capture(entry, widen, general, assumed)
            except FunctionsAreSeen as found:
                self.functions += 1
                why = found.why if assumed.own_backwards else ""
                ordered = assumed.ordered or found.ordered
                assumed = replace(assumed, own_backwards=True, functions=why, ordered=ordered)
            except tuple(DENIALS) as found:
                changes = DENIALS[type(found)](assumed, found)
                assumed = replace(assumed, **changes)
                self.caches = assumed.caches
            except (Break, ProxyLeak, InterpreterBug) as error:
                raise mistake("the compiler", error) from error

    def _capture(
        self, entry: Entry, widen: frozenset[str], general: bool, assumed: Assumed
    ) -> Captured:
        recorder = Recorder(
            dynamic=self.options.dynamic is not False,
            values=not general,
            whole=self.options.fullgraph,
            expected=Expectations(assumed.expects, assumed.nothing_raises),
            picks_are_views=assumed.picks_are_views,
            own_strides=assumed.own_strides,
            refused=assumed.refused,
            checkpoints=assumed.checkpoints,
            takes_gradients=assumed.takes_gradients,
            resumed=entry.point is not None,
        )
        domain = SymbolicDomain(
            recorder,
            widen=(widen | assumed.counters) - assumed.relied,
            forks=self.options.fork_budget,
            turns=self.options.unroll_budget,
            forms_texts=assumed.forms_texts,
        )
        domain.sorts_natively = assumed.sorts_natively
        domain.leaves_work_to_c = assumed.works_natively
        domain.decimals.enters = assumed.enters_decimals
        domain.opened = [] if assumed.reads_files else None
        if entry.point is None and not self.options.break_every:
            domain.deaths.watch = assumed.weak_references
        domain.forks.kept = assumed.kept
        recorder.contents.outside = OutsideNumbers(domain)
        recorder.contents.relies = assumed.relies_on_contents
        domain.enters_contexts = assumed.contexts
        domain.functions.refused = assumed.functions
        domain.functions.watched = assumed.ordered
        domain.functions.lays_out = assumed.lays_gradients_out
        domain.functions.freezes = assumed.freezes
        if assumed.own_backwards:
            domain.functions.apply = apply_with_backward
        machine = self._machine(domain)
        machine.heap.past_caches.called = assumed.caches
        if entry.declared is not None:
            recorder.declare(entry.declared)
            recorder.front = entry.declared.front(entry.slots)
        self.works.append(recorder.space.work)
        try:
            return self._segment(machine, domain, entry)
        finally:
            self.captured |= domain.interpreted
            if domain.hears_c is not None:
                domain.hears_c.end()
            domain.decimals.end()
            domain.forget()

    def _machine(self, domain: SymbolicDomain) -> Machine:
        every = self.options.break_every
        if domain.deaths.watch == "watched":
            return WatchingMachine(domain, PYTHON, self.codes)
        if not every:
            return python_machine(domain, self.codes)
        random_ = random.Random(f"{self.options.break_seed} {len(self.works) + 1}")
        count = random_.randint(1, 2 * every) if self.options.break_seed else every
        return StressedMachine(domain, PYTHON, self.codes, count)

    def _segment(self, machine: Machine, domain: SymbolicDomain, entry: Entry) -> Captured:
        recorder, ending = domain.recorder, None
        try:
            with stage_of("capture", recorder.last_location), recorder.space.work.stage("capture"):
                ending, suspect = self._run(machine, domain, entry)
                ended = self._ended(domain, entry, ending, suspect)
        except Break as signal:
            self._break(signal, machine)
            return _native(recorder, lost=_lost(recorder, ending))
        except _Escaped as escaped:  # natively the exception comes with its effects
            if recorder.expected.raising:
                raise LedElsewhere from None
            certain = not _expects(recorder)  # else data may have led elsewhere
            return _native(recorder, suspect=escaped.suspect if certain else None)
        with stage_of("the guards", recorder.last_location), recorder.space.work.stage("guards"):
            return self._guarded(machine, domain, entry, ended)

    def _ended(
        self, domain: SymbolicDomain, entry: Entry, ending: Any, suspect: AnyshapeError | None
    ) -> _Ended:
        """What the graph gives, and how Python's objects are made of it; raises what begins capture
        again."""
        recorder, returns = domain.recorder, not isinstance(ending, Frame)
        if not all(file.closed for file in domain.opened or ()):
            raise FilesAreOpen
        decimal_contexts.settle(domain)
        proved = entry.declared is None or not returns or prove_returned(recorder, ending)
        spent = not returns and self.breaks[-1].id == "budget"
        numbers = frozenset() if returns else numbers_of(ending, recorder.is_symbolic)
        if domain.deaths.made:
            weak_references.settle(domain, returns)
        tell_of_calls(domain, asking := Asking(recorder))
        outputs, rebuild, once = finish(domain, ending, partial(concrete_machine, self.codes))
        outputs = _settled(domain, outputs, asking)
        end = None if returns else (ending.code, ending.index)
        return _Ended(outputs, rebuild, once, returns, proved, spent, numbers, end, suspect)

    def _run(
        self, machine: Machine, domain: SymbolicDomain, entry: Entry
    ) -> tuple[Any, AnyshapeError | None]:
        """Captures from the entry on: what the program returns, or the innermost frame at a
        graph break with what of it may be a mistake of ours."""
        recorder = domain.recorder
        try:
            virtual = self._see_slots(domain, entry)
            if entry.point is None:
                named = dict(zip(entry.names, virtual[entry.positional :]))
                return machine.run(self.fn, *virtual[: entry.positional], **named), None
            machine.frame = inflate(entry.point, virtual, partial(domain.bound_method, entry.slots))
            return machine.resume(), None
        except Break as signal:
            if recorder.replaced.is_seen:
                raise  # all of it is eager's: its segments know no flags of other times
            self._take_back(machine, domain, signal)
            if machine.frame is None or signal.reason == "escape":
                raise
            self._break(signal, machine)
            why = signal.context.get("mistake")
            location = recorder.last_location()
            return machine.frame, mistake("capture", why, location) if why else None
        except (ProxyLeak, InterpreterBug) as error:
            raise mistake("capture", error, recorder.last_location()) from error
        except BaseException as error:
            if error is not machine.escaped:
                raise
            raise (DeathsAreUnknown if domain.deaths.made else _Escaped(error)) from None

    def _take_back(self, machine: Machine, domain: SymbolicDomain, signal: Break) -> None:
        """Raises what begins capture again, where the break comes of what was taken for granted."""
        recorder = domain.recorder
        if domain.has_formed and signal.reason in LOOKING:
            raise LooksIntoTexts from None
        if domain.expects_others and signal.reason in NEEDED:
            raise FactorsAreNeeded from None
        if domain.deaths.doubted is not None:
            raise domain.deaths.doubted from None
        if domain.deaths.made and not self.options.fullgraph:
            raise DeathsAreUnknown from None
        if recorder.contents.withheld and signal.reason in UNKNOWN_NUMBERS:
            raise NumbersAreNeeded from None
        if recorder.choices.seen:
            raise ChoicesAreSeen(frozenset(recorder.choices.seen)) from None
        if recorder.modes.checkpoint or is_within_checkpoint(machine):
            raise NotOnce from None
        if domain.functions.transforms:
            raise aliases.GradientsAreSeen from None
        refuse_open(recorder)
        if unknown := why_native(domain.functions):
            raise FunctionsAreSeen(unknown, domain.functions.asking) from None
        call_sites = frozenset(machine.heap.sorting.call_sites.values())
        if not call_sites <= domain.sorts_natively and not self.options.fullgraph:
            raise BreaksInSort(call_sites) from None
        if not self.options.fullgraph:
            refuse_within(machine.heap.past_caches, calls_past(machine))
        if pickles.is_within(machine) and not self.options.fullgraph:
            raise BreaksInWorkOfC from None

    def _see_slots(self, domain: SymbolicDomain, entry: Entry) -> list[Any]:
        sources = domain.recorder.sources
        owner = getattr(self.fn, "__self__", self.fn)
        root = sources.const(owner, getattr(owner, "__name__", bare_name(type(owner)).lower()))
        domain.recorder.guard(root, "type", type(owner))
        declared = domain.recorder.declared
        order = range(len(entry.slots)) if declared is None else declared.order(len(entry.slots))
        texts = entry.slot_texts()
        methods = frozenset() if entry.point is None else entry.point.methods
        dead = frozenset() if entry.point is None else entry.point.dead
        seen = {}
        for i in order:
            if i in methods:
                continue
            source, value = sources.slot(i, texts[i]), entry.slots[i]
            seen[i] = OpaqueValue(source, type(value)) if i in dead else domain.see(source, value)
        return [seen.get(i, NULL) for i in range(len(entry.slots))]

    def _break(self, signal: Break, machine: Machine) -> None:
        location = None
        frame = users_frame(machine.frame)
        if frame is not None:
            index = frame.index if frame is machine.frame else frame.index - 1  # of the call
            location = locate(frame.code, min(index, len(frame.code.lines) - 1))
        found = record_of(signal, location, module_name(self.fn, machine.frame))
        self.breaks.append(found)
        if self.options.fullgraph and not BREAKS[found.id].allowed:
            raise found.error()

    def _guarded(
        self, machine: Machine, domain: SymbolicDomain, entry: Entry, ended: _Ended
    ) -> Captured:
        """The segment with what it relies on; it runs natively where arguments share memory in a
        way that no guard tells."""
        recorder = domain.recorder
        _check_marks(recorder)
        no_alias = aliases.no_alias_of(recorder)
        if no_alias is not None and not no_alias.holds_for(entry.slots):
            found = _of_shared_memory(recorder, no_alias)
            if found not in self.breaks:  # once for all points of the program before the write
                self.breaks.append(found)
            return _native(recorder, no_alias)
        guards = guard_set(recorder, no_alias)
        with_flags_of_the_graph(recorder)
        graph = recorder.builder.finish(ended.outputs)
        effects = machine.heap.effects
        graph, inputs, cleared = without_cleared(recorder, effects, domain.cleared, graph)
        changing = counters(guards.guards, machine.heap, recorder.sources, recorder.source_of)
        changing = (changing | known_by_their_data(recorder)) - domain.widen
        if changing and recorder.dynamic:
            raise Counts(changing)
        return Captured(
            replace(guards, inputs=inputs),
            recorder.space.work,
            graph,
            recorder.constants,
            ended.rebuild,
            returns=ended.returns,
            proved=ended.proved,
            watched=domain.functions.watched,
            asked=domain.functions.asked,
            inference=under_inference(recorder, ended.outputs),
            once=ended.once,
            spent=ended.spent,
            restartable=not aliases.writes_arguments(recorder),
            modes=recorder.entry_modes,
            names=recorder.symbol_names,
            joined=domain.forks.joined,
            guarded=domain.forks.guarded,
            refusals=tuple(domain.forks.refusals),
            numbers=ended.numbers,
            end=ended.end,
            widen=domain.widen,
            suspect=ended.suspect,
            cleared=cleared,
            flagged=flagged_arguments(recorder, domain.functions.flagged, inputs),
            expected=tuple(recorder.expected.texts),
        )


def _settled(domain: SymbolicDomain, outputs: tuple[Arg, ...], asking: Asking) -> tuple[Arg, ...]:
    """The outputs with the memory that eager has them in. Raises what begins capture again where
    something that was taken for granted does not hold of them."""
    recorder = domain.recorder
    with _failing_checks(recorder):
        rely_on_strides_of_ones(recorder, outputs)
        outputs = aliases.settled(recorder, outputs)
    aliases.refuse_seen_gradients(recorder, outputs)
    refuse_other_flags(domain, outputs)
    past_caches.refuse_seen(domain.machine.heap.past_caches, recorder, outputs)
    recorder.choices.refuse_seen(recorder.builder.nodes, outputs)
    refuse_open(recorder)
    refuse_unspent(domain, outputs)
    if domain.functions.leaves or domain.functions.alone or domain.functions.retained:
        refuse_seen_memory(domain, outputs)
    ask_eager(asking, outputs)
    return outputs


@contextmanager
def _failing_checks(recorder: Recorder) -> Iterator[None]:
    """A check of what data decides that cannot hold at the example sizes is one that eager raises
    for; raises ``RefusedByEager``."""
    try:
        yield
    except Contradiction as error:
        checked = {node.location for _, node in recorder.builder.checks} - recorder.refused
        failing = [at for at in error.reasons if isinstance(at, Location) and at in checked]
        if not failing:
            raise
        raise RefusedByEager(frozenset(failing[-1:])) from error


def _of_shared_memory(recorder: Recorder, no_alias: NoAlias) -> GraphBreak:
    """Why all of it runs natively, and by which line first."""
    writes = (node.location for node in recorder.builder.nodes if _writes(node))
    given = ", ".join(map(str, no_alias.written)) if no_alias.fixed.disjoint else ""
    signal = broken("shared-memory", given or "a tensor that is the same in each call")
    return record_of(signal, next(writes, None))


def _writes(node: Node) -> bool:
    row = OPS.get(node.op)
    return row is not None and bool(row.mutates)


def _native(
    recorder: Recorder,
    no_alias: NoAlias | None = None,
    *,
    suspect: AnyshapeError | None = None,
    lost: LostRegion | None = None,
) -> Captured:
    guards = guard_set(recorder, no_alias, overlapping=no_alias is not None)
    return Captured(guards, recorder.space.work, suspect=suspect, lost=lost)


def _lost(recorder: Recorder, ending: Any) -> LostRegion | None:
    """What is lost where capture has come to an end that cannot be rebuilt."""
    if not isinstance(ending, Frame):
        return None
    codes = set()
    frame: Frame | None = ending
    while frame is not None:
        codes.add(frame.code.code)
        frame = frame.back
    operators = len(recorder.builder.nodes)
    return LostRegion((ending.code, ending.index), frozenset(codes), operators)


def _expects(recorder: Recorder) -> bool:
    """Does a check say what is expected of sizes or data, which may be otherwise in this call?"""
    builder = recorder.builder
    return bool(builder.checks) or any(map(_may_deny, builder.nodes))


def _may_deny(node: Node) -> bool:
    row = OPS.get(node.op)
    number = node.op == "number" and node.args[0] == "check"
    return number or (row is not None and (row.raises or row.resource == "errors"))


def guard_set(recorder: Recorder, no_alias: Any = None, *, overlapping: bool = False) -> GuardSet:
    """All that a capture has relied on, in order."""
    recorder.guard_identities()
    return GuardSet(
        recorder.entry_snapshot,
        (*recorder.guards.values(), *recorder.relied.all_guards()),
        (*recorder.entry_sizes, *recorder.sizes),
        tuple(recorder.bindings),
        tuple(source for source, _ in recorder.input_sources),
        tuple(hook for hook in recorder.hooks if hook is not None),
        tuple(recorder.parameters),
        tuple(recorder.scalars),
        no_alias,
        overlapping,
        recorder.front,
        tuple([parameter.data_ptr() for parameter in recorder.parameters]),
    )


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


class _Escaped(BaseException):
    """The program itself raised, as far as capture can tell."""

    def __init__(self, error: BaseException) -> None:
        why = f"{_shown(error)}, which the program itself does not raise"
        self.suspect = mistake("capture", why, _innermost(error))


def _shown(error: BaseException) -> str:
    """Its class, and its text where that asks nothing of the program's."""
    plain = class_module(type(error)) == "builtins" and all(type(arg) is str for arg in error.args)
    return said(error) if plain else bare_name(type(error))


def _innermost(error: BaseException) -> Location | None:
    """The line that raised."""
    traceback = traceback_of(error)
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return Location(code.co_filename, traceback.tb_lineno, 0, 0, code.co_qualname)
