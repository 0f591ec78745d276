"""The nouns of dispatch: program points, their variants, and where a segment is entered.

In: what one capture has recorded and what was compiled from it. Out: a `Variant`, one
specialization of a segment: guards, a function that runs, and one that rebuilds Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.guard_code import GuardSet
from anyshape.capture.interpreter.frame import Code
from anyshape.capture.recording.forks import Refusal
from anyshape.capture.recording.recorder import Recorder
from anyshape.declare import Placed, check_returned
from anyshape.dispatch.profitability import Profitability
from anyshape.dispatch.trampoline import Numbers, Place
from anyshape.eager import CheckFailed, DeviceError
from anyshape.errors import AnyshapeError
from anyshape.ir.graph import CHECK, Graph, Location
from anyshape.ir.nesting import nodes_in
from anyshape.ops import OPS
from anyshape.symbolic import Symbol


@dataclass(slots=True, eq=False)
class Variant:
    """One specialization of a segment.

    `run` computes the graph, `rebuild(outs, slots)` makes Python objects and replays effects;
    it gives the result where `returns`, else the real frame that goes on natively. `run` None
    means that the program goes on natively from the very start of the segment.
    """

    guards: GuardSet
    entry: Callable[[Sequence[Any]], list[Any] | None]
    run: Callable[..., tuple[Any, ...]] | None
    rebuild: Callable[[Sequence[Any], Sequence[Any]], Any]
    returns: bool
    restartable: bool
    fresh: Callable[[], bool] | None = None
    graph: Graph | None = None
    compiled: Any = None
    joined: int = 0
    guarded: int = 0
    refusals: tuple[Refusal, ...] = ()
    names: Mapping[Symbol, str] = field(default_factory=dict)  # where the symbols come from
    placed: Placed | None = None
    numbers: Numbers = frozenset()  # what is symbolic where it ends
    end: tuple[Code, int] | None = None  # the instruction that is done natively; None: it returns
    widen: frozenset[str] = frozenset()  # see `Point`
    profitability: Profitability = field(default_factory=Profitability)
    used: bool = False  # of one that hands on what belongs to one run: it has run
    suspect: AnyshapeError | None = None  # what is to be told where eager torch raises nothing

    def node_count(self) -> int:
        """How many operators its graph has."""
        return 0 if self.graph is None else sum(n.op != CHECK for n in nodes_in(self.graph))

    def line(self) -> Location | None:
        """Where the segment begins in the user's source."""
        return None if self.graph is None else self.graph.first_line()


@dataclass(frozen=True, slots=True)
class Point:
    """A program point and its variants, the newest first. `widen` names the slots whose numbers
    are symbolic, and whose texts are not looked into."""

    variants: tuple[Variant, ...] = ()
    widen: frozenset[str] = frozenset()
    native: bool = False
    general: bool = False  # what differs from call to call is not relied on by its value
    failed: int = 0  # attempts at a variant
    spent: int = 0  # variants that ran their only time


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a segment begins: at the call of the function (`place` None), or at a place between
    two instructions."""

    key: tuple[Any, ...]
    slots: list[Any]
    texts: list[str] = field(default_factory=list)
    positional: int = 0
    names: tuple[str, ...] = ()
    place: Place | None = None
    placed: Placed | None = None
    numbers: Numbers = frozenset()  # what was symbolic where the last segment ended
    dynamic: bool = False  # the numbers among the arguments are symbolic

    def symbolic(self) -> frozenset[str]:
        """The slots whose numbers are symbolic from the first call on."""
        if self.place is not None:
            return self.place.named(self.numbers)
        numbers = (t for t, value in zip(self.texts, self.slots) if type(value) in (int, float))
        return frozenset(numbers if self.dynamic else ())

    def told(self) -> list[str]:
        """What each slot is called."""
        return self.texts if self.place is None else self.place.texts()


def run_once(variant: Variant) -> None:
    """Lets a variant run once: it hands on a class that it has made, and what that holds."""
    entry, rebuild = variant.entry, variant.rebuild

    def entered(slots: Sequence[Any]) -> list[Any] | None:
        return None if variant.used else entry(slots)

    def rebuilt(outs: Sequence[Any], slots: Sequence[Any]) -> Any:
        variant.used = True
        return rebuild(outs, slots)

    variant.entry, variant.rebuild = entered, rebuilt


def replayable(run: Callable[..., Any], graph: Graph) -> Callable[..., Any]:
    """`run`, which leaves the random state as it was where it fails: the segment runs again."""
    if not any(node.op in OPS and OPS[node.op].random for node in nodes_in(graph)):
        return run

    def restoring(*inputs: Any) -> Any:
        state = torch.get_rng_state()
        try:
            return run(*inputs)
        except Exception:
            torch.set_rng_state(state)
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


def has_not_happened(variant: Variant, error: Exception) -> bool:
    """Whether the segment can be run again: it writes nothing outside, or a check failed, and
    checks come before writes. What a device found in an earlier call is no failure of this one."""
    if isinstance(error, DeviceError):
        return False
    return variant.restartable or isinstance(error, CheckFailed)


def guard_set(recorder: Recorder, apart: Any = None, *, overlapping: bool = False) -> GuardSet:
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
        apart,
        overlapping,
        recorder.front,
        tuple([parameter.data_ptr() for parameter in recorder.parameters]),
    )


def never_rebuilt(outs: Sequence[Any], slots: Sequence[Any]) -> NoReturn:
    """Of a segment that goes on natively from its very start."""
    raise AssertionError("a segment without a graph has nothing to rebuild")


def tested(placed: Placed | None, rebuild: Callable[..., Any]) -> Callable[..., Any]:
    """`rebuild`, which tests what is declared of the result."""
    assert placed is not None

    def checked(outs: Sequence[Any], slots: Sequence[Any]) -> Any:
        sizes = placed.values(slots)
        result = rebuild(outs, slots)
        check_returned(placed.declaration, result, sizes)
        return result

    return checked


class _Empty:
    """The compiled form of a graph that computes nothing."""

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        return ()

    def count(self, kind: str) -> int:
        return 0


EMPTY = _Empty()
