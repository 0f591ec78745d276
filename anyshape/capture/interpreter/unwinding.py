"""Virtual exceptions: finding a handler, `__context__` and `__traceback__` as CPython sets them.

In: an exception that a handler of the loop raised in `machine.frame`. Out: the frame that goes on
with it, or None at the root. A traceback entry needs a real frame object (`frame_objects.py`).
"""

from __future__ import annotations

from types import FrameType, TracebackType
from typing import Any, NoReturn

from anyshape.capture.heap import raised_state
from anyshape.capture.heap.raised_state import context_of, set_traceback, traceback_of
from anyshape.capture.heap.values import NULL
from anyshape.capture.interpreter import calls_of_the_program
from anyshape.capture.interpreter.continuations import Root
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame, handled_exception
from anyshape.capture.interpreter.frame_objects import left_frame, shared_frame, shows, untraced
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.opcode_results import release

_OURS = ("anyshape.capture", "anyshape.dispatch")


def unwind(machine: Interpreter, error: BaseException) -> Frame | None:
    """Deliver `error`, raised by the instruction before `machine.frame.index`; None when it leaves
    through a root.
    """
    frame = machine.frame
    assert frame is not None
    fresh, machine.fresh_raise = machine.fresh_raise, True
    set_traceback(error, _program_part(traceback_of(error)))
    machine.heap.will_raise(error)
    if fresh:
        handled = handled_exception(frame)
        if not _was_raised_under(error, handled):
            set_context(error, handled)
        _add_traceback(error, frame)
    while True:
        row = frame.code.handled_by[frame.index - 1]
        if row is not None:
            stack, at = frame.stack, _stands_at(frame)
            dropped = stack[row.depth :]
            del stack[row.depth :]
            if row.lasti:
                stack.append(at)
            stack.append(error)
            frame.index = row.target
            machine.frame = frame
            return _closing(machine, frame, dropped) if machine.recording else frame
        _show_exit(machine, error, frame)
        if not machine.recording:
            frame.stack.clear()
        continuation, caller = frame.continuation, frame.back
        if frame.generator is not None:
            error = frame.generator.failed(error)
        machine.frame = caller
        if isinstance(continuation, Root) or caller is None:
            machine.escaped = error
            return None
        if continuation is not None:
            taken = continuation.raised(machine, caller, error)
            if taken is not None:
                ends = machine.recording and continuation.ends_frame
                return _closing(machine, taken, _contents_of(frame)) if ends else taken
        frame = caller
        _add_traceback(error, frame)


@untraced
def leave(machine: Interpreter) -> NoReturn:
    """Raise what has escaped, as it is: no context is added to one that has its own. A recording
    machine says afterwards what that was. The traceback holds this frame, which must hold no
    exception."""
    error = machine.escaped
    assert error is not None
    if not machine.recording:
        machine.escaped = None
    context = context_of(error)
    try:
        raise error
    finally:
        if context is not None:
            raised_state.set_context(error, context)
        del error, context


def _closing(machine: Interpreter, frame: Frame, dropped: list[Any]) -> Frame:
    """The frame to go on with, once the generators that lay on the stack are closed: the last one
    first, whose frame is therefore the last to be entered."""
    for index in range(len(dropped)):  # no other reference: who has a last one, is asked
        if type(dropped[index]) is Generator:
            closer = release(machine, frame, dropped, index)
            frame = frame if closer is None else closer
        else:
            dropped[index] = NULL
    return frame


def _contents_of(frame: Frame) -> list[Any]:
    """What dies with a frame that an exception has left which nobody keeps, in the opposite order;
    nothing where a handler or a frame object of the program may keep it."""
    if frame.is_watched() or frame.code.opcodes[_stands_at(frame)][0] != "YIELD_VALUE":
        return []
    contents = [*reversed(frame.locals), *frame.stack]
    frame.locals[:] = [NULL] * len(frame.locals)
    frame.stack.clear()
    return contents


def _was_raised_under(error: BaseException, handled: BaseException | None) -> bool:
    """Whether code that CPython ran has raised it, or something before it, while this was handled
    here: its context is what it is."""
    link, seen = context_of(error), set()
    while link is not None and link is not handled and id(link) not in seen:
        seen.add(id(link))
        link = context_of(link)
    return link is not None and link is handled


def set_context(error: BaseException, handled: BaseException | None) -> None:
    """`_PyErr_SetObject`: the handled exception becomes the context, and no cycle comes about."""
    if handled is None or handled is error:
        return
    link: BaseException | None = handled
    seen = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        following = context_of(link)
        if following is error:
            raised_state.set_context(link, None)
            break
        link = following
    raised_state.set_context(error, handled)


def _program_part(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the interpreter's own native frames at its outer end."""
    while traceback is not None and _is_ours(traceback.tb_frame):
        traceback = traceback.tb_next
    return traceback


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name.startswith(_OURS) or calls_of_the_program.is_call(frame.f_code)


def _add_traceback(error: BaseException, frame: Frame) -> None:
    code = frame.code
    if code.hidden:
        return
    index = frame.index - 1
    line = code.lines[index]
    real = shared_frame(code, frame.globals, index)
    behind = traceback_of(error)
    set_traceback(error, TracebackType(behind, real, code.offsets[index], line or -1))


def _show_exit(machine: Interpreter, error: BaseException, frame: Frame) -> None:
    """A frame object that its code has left says where that was, be it behind what raised, and
    keeps what its locals hold as long as the traceback lives."""
    code, index, traceback = frame.code, _stands_at(frame), traceback_of(error)
    if code.hidden or traceback is None or not shows(code, traceback.tb_frame):
        return
    if machine.exact_deaths:
        left = left_frame(frame, index)
    elif traceback.tb_lasti == code.offsets[index]:
        return
    else:
        left = shared_frame(code, frame.globals, index)
    lasti, line = traceback.tb_lasti, traceback.tb_lineno
    set_traceback(error, TracebackType(traceback.tb_next, left, lasti, line))


def _stands_at(frame: Frame) -> int:
    """The instruction that raised: where cleaning up raises again, the one that it cleans up
    after, which lies on the stack."""
    name, arg = frame.code.opcodes[frame.index - 1]
    at: int = frame.stack[-1 - arg] if name == "RERAISE" and arg else frame.index - 1
    return at


def exception_info(machine: Interpreter) -> tuple[Any, Any, Any]:
    """`sys.exc_info()` of the virtual program."""
    error = handled_exception(machine.frame)
    if error is None:
        return (None, None, None)
    return type(error), error, traceback_of(error)
