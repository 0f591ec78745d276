"""Builtins about exceptions and the frames that their tracebacks show.

A virtual frame has no frame object: a traceback shows one that stands for its code
(`frame_objects.py`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FrameType, FunctionType, NoneType, TracebackType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import class_entry
from anyshape.capture.heap.raised_state import asks_for, parts_from_the_last, split_by_answers
from anyshape.capture.heap.values import Call, TextValue
from anyshape.capture.interpreter import class_polyfills
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.exception_opcodes import own_groups
from anyshape.capture.interpreter.frame import Code


def _all_exceptions() -> list[type[BaseException]]:
    """The classes of C."""
    found = [value for value in vars(builtins).values() if issubclass(type(value), type)]
    return [kind for kind in found if issubclass(kind, BaseException)]


def _clear_frame(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`frame.clear()`: a shared stand-in has nothing to clear, unless its code runs."""
    frame = args[0] if args else None
    if any(_is_shared(frame, running.code) for running in machine.frames()):
        raise RuntimeError("cannot clear an executing frame")
    if any(_is_shared(frame, code) for code in machine.codes.values()):
        return None
    return machine.native(FrameType.clear, args, kwargs)


def _with_traceback(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`error.with_traceback(traceback)` writes what raising the exception writes, and is undone as
    that is."""
    fits = len(args) == 2 and issubclass(type(args[0]), BaseException)
    if kwargs or not fits or type(args[1]) not in (TracebackType, NoneType):
        return machine.native(BaseException.with_traceback, args, kwargs)
    error, traceback = args
    if machine.recording:
        machine.domain.will_raise(error)
        if traceback is not None and machine.domain.is_outside(traceback):
            raise broken("python-effect", "with_traceback of a traceback from outside")
    machine.heap.will_raise(error)
    return BaseException.with_traceback(error, traceback)


def _add_note(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`error.add_note(text)`: an attribute that is read or set as any other, and a list."""
    known = len(args) == 2 and not kwargs and type(args[1]) in (str, TextValue)
    if known and machine.recording and issubclass(type(args[0]), BaseException):
        return Call(class_polyfills.add_note, args)
    return machine.native(BaseException.add_note, args, kwargs)


def _splitting(method: Any) -> Callable[..., Any]:
    """`group.split(predicate)`: the predicate may be the program's."""

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = machine.recording and len(args) == 2 and not kwargs
        if not known or not issubclass(type(args[0]), BaseExceptionGroup):
            return machine.native(method, args, kwargs)
        group, matcher = args
        if type(matcher) is not FunctionType or asks_for(group) is not None:
            return machine.native(method, args, kwargs)
        return Call(class_polyfills.split_by_predicate, (method, group, matcher))

    return handler


def _parts_from_the_last(machine: Interpreter, args: tuple[Any, ...], kwargs: Any) -> Any:
    return machine.heap.create(parts_from_the_last(*args))


def _split_by_answers(machine: Interpreter, args: tuple[Any, ...], kwargs: Any) -> Any:
    method, group, answers = args
    found = split_by_answers(method, group, answers)
    own_groups(machine, found if type(found) is tuple else (found,), group)
    return machine.heap.create(found) if type(found) is tuple else found


def _init_of(method: Any) -> Callable[..., Any]:
    """`super().__init__(message)`: it stores what it is given. What was made before a fork would
    have to be undone."""

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        heap = machine.heap
        if not machine.recording or not args or not heap.is_created(args[0]):
            return machine.native(method, args, kwargs)
        known = method in STORING or all(_is_plain(arg) for arg in (*args[1:], *kwargs.values()))
        if not known or (heap.journal is not None and not heap.is_made_inside(args[0])):
            return machine.native(method, args, kwargs)
        return method(*args, **kwargs)

    return handler


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in (int, str, bytes, NoneType)


INITS = {vars(kind)["__init__"]: kind for kind in _all_exceptions() if "__init__" in vars(kind)}
PARSING = (OSError, SyntaxError, UnicodeError)
STORING = {method for method, kind in INITS.items() if not issubclass(kind, PARSING)}
"""Those that look at nothing that they are given."""

PLAIN_EXCEPTIONS = frozenset(
    kind for kind in _all_exceptions() if not issubclass(kind, (*PARSING, BaseExceptionGroup))
)
"""The classes of C whose making stores what it is given, and looks at none of it."""
PLAIN_MAKERS = frozenset(
    {
        vars(kind)[name]
        for kind in PLAIN_EXCEPTIONS
        for name in ("__new__", "__init__")
        if name in vars(kind)
    }
)


def stores_arguments(cls: Any) -> bool:
    """Whether making an exception of the class stores what it is given, and runs no more code."""
    if type(cls) is not type or not issubclass(cls, BaseException):
        return False
    makers = [class_entry(cls, name) for name in ("__new__", "__init__")]
    return all(type(m) in C_MAKERS and m in PLAIN_MAKERS for m in makers)


C_MAKERS = (type(BaseException.__new__), type(BaseException.__init__))
EXCEPTION_BUILTINS: dict[Any, Callable[[Interpreter, tuple[Any, ...], dict[str, Any]], Any]] = {
    FrameType.clear: _clear_frame,
    BaseException.with_traceback: _with_traceback,
    BaseException.add_note: _add_note,
    parts_from_the_last: _parts_from_the_last,
    split_by_answers: _split_by_answers,
    BaseExceptionGroup.split: _splitting(BaseExceptionGroup.split),
    BaseExceptionGroup.subgroup: _splitting(BaseExceptionGroup.subgroup),
    **{method: _init_of(method) for method in INITS},
}


def _is_shared(frame: Any, code: Code) -> bool:
    return any(shared is frame for shared in code.shared_frames.values())
