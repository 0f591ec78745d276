"""The nouns of dispatch: program points and their specializations.

In: what one capture gave and what was compiled from it. Out: a `Specialization`, one
specialization of a segment: guards, a function that runs, and one that rebuilds Python objects.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.guard_code import GuardSet
from anyshape.capture.segments.capturing import Captured, never_rebuilt
from anyshape.declare import BoundDeclaration, check_returned
from anyshape.dispatch.profitability import Profitability
from anyshape.eager import CheckFailed, DeviceError
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import CHECK, Graph, Location
from anyshape.ir.nesting import nodes_in
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops.gradients.backward import GRADIENTS
from anyshape.runtime.random_state import RandomState, devices_drawn_on

CALLS_PER_DENIAL = 2  # a call that is denied runs about as fast as one in many segments


@mutable(eq=False)
class Specialization:
    """One specialization of a segment.

    `entry(slots)` gives the inputs of its graph where the guards hold, `run` computes it, `rebuild`
    is that of the capture. `run` None means that the program goes on natively from the very start
    of the segment.
    """

    captured: Captured
    entry: Callable[[Sequence[Any]], list[Any] | None]
    run: Callable[..., tuple[Any, ...]] | None
    rebuild: Callable[[Sequence[Any], Sequence[Any]], Any]
    fresh: Callable[[], bool] | None = None
    compiled: Any = None
    declared: BoundDeclaration | None = None
    profitability: Profitability = field(default_factory=Profitability)
    returns: bool = False  # its end is the function's
    used: bool = False  # of one that hands on what belongs to one run: it has run
    borrowed: tuple[weakref.ref[Any], ...] = ()  # the modules that callers handed in
    made_at: int = 0  # the call of the function that needed it
    denied: int = 0  # calls in which data was not as it expects

    @property
    def guards(self) -> GuardSet:
        """What it relies on."""
        return self.captured.guards

    @property
    def graph(self) -> Graph | None:
        """Its graph; None where the program runs natively."""
        return self.captured.graph

    @property
    def program(self) -> Any:
        """What tells whether another specialization runs the same program, on other constants."""
        return getattr(self.compiled, "translation", None) or self

    def node_count(self) -> int:
        """How many operators its graph has."""
        return 0 if self.graph is None else sum(n.op != CHECK for n in nodes_in(self.graph))

    def differentiates(self) -> bool:
        """Whether the program calls ``backward()`` in it."""
        return self.graph is not None and any(n.op == GRADIENTS for n in self.graph.nodes)

    def notes(self) -> list[str]:
        """What `explain` says of its branches: what is expected of data, and what is guarded."""
        expected = (
            f"expected of data, else a call runs natively: {t}" for t in self.captured.expected
        )
        return [*expected, *map(str, self.captured.refusals)]

    def is_denied(self, call: int) -> bool:
        """Counts this call, in which data was not as expected; whether that is too often."""
        self.denied += 1
        return CALLS_PER_DENIAL * self.denied > call - self.made_at

    def line(self) -> Location | None:
        """Where the segment begins in the user's source."""
        return None if self.graph is None else self.graph.first_line()


@frozen
class Point:
    """A program point and its specializations, the newest first. `widen` names the slots whose
    numbers are symbolic, and whose texts are not looked into."""

    specializations: tuple[Specialization, ...] = ()
    widen: frozenset[str] = frozenset()
    native: bool = False
    general: bool = False  # what differs from call to call is not relied on by its value
    failed: int = 0  # attempts at a specialization
    spent: int = 0  # specializations that ran their only time
    given_up: int = 0  # how often some made room for another one
    again: int = 0  # the call of the function from which on that may happen again

    def without(self, denied: Specialization) -> Point:
        """The point without one of its specializations, if it is one."""
        kept = tuple(v for v in self.specializations if v is not denied)
        return replace(self, specializations=kept)

    def programs(self) -> int:
        """How many different ones its specializations run."""
        return len(self._made_last())

    def _made_last(self) -> list[int]:
        """The programs, in the order in which a specialization was last made for each."""
        programs = (id(v.program) for v in self.specializations if v.graph is not None)
        return list(dict.fromkeys(programs))[::-1]

    def is_full(self, most: int) -> bool:
        """Whether a further one may be too many. Those that run one program count as one: adapters
        are distinguished by guards."""
        return self.programs() >= most or len(self.specializations) >= SHARING * most

    def within(self, most: int, calls: int) -> Point:
        """Without those of the oldest program, or the oldest of many, if they are too many. Each
        time takes twice as many calls as the last one: what has too many in turn would compile in
        each call."""
        oldest = self._made_last()[: max(0, self.programs() - most)]
        kept = (v for v in self.specializations if v.graph is None or id(v.program) not in oldest)
        specializations = tuple(kept)[: SHARING * most]
        if len(specializations) == len(self.specializations):
            return self
        again = calls + 2**self.given_up
        return replace(
            self, specializations=specializations, given_up=self.given_up + 1, again=again
        )


@frozen
class Released:
    """What is still reported of a graph that ran with a module that is gone."""

    counts: Mapping[str, int]
    kernel_names: frozenset[str]
    linked: Any
    differentiated: bool
    why: str

    def count(self, kind: str) -> int:
        return self.counts.get(kind, 0)


def released_with_modules(specialization: Specialization) -> Specialization:
    """One that dies with any of the modules that callers handed in: it can never be entered again
    then, and parameters, submodules and code are let go of."""
    refers = [guard.expected for guard in specialization.guards.guards if guard.kind == "refers"]

    def release(gone: object) -> None:
        _release(specialization)

    modules = (ref() for ref in refers)  # whose truth is their length, where they have one
    specialization.borrowed = tuple(weakref.ref(m, release) for m in modules if m is not None)
    return specialization


def _release(specialization: Specialization) -> None:
    """Keeps what is reported and counted, and why another call does not enter it."""
    compiled = specialization.compiled
    _close(specialization)
    if specialization.captured.graph is not None:
        linked = getattr(compiled, "linked", "")
        specialization.compiled = Released(
            {kind: compiled.count(kind) for kind in COUNTED},
            getattr(compiled, "kernel_names", frozenset()),
            getattr(linked, "code", linked),
            getattr(compiled, "differentiated", False),
            getattr(compiled, "why", ""),
        )


def _close(specialization: Specialization) -> None:
    """Nobody enters it again: it holds nothing that a call has handed in or made."""
    captured = specialization.captured
    guards = captured.guards
    kept = tuple(guard for guard in guards.guards if guard.kind == "refers")
    specialization.captured = replace(
        captured,
        guards=GuardSet(guards.modes, kept, (), (), ()),
        constants={},
        rebuild=never_rebuilt,
    )
    specialization.entry, specialization.rebuild = never_entered, never_rebuilt
    specialization.run = specialization.fresh = specialization.declared = None


SHARING = 8
"""A point may have so many times as many specializations that run the same programs."""

COUNTED = ("sync", "launch", "extern", "eager")
"""The kinds of steps that are counted."""


def run_once(specialization: Specialization) -> None:
    """Lets it run once: it hands on a class that it has made, and what that holds, and holds
    neither itself any longer."""
    rebuild = specialization.rebuild

    def rebuilt(outs: Sequence[Any], slots: Sequence[Any]) -> Any:
        specialization.used = True
        result = rebuild(outs, slots)
        _close(specialization)
        return result

    specialization.rebuild = rebuilt


def replayable(run: Callable[..., Any], graph: Graph, restartable: bool) -> Callable[..., Any]:
    """`run`, which leaves generators as they were where it fails and the segment runs again."""
    failures = Exception if restartable else CheckFailed
    devices = devices_drawn_on(graph)
    if not devices:
        return run

    def restoring(*inputs: Any) -> Any:
        state = RandomState.of(devices)
        try:
            return run(*inputs)
        except failures:
            state.put_back()
            raise

    return restoring


def without_autocast(
    run: Callable[..., Any], entry: execution_modes.TorchModes
) -> Callable[..., Any]:
    """`run`, undisturbed by the autocast that was on when capture began: casts are nodes of the
    graph, and part of it may lie behind the end of the block."""
    if not any(on for on, _ in entry.autocast):
        return run

    def undisturbed(*inputs: Any) -> Any:
        with execution_modes.AutocastOff():
            return run(*inputs)

    return undisturbed


def under_inference(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, all of whose results are made in inference mode."""

    def inside(*inputs: Any) -> Any:
        with torch.inference_mode():
            return run(*inputs)

    return inside


def has_not_happened(specialization: Specialization, error: Exception) -> bool:
    """Whether the segment can be run again: it writes nothing outside, or a check failed, and
    checks come before writes. What a device found in an earlier call is no failure of this one,
    nor is an interrupt."""
    if isinstance(error, DeviceError) or is_interrupt(error):
        return False
    return specialization.captured.restartable or isinstance(error, CheckFailed)


def let_go_of(specialization: Specialization, error: Exception) -> None:
    """Lets go of what a run that has not happened held, and puts gradients back, which the native
    run is to find; raises the error of one that has happened."""
    if not has_not_happened(specialization, error):
        raise error
    traceback.clear_frames(error.__traceback__)  # their tensors: memory may have run out
    for cleared in specialization.captured.cleared:
        cleared.put_back()


def denies(specialization: Specialization, error: Exception) -> bool:
    """Whether data may not have been as the specialization expects."""
    return isinstance(error, CheckFailed) and bool(specialization.captured.expected)


def never_entered(slots: Sequence[Any]) -> None:
    """Of a segment whose guards can never hold again."""


def tested(declared: BoundDeclaration | None, rebuild: Callable[..., Any]) -> Callable[..., Any]:
    """`rebuild`, which tests what is declared of the result."""
    assert declared is not None

    def checked(outs: Sequence[Any], slots: Sequence[Any]) -> Any:
        sizes = declared.values(slots)
        result = rebuild(outs, slots)
        check_returned(declared.declaration, result, sizes)
        return result

    return checked


class _Empty:
    """The compiled form of a graph that computes nothing."""

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        return ()

    def count(self, kind: str) -> int:
        return 0


EMPTY = _Empty()
