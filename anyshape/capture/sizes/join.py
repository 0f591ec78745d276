"""Branches on sizes: both sides run, each under its condition, to where they meet; equal states
there need no guard.

In: a condition that the facts do not decide, at a jump of a frame. Out: the frame at the
meeting point (the jump's immediate postdominator, or the frame's return) with the states
merged; or the side that the hint takes, guarded. A bool that differs becomes a symbolic bool; a
value that equals the other under that one's condition is the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from anyshape.capture.guards.execution_modes import TorchModes
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.undo import has_older_writes
from anyshape.capture.heap.values import (
    Break,
    InterpreterBug,
    ProxyLeak,
)
from anyshape.capture.interpreter import exception_origin, unwinding
from anyshape.capture.interpreter.continuations import Finished, Root
from anyshape.capture.interpreter.control_flow import ends_loop, meeting_point, only_raises
from anyshape.capture.interpreter.control_opcodes import leave
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.forks import Refusal
from anyshape.capture.sizes import numbers
from anyshape.capture.sizes.merging import (
    Merger,
    NotJoined,
    NotMerged,
    definitions,
    hold_in_general,
)
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Node
from anyshape.ops import OPS
from anyshape.symbolic import (
    Condition,
    Contradiction,
    Facts,
)

NO_JUMP = {"FALSE": True, "TRUE": False}
DEEPEST = 48  # forks inside forks: a loop that data ends never comes to an end of its sides


@dataclass(slots=True)
class Side:
    """How one side ended: its locals and stack at the meeting point, or its return value, and
    the nodes it made."""

    returned: bool
    value: Any
    locals: list[Any]
    stack: list[Any]
    nodes: list[Node]
    facts: Facts
    modes: TorchModes
    live_value: Any
    live_locals: list[Any]
    live_stack: list[Any]
    copied: dict[int, Any]  # by the id of a copy in value, locals or stack: what it is a copy of


class Merged:
    """A merged return value on its way to the caller."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _return_merged(machine: Interpreter, frame: Frame, arg: Any) -> Frame:
    return leave(machine, frame, frame.stack.pop().value)


RETURN_MERGED: list[Any] = [(_return_merged, None)]


def branch(domain: RecordingDomain, condition: Condition, frame: Frame) -> Any:
    """The truth of `condition` for a jump of `frame`; after a join the frame has been moved and
    the answer is the idle one."""
    name, _ = frame.code.opcodes[frame.index - 1]
    jumps = _decides(name)
    machine = domain.machine
    deep = domain.recorder.depth >= DEEPEST
    if jumps and frame is machine.frame and domain.forks.left > 0 and not deep:
        outcome = _raising_side(domain, condition, frame)
        if outcome is not None:
            domain.recorder.cx.require(~condition if outcome else condition, "a branch that raises")
            return not outcome
        try:
            return _fork_once(domain, condition, frame, name)
        except NotJoined as reason:
            location = domain.recorder.location()
            domain.forks.refusals.append(Refusal(str(condition), str(reason), location))
    turns = jumps and ends_loop(frame.code, frame.index - 1)
    answer = _decided(domain, condition, turns=turns)
    domain.forks.guarded += 1
    domain.will_guard()
    return answer


def _decided(domain: RecordingDomain, condition: Condition, *, turns: bool) -> bool:
    """By a guard. Behind a graph break, one that says how often a loop `turns` tells a value, which
    may be another one in each call."""
    recorder = domain.recorder
    turns = turns and recorder.resumed
    if turns and not recorder.values:
        raise broken("undecided-size", condition=recorder.condition_text(condition))
    relied_on = len(recorder.sizes)
    answer = recorder.decide(condition)
    if turns:
        recorder.tells_value(relied_on)
    return answer


def _raising_side(domain: RecordingDomain, condition: Condition, frame: Frame) -> bool | None:
    """The outcome of what data decides that can only lead to an exception: it becomes a check,
    and when that fails the segment runs again, concretely, and raises."""
    cx = domain.recorder.cx
    if cx.on_check is None or cx.hint(condition) is not None:
        return None
    return raising_outcome(domain, frame)


def raising_outcome(domain: RecordingDomain, frame: Frame) -> bool | None:
    """The truth of the jump's condition that can only lead to an exception, if there is one."""
    name, _ = frame.code.opcodes[frame.index - 1]
    _, target = frame.instructions[frame.index - 1]
    if not _decides(name) or frame is not domain.machine.frame:
        return None
    starts = {"IF_TRUE" in name: target, "IF_TRUE" not in name: frame.index}
    raising = [outcome for outcome, start in starts.items() if only_raises(frame.code, start)]
    return raising[0] if raising else None


def _decides(name: str) -> bool:
    return "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name)


def _fork_once(domain: RecordingDomain, condition: Condition, frame: Frame, name: str) -> Any:
    """Runs both sides, but not where a side of this very jump has come back to it."""
    at = id(frame), frame.index
    if at in domain.forks.running:
        raise NotJoined("the turns of a loop depend on a size")
    domain.forks.running.add(at)
    try:
        return _fork(domain, condition, frame, name)
    finally:
        domain.forks.running.discard(at)


def _fork(domain: RecordingDomain, condition: Condition, frame: Frame, name: str) -> Any:
    """Runs both sides and keeps the second; where the general side is the other one, once more
    in the other order."""
    recorder = domain.recorder
    policy = recorder.cx.on_guard, recorder.cx.on_check
    recorder.cx.on_guard = recorder.cx.on_check = None
    recorder.depth += 1
    domain.forks.left -= 1
    try:
        try:
            made = _run_both(domain, frame, name, condition, keep=False)
        except NotMerged:
            made = _run_both(domain, frame, name, condition, keep=True)
    finally:
        recorder.cx.on_guard, recorder.cx.on_check = policy
        recorder.depth -= 1
    domain.forks.joined += 1
    return made


def _run_both(
    domain: RecordingDomain, frame: Frame, name: str, condition: Condition, *, keep: bool
) -> Any:
    machine, recorder = domain.machine, domain.recorder
    index = frame.index - 1
    meeting, ends = _meeting(domain, frame.code, index)
    target = frame.instructions[index][1]
    continuation = frame.continuation
    mark, record = machine.checkpoint(), recorder.mark()
    known = len(machine.heap.created)
    jump_on = "IF_TRUE" in name
    opposite = numbers.negated(condition)
    assert not isinstance(opposite, bool)
    under = {True: condition, False: opposite}
    done = False
    try:
        sides: list[Side] = []
        for outcome in (not keep, keep):
            if sides:
                machine.rollback(mark)
                recorder.rollback(record)
            _enter_side(machine, frame, name, outcome is jump_on, target)
            sides.append(_run_side(domain, frame, ends, under[outcome]))
            _refuse_older_writes(machine, mark.journal, known)
        dropped, kept = sides
        tables = definitions(dropped.nodes), definitions(kept.nodes)
        by_data = recorder.cx.hint(condition) is None
        merger = Merger(
            recorder,
            under[not keep],
            dropped.facts,
            kept.facts,
            *tables,
            by_data=by_data,
            copied=dropped.copied,
            young=machine.heap.is_young,
        )
        merged = _merge_into(merger, dropped, kept)
        hold_in_general(recorder, kept.nodes, record.facts.under(True))
        done = True
    finally:
        if not done:
            machine.rollback(mark)
            recorder.rollback(record)
        machine.release(mark)
    recorder.restore_facts(record)
    frame.continuation = continuation
    return _go_on(machine, frame, name, meeting, merged)


def _meeting(domain: RecordingDomain, code: Code, index: int) -> tuple[int, frozenset[int]]:
    """The meeting point and its copies, worked out once for each jump."""
    found = domain.forks.meetings.get((code, index))
    if found is None:
        found = domain.forks.meetings[code, index] = meeting_point(code, index)
    return found


def _refuse_older_writes(machine: Interpreter, journal: int, known: int) -> None:
    """A side may write only what it made itself: the journal's undo functions tell what was
    written."""
    undone = (machine.heap.journal or [])[journal:]
    created = machine.heap.created
    fresh = frozenset(islice(reversed(created), max(len(created) - known, 0)))
    if undone and has_older_writes(undone, fresh):
        raise NotJoined("a side writes what was there before")


def _enter_side(machine: Interpreter, frame: Frame, name: str, jumps: bool, target: int) -> None:
    if name.endswith("OR_POP"):
        if not jumps:
            frame.stack.pop()
    else:
        frame.stack.pop()
    if jumps:
        frame.index = target
    frame.continuation = _SIDE
    machine.frame = frame


class _Side(Root):
    """The frame of a fork returned."""

    __slots__ = ()

    def yielded(self, machine: Interpreter, frame: Frame | None, value: Any) -> Frame:
        raise NotJoined("a side yields")


_SIDE = _Side()


def _run_side(
    domain: RecordingDomain, frame: Frame, ends: frozenset[int], condition: Condition | bool
) -> Side:
    machine, recorder = domain.machine, domain.recorder
    before = len(recorder.builder.nodes)
    try:
        facts = recorder.cx.facts.under(condition)
    except Contradiction:
        raise NotJoined("one side cannot happen") from None
    recorder.cx.facts = facts
    returned, value = _run_until(machine, frame, ends)
    nodes = list(recorder.builder.nodes[before:])
    if any(node.op.endswith("_") or OPS[node.op].random for node in nodes if node.op in OPS):
        raise NotJoined("a side writes a tensor")
    copied: dict[int, Any] = {}
    return Side(
        returned,
        snapshot(value, copied),
        [snapshot(v, copied) for v in frame.locals],
        [snapshot(v, copied) for v in frame.stack],
        nodes,
        facts,
        recorder.modes,
        value,
        list(frame.locals),
        list(frame.stack),
        copied,
    )


def snapshot(value: Any, copied: dict[int, Any], depth: int = 6) -> Any:
    """A copy of nested containers: a rollback empties those that the side filled."""
    kind = type(value)
    if depth and kind in (list, tuple):
        twin = kind([snapshot(item, copied, depth - 1) for item in value])
    elif depth and kind is dict:
        twin = {key: snapshot(item, copied, depth - 1) for key, item in value.items()}
    else:
        return value
    copied[id(twin)] = value
    return twin


def _run_until(machine: Interpreter, stop: Frame, ends: frozenset[int]) -> tuple[bool, Any]:
    """The interpreter's loop, until `stop` is about to execute one of `ends` or returns."""
    while True:
        frame = machine.current()
        try:
            while True:
                if frame is stop and frame.index in ends:
                    return False, None
                handler, arg = frame.instructions[frame.index]
                frame.index += 1
                switched = handler(machine, frame, arg)
                if switched is not None:
                    frame = switched
        except Finished as finished:
            return True, finished.value
        except (Break, ProxyLeak) as signal:
            raise NotJoined(str(signal)) from None
        except (NotJoined, InterpreterBug):
            raise
        except BaseException as error:
            raised = error
            if is_interrupt(error):
                raise
            if exception_origin.is_ours(error):
                raise InterpreterBug(f"{type(error).__name__}: {error}") from error
        if unwinding.unwind(machine, raised) is None:
            raise NotJoined(f"a side raises {type(raised).__name__}")


# ---- going on ------------------------------------------------------------------------------------
@dataclass(slots=True)
class _State:
    """What the frame goes on with."""

    returned: bool
    value: Any
    locals: list[Any]
    stack: list[Any]


def _merge_into(merger: Merger, dropped: Side, kept: Side) -> _State:
    if dropped.returned is not kept.returned or dropped.modes != kept.modes:
        raise NotJoined("the sides end in different instructions or modes")
    if kept.returned:
        return _State(True, merger.value(dropped.value, kept.live_value), [], [])
    if len(dropped.stack) != len(kept.stack):
        raise NotJoined("stacks of different heights")
    locals_ = [merger.value(a, b) for a, b in zip(dropped.locals, kept.live_locals)]
    stack = [merger.value(a, b) for a, b in zip(dropped.stack, kept.live_stack)]
    return _State(False, None, locals_, stack)


def _go_on(machine: Interpreter, frame: Frame, name: str, meeting: int, merged: _State) -> Any:
    """Puts the merged state in place, so that the jump's handler goes on from the meeting point."""
    dummy = False
    idle = NO_JUMP["TRUE" if "IF_TRUE" in name else "FALSE"]
    machine.frame = frame
    if not merged.returned:
        frame.locals, frame.stack, frame.index = merged.locals, [*merged.stack, dummy], meeting
        return idle
    frame.instructions = RETURN_MERGED
    if name.endswith("OR_POP"):
        frame.stack, frame.index = [Merged(merged.value), dummy], 0
        return idle
    frame.stack, frame.index = [dummy], 1
    return Merged(merged.value)
