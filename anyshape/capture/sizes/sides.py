"""Running one side of a branch: from the jump to where the sides meet, and going on from there.

In: a jump of a frame, and where its paths meet. Out: the frame at the meeting point, or the value
that it returned; `NotJoined` where a side ends otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.values import Break, InterpreterBug, ProxyLeak
from anyshape.capture.interpreter import exception_origin, unwinding
from anyshape.capture.interpreter.continuations import Finished, Root
from anyshape.capture.interpreter.control_flow import meeting_point
from anyshape.capture.interpreter.control_opcodes import leave
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.sizes.merging import NotJoined
from anyshape.interrupts import is_interrupt
from anyshape.nouns import mutable

NO_JUMP = {"FALSE": True, "TRUE": False}
DEEPEST = 48  # forks inside forks: a loop that data ends never comes to an end of its sides
RECURSIONS = 8  # sides of one jump inside each other, of a function that calls itself


class Merged:
    """A merged return value on its way to the caller."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _return_merged(machine: Interpreter, frame: Frame, arg: Any) -> Frame:
    return leave(machine, frame, frame.stack.pop().value)


RETURN_MERGED: list[Any] = [(_return_merged, None)]


def decides(name: str) -> bool:
    return "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name)


def meeting_of(domain: RecordingDomain, code: Code, index: int) -> tuple[int, frozenset[int]]:
    """The meeting point and its copies, worked out once for each jump."""
    found = domain.forks.meetings.get((code, index))
    if found is None:
        found = domain.forks.meetings[code, index] = meeting_point(code, index)
    return found


@contextmanager
def running(domain: RecordingDomain, frame: Frame, decides_turns: str) -> Iterator[None]:
    """While both sides of the jump that `frame` stands behind are run; `NotJoined` where that would
    not end: in a side of this very jump, or of the same jump of a function that calls itself.
    What has not ended once is not tried again."""
    jump = frame.code, frame.index
    frames = domain.forks.running.setdefault(jump, [])
    if id(frame) in frames:
        raise NotJoined(f"the turns of a loop depend on {decides_turns}")
    if len(frames) >= RECURSIONS:
        domain.forks.endless.add(jump)
    if jump in domain.forks.endless:
        raise NotJoined(f"how often a function calls itself depends on {decides_turns}")
    frames.append(id(frame))
    try:
        yield
    finally:
        frames.pop()


def enter(machine: Interpreter, frame: Frame, name: str, jumps: bool, target: int) -> None:
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


def run_until(machine: Interpreter, stop: Frame, ends: frozenset[int]) -> tuple[bool, Any]:
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
                raise InterpreterBug(f"{bare_name(type(error))}: {error}") from error
        if unwinding.unwind(machine, raised) is None:
            raise NotJoined(f"a side raises {bare_name(type(raised))}")


# ---- going on ------------------------------------------------------------------------------------
@mutable
class State:
    """What the frame goes on with."""

    returned: bool
    value: Any
    locals: list[Any]
    stack: list[Any]


def go_on(machine: Interpreter, frame: Frame, name: str, meeting: int, merged: State) -> Any:
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
