"""Exceptions that come from outside of the program: what the handler of a signal raises, and
KeyboardInterrupt.

In: an exception that was caught. Out: whether it is one. Such an exception may come between any two
lines of ours. It is no mistake of ours, says nothing of the program, and must reach the program's
handlers or its caller: who catches all exceptions lets it pass.
"""

from __future__ import annotations

import dis
import functools
import signal

# `signal.getsignal` makes two members of enums of each answer, which costs more than all the rest
from _signal import getsignal  # type: ignore[import-not-found]
from collections.abc import Iterator
from types import CodeType, FrameType, MethodType, TracebackType
from typing import Any

RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})
TRACEBACK: Any = vars(BaseException)["__traceback__"]
"""Read as C does: a class of the program may have a property of that name."""
SIGNALS = tuple(map(int, signal.valid_signals()))


def is_interrupt(error: BaseException) -> bool:
    """Whether the handler of a signal raised it. Python's own for SIGINT has no frame: it is a
    KeyboardInterrupt that no `raise` raised."""
    last = innermost(error)
    if last is None:
        return False
    if isinstance(error, KeyboardInterrupt) and instruction_of(last) not in RAISES:
        return True
    handlers = frozenset(_handlers())
    return any(call.tb_frame.f_code in handlers for call in _calls(TRACEBACK.__get__(error)))


def innermost(error: BaseException) -> TracebackType | None:
    """The entry of the traceback for the line that raised."""
    return next(reversed(list(_calls(TRACEBACK.__get__(error)))), None)


def instruction_of(call: TracebackType) -> str:
    """The name of the instruction that raised."""
    frame: FrameType = call.tb_frame
    code = frame.f_code.co_code
    return dis.opname[code[call.tb_lasti]] if 0 <= call.tb_lasti < len(code) else ""


def _calls(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _handlers() -> Iterator[CodeType]:
    for number in SIGNALS:
        code = _code_of(getsignal(number))
        if code is not None:
            yield code


def _code_of(handler: Any) -> CodeType | None:
    if handler is None or type(handler) is int:  # C's, or the system's
        return None
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = handler.__func__ if isinstance(handler, MethodType) else handler
    if callable(function) and not hasattr(function, "__code__"):
        function = type(function).__call__  # an object that can be called
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
