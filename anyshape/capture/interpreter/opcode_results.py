"""How an opcode's handler hands over its result: push it, enter a frame for it, or throw it away.

All of them begin the call before they take operands off the stack, so that a `Break` finds the
frame as it was.
"""

from __future__ import annotations

from sys import getrecursionlimit, getrefcount
from typing import Any

from anyshape.capture.heap.values import NULL, Call
from anyshape.capture.interpreter.continuations import AGAIN, DISCARD, Chain, Continuation
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.generators import DROPPED, Generator

SHALLOW = 50  # no limit is asked for above

# Who holds a generator from outside that the program is about to let go: the list, two tables of
# the capture, its arguments, and whoever asks.
LAST_HOLDERS = 6


def enter(machine: Interpreter, caller: Frame, callee: Frame) -> Frame:
    """Make a new frame (or a short stack of them) the current one; as deep as CPython would."""
    callee.depth = caller.depth + 1
    if callee.depth > SHALLOW and callee.depth > getrecursionlimit():
        raise RecursionError("maximum recursion depth exceeded")
    bottom = callee
    while bottom.back is not None:
        bottom = bottom.back
    bottom.back = caller
    machine.frame = callee
    return callee


def also(frame: Frame, continuation: Continuation) -> Frame:
    """Add a continuation to a frame that has not been entered."""
    bottom = frame
    while bottom.back is not None:
        bottom = bottom.back
    first = bottom.continuation
    bottom.continuation = continuation if first is None else Chain(first, continuation)
    return frame


def push(machine: Interpreter, frame: Frame, pops: int, result: Any) -> Frame | None:
    """Replace `pops` operands by a result, which may still have to be computed."""
    kind = type(result)
    if kind is Call:
        result = machine.call(result.fn, result.args, result.kwargs)
        kind = type(result)
    stack = frame.stack
    if pops:
        del stack[-pops:]
    if kind is Frame:
        return enter(machine, frame, result)
    stack.append(result)
    return None


def push_by(
    machine: Interpreter, frame: Frame, pops: int, result: Any, continuation: Continuation
) -> Frame | None:
    """As `push`, with a continuation for the value."""
    result = machine.settle(result)
    if pops:
        del frame.stack[-pops:]
    if type(result) is Frame:
        return enter(machine, frame, also(result, continuation))
    return continuation.returned(machine, frame, result)


def drop(machine: Interpreter, frame: Frame, pops: int, result: Any) -> Frame | None:
    """Take the operands off; the result is of no interest."""
    kind = type(result)
    if kind is Call:
        result = machine.call(result.fn, result.args, result.kwargs)
        kind = type(result)
    del frame.stack[-pops:]
    if kind is Frame:
        return enter(machine, frame, also(result, DISCARD))
    return None


def again(machine: Interpreter, frame: Frame, result: Any) -> Frame:
    """Replace the top operand by a result and execute the same instruction once more."""
    result = machine.settle(result)
    frame.stack.pop()
    if type(result) is Frame:
        return enter(machine, frame, also(result, AGAIN))
    frame.stack.append(result)
    frame.index -= 1
    return frame


def release(machine: Interpreter, frame: Frame, values: list[Any], index: int) -> Frame | None:
    """Empty an element that holds a generator. CPython closes one that nobody holds any more at
    once: the frame to enter, in which its `finally` blocks run."""
    value: Generator = values[index]
    if value.is_left_open and getrefcount(value) <= LAST_HOLDERS:
        machine.domain.will_drop(value)
    values[index] = NULL
    if value.is_dropped():
        return enter(machine, frame, also(value.throwing(GeneratorExit(), DROPPED), DISCARD))
    return None


def released(machine: Interpreter, frame: Frame, kept: int) -> Frame | None:
    """As `release`, for what a frame that is about to end holds but for the topmost `kept` of its
    stack: the first that must be closed."""
    for values, count in (
        (frame.stack, len(frame.stack) - kept),
        (frame.locals, frame.code.local_count),
    ):
        for index in range(count):
            if type(values[index]) is Generator:
                closer = release(machine, frame, values, index)
                if closer is not None:
                    return closer
    return None
