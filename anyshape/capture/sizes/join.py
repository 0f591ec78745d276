"""Branches on sizes: both sides run, each under its condition, to where they meet; equal states
there need no guard.

In: a condition that the facts do not decide, at a jump of a frame. Out: the frame at the
meeting point (the jump's immediate postdominator, or the frame's return) with the states
merged; or the side that the hint takes, guarded. A bool that differs becomes a symbolic bool; a
value that equals the other under that one's condition is the other.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from anyshape.capture.guards.execution_modes import TorchModes
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.undo import has_older_writes, made_since
from anyshape.capture.heap.values import NULL
from anyshape.capture.interpreter.control_flow import ends_loop, only_raises
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.liveness import is_live, live_slots
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.forks import Refusal
from anyshape.capture.sizes import data_join, numbers, sides
from anyshape.capture.sizes.idle import writes_nothing
from anyshape.capture.sizes.merging import (
    Merger,
    NotJoined,
    NotMerged,
    definitions,
    hold_in_general,
)
from anyshape.ir.graph import Node
from anyshape.nouns import mutable
from anyshape.ops import OPS
from anyshape.symbolic import (
    Condition,
    Facts,
)


@mutable
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


def branch(domain: RecordingDomain, condition: Condition, frame: Frame) -> Any:
    """The truth of `condition` for a jump of `frame`; after a join the frame has been moved and
    the answer is the idle one."""
    name, _ = frame.code.opcodes[frame.index - 1]
    jumps = sides.decides(name)
    machine = domain.machine
    deep = domain.recorder.depth >= sides.DEEPEST
    if jumps and frame is machine.frame and domain.forks.left > 0 and not deep:
        outcome = _raising_side(domain, condition, frame)
        if outcome is not None:
            domain.recorder.cx.require(~condition if outcome else condition, "a branch that raises")
            return not outcome
        if domain.recorder.expected.knows(frame):
            return _decided(domain, condition, frame, jumps=jumps)
        try:
            return _fork_once(domain, condition, frame, name)
        except NotJoined as reason:
            refuse(domain, str(condition), reason)
        if domain.recorder.cx.hint(condition) is None:
            try:
                return data_join.branch(domain, condition, frame)
            except NotJoined as reason:
                refuse(domain, str(condition), reason)
    answer = _decided(domain, condition, frame, jumps=jumps)
    domain.forks.guarded += 1
    domain.will_guard()
    return answer


def refuse(domain: RecordingDomain, condition: str, reason: NotJoined) -> None:
    """Notes why the sides are not one."""
    location = domain.recorder.location()
    domain.forks.refusals.append(Refusal(condition, str(reason), location))


def _decided(domain: RecordingDomain, condition: Condition, frame: Frame, *, jumps: bool) -> bool:
    """By what is expected of data, or by a guard. Behind a graph break, one that says how often a
    loop turns tells a value, which may be another one in each call."""
    recorder = domain.recorder
    turns = jumps and ends_loop(frame.code, frame.index - 1)
    if jumps and not turns and not recorder.depth:
        recorder.here()
        expected = recorder.expected.side(recorder.cx, condition, frame)
        if expected is not None:
            return expected
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
    expected = domain.recorder.expected
    if not sides.decides(name) or frame is not domain.machine.frame or not expected.nothing_raises:
        return None
    starts = {"IF_TRUE" in name: target, "IF_TRUE" not in name: frame.index}
    raising = [outcome for outcome, start in starts.items() if only_raises(frame.code, start)]
    expected.raising |= bool(raising)
    return raising[0] if raising else None


def _fork_once(domain: RecordingDomain, condition: Condition, frame: Frame, name: str) -> Any:
    """Runs both sides, but not where a side of this very jump has come back to it."""
    if domain.deaths.made:
        raise NotJoined("an object that is referred to weakly may die on one side")
    with sides.running(domain, frame, "a size"):
        return _fork(domain, condition, frame, name)


def _fork(domain: RecordingDomain, condition: Condition, frame: Frame, name: str) -> Any:
    """Runs both sides and keeps the second; where the general side is the other one, once more
    in the other order."""
    recorder = domain.recorder
    policy = recorder.cx.on_guard, recorder.cx.on_check
    recorder.cx.on_guard = recorder.cx.on_check = None
    outer, recorder.premise = recorder.premise, None
    recorder.depth += 1
    domain.forks.left -= 1
    try:
        start = len(recorder.builder.nodes)
        try:
            keep, made = False, _run_both(domain, frame, name, condition, keep=False)
        except NotMerged:
            keep, made = True, _run_both(domain, frame, name, condition, keep=True)
    finally:
        recorder.cx.on_guard, recorder.cx.on_check = policy
        recorder.premise = outer
        recorder.depth -= 1
    writes = [write for write in data_join.older_writes(recorder, start) if write.counts]
    moves = {memory: (0, -times) for memory, times in Counter(w.memory for w in writes).items()}
    taken = condition if keep else numbers.negated(condition)
    data_join.correct_versions(domain, taken, outer, moves)  # eager writes on that side alone
    domain.forks.joined += 1
    return made


def _run_both(
    domain: RecordingDomain,
    frame: Frame,
    name: str,
    condition: Condition,
    *,
    keep: bool,
) -> Any:
    machine, recorder = domain.machine, domain.recorder
    index = frame.index - 1
    meeting, ends = sides.meeting_of(domain, frame.code, index)
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
        both: list[Side] = []
        for outcome in (not keep, keep):
            if both:
                machine.rollback(mark)
                recorder.rollback(record)
            sides.enter(machine, frame, name, outcome is jump_on, target)
            both.append(_run_side(domain, frame, ends, under[outcome]))
            _refuse_older_writes(machine, mark.journal, known)
        dropped, kept = both
        _refuse_writes(dropped, kept)
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
            made_inside=machine.heap.is_made_inside,
        )
        live = live_slots(frame.code)[meeting]
        merged = _merge_into(merger, dropped, kept, live)
        hold_in_general(recorder, kept.nodes, record.facts.fork())
        done = True
    finally:
        if not done:
            machine.rollback(mark)
            recorder.rollback(record)
        machine.release(mark)
    recorder.restore_facts(record)
    frame.continuation = continuation
    return sides.go_on(machine, frame, name, meeting, merged)


def _refuse_writes(dropped: Side, kept: Side) -> None:
    """The side that runs in every call may write what is nothing where the other one is taken; no
    gradient of it is recorded, as then none is."""
    if any(map(_writes, dropped.nodes)):
        raise NotMerged("a side writes a tensor")
    for node in filter(_writes, kept.nodes):
        if not writes_nothing(dropped.facts, node):
            raise NotJoined(f"a side writes a tensor: {node.op}")
        if any(value.tensor.requires_grad for value in node.outputs):
            raise NotJoined(f"gradients of {node.op} are recorded on one side")


def _writes(node: Node) -> bool:
    return node.op in OPS and bool(OPS[node.op].mutates)


def _refuse_older_writes(machine: Interpreter, journal: int, known: int) -> None:
    """A side may write only what it made itself: the journal's undo functions tell what was
    written."""
    undone = (machine.heap.journal or [])[journal:]
    fresh = made_since(machine.heap.created, known)
    if undone and has_older_writes(undone, fresh):
        raise NotJoined("a side writes what was there before")


def _run_side(
    domain: RecordingDomain, frame: Frame, ends: frozenset[int], condition: Condition | bool
) -> Side:
    machine, recorder = domain.machine, domain.recorder
    before = len(recorder.builder.nodes)
    facts = recorder.cx.facts.under(condition)
    if facts is None:
        raise NotJoined("one side cannot happen")
    recorder.cx.facts = facts
    returned, value = sides.run_until(machine, frame, ends)
    nodes = list(recorder.builder.nodes[before:])
    if any(OPS[node.op].random for node in nodes if node.op in OPS):
        raise NotJoined("a side draws random numbers")
    copied: dict[int, Any] = {}
    return Side(
        returned,
        sides.snapshot(value, copied),
        [sides.snapshot(v, copied) for v in frame.locals],
        [sides.snapshot(v, copied) for v in frame.stack],
        nodes,
        facts,
        recorder.modes,
        value,
        list(frame.locals),
        list(frame.stack),
        copied,
    )


# ---- going on ------------------------------------------------------------------------------------
def _merge_into(merger: Merger, dropped: Side, kept: Side, live: int) -> sides.State:
    if dropped.returned is not kept.returned or dropped.modes != kept.modes:
        raise NotJoined("the sides end in different instructions or modes")
    if kept.returned:
        return sides.State(True, merger.value(dropped.value, kept.live_value), [], [])
    if len(dropped.stack) != len(kept.stack):
        raise NotJoined("stacks of different heights")
    locals_ = [
        merger.value(a, b) if is_live(live, slot, a) or is_live(live, slot, b) else NULL
        for slot, (a, b) in enumerate(zip(dropped.locals, kept.live_locals))
    ]
    stack = [merger.value(a, b) for a, b in zip(dropped.stack, kept.live_stack)]
    return sides.State(False, None, locals_, stack)
