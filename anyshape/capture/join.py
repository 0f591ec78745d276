"""Branches on sizes: both sides run, each under its condition, to where they meet; equal states
there need no guard.

In: a condition that the facts do not decide, at a jump of a frame. Out: the frame at the
meeting point (the jump's immediate postdominator, or the frame's return) with the states
merged; or the side that the hint takes, guarded. A bool that differs becomes a symbolic bool; a
value that equals the other under that one's condition is the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from anyshape.capture import mistakes, numbers, unwinding
from anyshape.capture.continuations import Finished, Root
from anyshape.capture.frame import Code, Frame
from anyshape.capture.iterators import same_place
from anyshape.capture.op_control import leave
from anyshape.capture.recorder import Recorder
from anyshape.capture.values import (
    PROXIES,
    Break,
    InterpreterBug,
    ProxyLeak,
    ScalarValue,
    TensorValue,
)
from anyshape.ir.graph import Node, TensorType, Value
from anyshape.ir.scalars import Scalar
from anyshape.ops import OPS
from anyshape.ops.context import OpError, Undecided
from anyshape.symbolic import (
    Condition,
    Contradiction,
    Expr,
    Facts,
    all_of,
    any_of,
    eq,
    ge,
    indicator,
    maximum,
    minimum,
)

if TYPE_CHECKING:
    from anyshape.capture.machine import Machine
    from anyshape.capture.symbolic_domain import SymbolicDomain

RETURN = -1  # the meeting point is the return of the frame
NO_JUMP = {"FALSE": True, "TRUE": False}


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
    modes: Any
    live_value: Any
    live_locals: list[Any]
    live_stack: list[Any]
    copied: dict[int, Any]  # by the id of a copy in value, locals or stack: what it is a copy of


class Merged:
    """A merged return value on its way to the caller."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _return_merged(machine: Machine, frame: Frame, arg: Any) -> Frame:
    return leave(machine, frame, frame.stack.pop().value)


RETURN_MERGED: list[Any] = [(_return_merged, None)]


class NotJoined(Exception):
    """The sides cannot be one; the text says why."""


class NotMerged(NotJoined):
    """The second side's state is not the general one; perhaps the first side's is."""


def branch(domain: SymbolicDomain, condition: Condition, frame: Frame) -> Any:
    """The truth of `condition` for a jump of `frame`; after a join the frame has been moved and
    the answer is the idle one."""
    name, _ = frame.code.opcodes[frame.index - 1]
    jumps = "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name)
    machine = domain.machine
    if jumps and frame is machine.frame and domain.forks_left > 0:
        outcome = _raising_side(domain, condition, frame, name)
        if outcome is not None:
            domain.recorder.cx.require(~condition if outcome else condition, "a branch that raises")
            return not outcome
        try:
            return _fork(domain, condition, frame, name)
        except NotJoined as reason:
            domain.refused(condition, str(reason))
    domain.guarded += 1
    return domain.recorder.decide(condition)


def _raising_side(
    domain: SymbolicDomain, condition: Condition, frame: Frame, name: str
) -> bool | None:
    """The outcome of what data decides that can only lead to an exception: it becomes a check,
    and when that fails the segment runs again, concretely, and raises."""
    cx = domain.recorder.cx
    if cx.on_check is None or cx.hint(condition) is not None:
        return None
    starts = {"IF_TRUE" in name: frame.instructions[frame.index - 1][1]}
    starts["IF_TRUE" not in name] = frame.index
    raising = [outcome for outcome, start in starts.items() if only_raises(frame.code, start)]
    return raising[0] if raising else None


def _fork(domain: SymbolicDomain, condition: Condition, frame: Frame, name: str) -> Any:
    """Runs both sides and keeps the second; where the general side is the other one, once more
    in the other order."""
    recorder = domain.recorder
    policy = recorder.cx.on_guard, recorder.cx.on_check
    recorder.cx.on_guard = recorder.cx.on_check = None
    recorder.depth += 1
    domain.forks_left -= 1
    try:
        try:
            made = _run_both(domain, frame, name, condition, keep=False)
        except NotMerged:
            made = _run_both(domain, frame, name, condition, keep=True)
    finally:
        recorder.cx.on_guard, recorder.cx.on_check = policy
        recorder.depth -= 1
    domain.joined += 1
    return made


def _run_both(
    domain: SymbolicDomain, frame: Frame, name: str, condition: Condition, *, keep: bool
) -> Any:
    machine, recorder = domain.machine, domain.recorder
    index = frame.index - 1
    meeting, target = _meeting(domain, frame.code, index), frame.instructions[index][1]
    continuation = frame.continuation
    mark, record = machine.checkpoint(), recorder.mark()
    known = len(machine.heap.created)
    jump_on = "IF_TRUE" in name
    under = {True: condition, False: numbers.negated(condition)}
    done = False
    try:
        sides = []
        for outcome in (not keep, keep):
            if sides:
                machine.rollback(mark)
                recorder.rollback(record)
            _enter_side(machine, frame, name, outcome is jump_on, target)
            sides.append(_run_side(domain, frame, meeting, under[outcome]))
            _refuse_older_writes(machine, mark.journal, known)
        dropped, kept = sides
        tables = _definitions(dropped.nodes), _definitions(kept.nodes)
        by_data = recorder.cx.hint(condition) is None
        merger = _Merger(
            recorder,
            under[not keep],  # type: ignore[arg-type]
            dropped.facts,
            kept.facts,
            *tables,
            by_data=by_data,
            copied=dropped.copied,
            young=machine.heap.is_young,
        )
        merged = _merge_into(merger, dropped, kept)
        _hold_in_general(recorder, kept.nodes, record.facts.fork())
        done = True
    finally:
        if not done:
            machine.rollback(mark)
            recorder.rollback(record)
        machine.release(mark)
    recorder.restore_facts(record)
    frame.continuation = continuation
    return _go_on(machine, frame, name, meeting, merged)


def _meeting(domain: SymbolicDomain, code: Code, index: int) -> int:
    """The meeting point, worked out once for each jump."""
    found = domain.meetings.get((code, index))
    if found is None:
        found = domain.meetings[code, index] = meeting_point(code, index)
    return found


def _refuse_older_writes(machine: Machine, journal: int, known: int) -> None:
    """A side may write only what it made itself: the journal's undo functions tell what was
    written."""
    undone = (machine.heap.journal or [])[journal:]
    if undone:
        fresh = frozenset(islice(machine.heap.created, known, None))
        for undo in undone:
            if type(undo) is partial:  # the machine's own memory of classes
                continue
            cells = getattr(undo, "__closure__", None) or ()
            if not any(id(cell.cell_contents) in fresh for cell in cells):
                raise NotJoined("a side writes what was there before")


def _enter_side(machine: Machine, frame: Frame, name: str, jumps: bool, target: int) -> None:
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


_SIDE = _Side()


def _run_side(
    domain: SymbolicDomain, frame: Frame, meeting: int, condition: Condition | bool
) -> Side:
    machine, recorder = domain.machine, domain.recorder
    before = len(recorder.builder.nodes)
    facts = recorder.cx.facts.fork()
    try:
        facts.assume(condition)
    except Contradiction:
        raise NotJoined("one side cannot happen") from None
    recorder.cx.facts = facts
    returned, value = _run_until(machine, frame, meeting)
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


def _run_until(machine: Machine, stop: Frame, meeting: int) -> tuple[bool, Any]:
    """The interpreter's loop, until `stop` is about to execute instruction `meeting` or returns."""
    while True:
        frame: Frame = machine.frame  # type: ignore[assignment]
        try:
            while True:
                if frame is stop and frame.index == meeting:
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
            if mistakes.is_ours(error):
                raise InterpreterBug(f"{type(error).__name__}: {error}") from error
        if unwinding.unwind(machine, raised) is None:
            raise NotJoined(f"a side raises {type(raised).__name__}")


# ---- merging -------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Merger:
    """Merges the state under a condition (`yes`) with the one under its negation (`no`), which
    is kept."""

    recorder: Recorder
    condition: Condition
    yes: Facts
    no: Facts
    dropped: dict[Value, tuple[Node, int]]
    kept: dict[Value, tuple[Node, int]]
    by_data: bool  # no hint may choose between the sides
    copied: dict[int, Any]  # see Side
    young: Callable[[Any], bool]  # whether one of the sides made the object

    def value(self, a: Any, b: Any, depth: int = 6) -> Any:
        """One value for both, or NotJoined."""
        if a is b:
            return b
        ka, kb = type(a), type(b)
        if ka in PROXIES or kb in PROXIES or (ka in _NUMBERS and kb in _NUMBERS):
            return self._number(a, b)
        if ka is not kb or depth == 0:
            raise NotMerged(f"{ka.__name__} on one side, {kb.__name__} on the other")
        if ka is tuple:
            if len(a) != len(b):
                raise NotMerged("tuples of different lengths")
            return tuple(self.value(x, y, depth - 1) for x, y in zip(a, b))
        if ka in (list, dict):
            first = self.copied.get(id(a), a)
            if first is not b and not (self.young(first) and self.young(b)):
                raise NotMerged("two containers that others may hold")
        if ka is list and len(a) == len(b):
            b[:] = [self.value(x, y, depth - 1) for x, y in zip(list(a), list(b))]
            return b
        if ka is dict and list(a) == list(b):
            for key in list(b):
                b[key] = self.value(a[key], b[key], depth - 1)
            return b
        if (ka in _EQUAL and a == b) or same_place(a, b):
            return b
        raise NotMerged(f"two objects of class {ka.__name__}")

    def _number(self, a: Any, b: Any) -> Any:
        if isinstance(a, TensorValue) and isinstance(b, TensorValue):
            if self.same_value(a.value, b.value) and a.python is b.python:
                return b
            raise NotMerged("different tensors")
        left, right = numbers.dim(a), numbers.dim(b)
        if type(a) is bool or type(b) is bool or _is_bool(a) or _is_bool(b):
            return self._bool(a, b)
        if left is None or right is None:
            if isinstance(a, ScalarValue) and isinstance(b, ScalarValue) and a.scalar == b.scalar:
                return b
            if type(a) is float and type(b) is float and a.hex() == b.hex():
                return b
            return self._float(a, b)
        return self._int(left, right)

    def _float(self, a: Any, b: Any) -> Any:
        """One float or the other, as the condition says when the program runs."""
        x, y = numbers.operand(a), numbers.operand(b)
        if x is None or y is None or numbers.is_int(a) or numbers.is_int(b):
            raise NotMerged("numbers of different kinds")
        return ScalarValue(Scalar("float", "select", (self.condition, x, y)), float)

    def _int(self, a: Any, b: Any) -> Any:
        merged = self.dim(a, b)
        if merged is None:
            merged = self._extremum(a, b)
        if merged is None and self.by_data:
            merged = b + (a - b) * indicator(self.condition)
        if merged is None and type(a) is int and type(b) is int:
            return numbers.integer_of(
                self.recorder, Scalar("int", "select", (self.condition, a, b))
            )
        if merged is None:
            raise NotMerged(f"{a} on one side, {b} on the other")
        return numbers.size(merged)

    def dim(self, a: Any, b: Any) -> Any:
        """The expression that is `a` under the condition and `b` otherwise, if one of them is;
        else None."""
        if a is b or (type(a) is int and type(b) is int and a == b):
            return b
        if self.yes.known(eq(a, b)):
            return b
        if self.no.known(eq(a, b)):
            return a
        return None

    def _extremum(self, a: Any, b: Any) -> Any:
        """`a if a < b else b` is the minimum."""
        if self.yes.known(ge(b, a)) and self.no.known(ge(a, b)):
            return minimum(a, b)
        if self.yes.known(ge(a, b)) and self.no.known(ge(b, a)):
            return maximum(a, b)
        return None

    def _bool(self, a: Any, b: Any) -> Any:
        if not (_is_bool(a) or type(a) is bool) or not (_is_bool(b) or type(b) is bool):
            raise NotMerged("a bool on one side only")
        left, right = numbers.condition_of(a), numbers.condition_of(b)
        if left is None or right is None:
            raise NotMerged("bools that depend on data")
        if left is right:
            return b
        chosen = any_of(
            all_of(self.condition, left), all_of(numbers.negated(self.condition), right)
        )
        return numbers.truth_value(_simpler(self.condition, left, right, chosen))

    # ---- nodes -----------------------------------------------------------------------------------
    def same_value(self, a: Value, b: Value) -> bool:
        """Whether `a` of the dropped side is `b` of the kept one, under the dropped side's
        condition."""
        if a is b:
            return True
        left, right = self.dropped.get(a), self.kept.get(b)
        if right is not None and self.is_identity(right[0]):
            return self.same_value(a, right[0].args[0])  # type: ignore[arg-type]
        if left is not None and self.is_identity(left[0]):
            return self.same_value(left[0].args[0], b)  # type: ignore[arg-type]
        if left is None or right is None or left[1] != right[1]:
            return False
        x, y = left[0], right[0]
        if x.op != y.op or len(x.args) != len(y.args) or list(x.kwargs) != list(y.kwargs):
            return False
        if not all(self.argument(p, q) for p, q in zip(x.args, y.args)):
            return False
        return all(
            self.argument(x.kwargs[key], y.kwargs[key]) for key in x.kwargs
        ) and self.same_type(a, b)

    def is_identity(self, node: Node) -> bool:
        """A view that, under the dropped side's condition, shows all of its input in its own
        shape."""
        if node.op not in IDENTITIES or not isinstance(node.args[0], Value):
            return False
        x, y = node.args[0].tensor, node.output.tensor
        return x.rank == y.rank and all(self.yes.known(eq(p, q)) for p, q in zip(x.shape, y.shape))

    def argument(self, a: Any, b: Any) -> bool:
        if isinstance(a, Value):
            return isinstance(b, Value) and self.same_value(a, b)
        if isinstance(a, tuple):
            return (
                isinstance(b, tuple)
                and len(a) == len(b)
                and all(self.argument(x, y) for x, y in zip(a, b))
            )
        if isinstance(a, (int, Expr)) and isinstance(b, (int, Expr)) and not isinstance(a, bool):
            return a is b or self.yes.known(eq(a, b)) is True
        return type(a) is type(b) and (a is b or a == b)

    def same_type(self, a: Value, b: Value) -> bool:
        x, y = a.type, b.type
        if not isinstance(x, TensorType) or not isinstance(y, TensorType):
            return False
        if (x.dtype, x.device, len(x.shape), x.requires_grad) != (
            y.dtype,
            y.device,
            len(y.shape),
            y.requires_grad,
        ):
            return False
        return all(self.argument(p, q) for p, q in zip(x.shape, y.shape))


IDENTITIES = frozenset(
    {
        "expand",
        "expand_as",
        "broadcast_to",
        "view",
        "reshape",
        "slice",
        "alias",
        "contiguous",
        "repeat",
    }
)


def _definitions(nodes: list[Node]) -> dict[Value, tuple[Node, int]]:
    return {value: (node, place) for node in nodes for place, value in enumerate(node.outputs)}


def _hold_in_general(recorder: Recorder, nodes: list[Node], facts: Facts) -> None:
    """The kept nodes must have the same types without the condition under which they were made."""
    cx = recorder.cx
    cx.facts = facts
    for node in nodes:
        row = OPS.get(node.op)
        if row is None:
            raise NotMerged(f"{node.op} has no row")
        try:
            types = recorder.builder.type_of(row, node.args, node.kwargs)
        except (OpError, Undecided, Contradiction) as error:
            raise NotMerged(f"{node.op} is right on one side only: {error}") from None
        types = types if isinstance(types, tuple) else (types,)
        for value, found in zip(node.outputs, types):
            if isinstance(found, TensorType) and found.shape != value.shape:
                raise NotMerged(f"{node.op} has another shape on the other side")
            if isinstance(found, TensorType) and found.strides != value.tensor.strides:
                raise NotMerged(f"{node.op} has other strides on the other side")


_NUMBERS = (int, float, bool)
_EQUAL = (str, bytes, complex, slice)


def _is_bool(value: Any) -> bool:
    return isinstance(value, ScalarValue) and value.kind is bool


def _simpler(condition: Condition, left: Any, right: Any, chosen: Any) -> Any:
    if left is True:
        return any_of(condition, right)
    if left is False:
        return all_of(numbers.negated(condition), right)
    if right is True:
        return any_of(numbers.negated(condition), left)
    if right is False:
        return all_of(condition, left)
    return chosen


@dataclass(slots=True)
class _State:
    """What the frame goes on with."""

    returned: bool
    value: Any
    locals: list[Any]
    stack: list[Any]


def _merge_into(merger: _Merger, dropped: Side, kept: Side) -> _State:
    if dropped.returned is not kept.returned or dropped.modes != kept.modes:
        raise NotJoined("the sides end in different places or modes")
    if kept.returned:
        return _State(True, merger.value(dropped.value, kept.live_value), [], [])
    if len(dropped.stack) != len(kept.stack):
        raise NotJoined("stacks of different heights")
    locals_ = [merger.value(a, b) for a, b in zip(dropped.locals, kept.live_locals)]
    stack = [merger.value(a, b) for a, b in zip(dropped.stack, kept.live_stack)]
    return _State(False, None, locals_, stack)


def _go_on(machine: Machine, frame: Frame, name: str, meeting: int, merged: _State) -> Any:
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


# ---- the control-flow graph of a code object -----------------------------------------------------
ENDS = ("RETURN_VALUE", "RETURN_CONST")
RAISES = ("RAISE_VARARGS", "RERAISE")


def successors(code: Code, index: int) -> list[int]:
    """The instructions that may follow `index`; RETURN for the end of the frame; exceptions
    left out."""
    name, _ = code.opcodes[index]
    if name in ENDS:
        return [RETURN]
    if name in RAISES:
        return []
    target = code.instructions[index][1]
    if name in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"):
        return [target]
    if "JUMP" in name or name == "FOR_ITER":
        return [index + 1, target]
    if name == "SEND":
        return [index + 1, getattr(target, "target", index + 1)]
    return [index + 1]


def only_raises(code: Code, start: int) -> bool:
    """Whether no path from an instruction returns, except through an exception."""
    waiting, seen = [start], {start}
    while waiting:
        for index in successors(code, waiting.pop()):
            if index == RETURN or index >= len(code.instructions):
                return False
            if index not in seen:
                seen.add(index)
                waiting.append(index)
    return True


def meeting_point(code: Code, index: int) -> int:
    """The immediate postdominator of an instruction; RETURN where the paths meet only at the
    frame's return."""
    count = len(code.instructions)
    reach = postdominators(code)
    mine = reach[index] & ~(1 << index)
    best, size = RETURN, -1
    for candidate in range(count):
        if mine >> candidate & 1:
            covered = bin(reach[candidate]).count("1")
            if covered > size:
                best, size = candidate, covered
    return best


def postdominators(code: Code) -> list[int]:
    """For each instruction the set (as bits) of instructions that every path from it to a
    return passes, itself included."""
    count = len(code.instructions)
    everything = (1 << count) - 1
    sets = [everything] * count
    following = [successors(code, i) for i in range(count)]
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            common = everything
            for j in following[i]:
                common &= 0 if j == RETURN or j >= count else sets[j]
            found = common | (1 << i) if following[i] else everything
            if found != sets[i]:
                sets[i] = found
                changed = True
    return sets
