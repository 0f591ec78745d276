"""Opcodes of exceptions and `with`: raise, except, except*, reraise, enter and exit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NoReturn

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name, mro_of
from anyshape.capture.heap.raised_state import (
    asks_for,
    cause_of,
    context_of,
    exceptions_of,
    parts_of,
    set_cause,
    traceback_of,
)
from anyshape.capture.heap.values import NULL, PROXIES, Call
from anyshape.capture.interpreter import attributes, polyfills
from anyshape.capture.interpreter.continuations import NO_EXCEPTION_MADE, RAISE, Continuation
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame, handled_exception
from anyshape.capture.interpreter.opcode_results import also, enter, push, push_by
from anyshape.capture.interpreter.unwinding import set_context
from anyshape.capture.interpreter.versions import VERSION
from anyshape.nouns import frozen


# ---- exceptions ----------------------------------------------------------------------------------
def raise_varargs(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    if arg == 0:
        handled = handled_exception(frame)
        if handled is None:
            raise RuntimeError("No active exception to reraise")
        _will_raise(machine, handled)
        machine.fresh_raise = False
        raise handled
    stack = frame.stack
    error = stack[-arg]
    cause: Any = stack[-1] if arg == 2 else NULL
    if issubclass(type(error), type) and issubclass(error, BaseException):
        made = machine.call(error, ())
        if type(made) is Frame:
            return _raise_made(machine, frame, arg, made)
        error = made
    if not issubclass(type(error), BaseException):
        raise TypeError("exceptions must derive from BaseException")
    if machine.recording and issubclass(type(cause), type) and issubclass(cause, BaseException):
        del stack[-arg:]
        return enter(machine, frame, machine.call(polyfills.raise_caused_by, (error, cause)))
    _will_raise(machine, error)
    if cause is not NULL:
        _set_cause(machine, error, cause)
    del stack[-arg:]  # its traceback may lead back to this frame
    machine.heap.will_raise(error)
    set_context(error, handled_exception(frame))
    raise error


def _will_raise(machine: Interpreter, error: BaseException) -> None:
    if machine.recording:
        machine.domain.will_raise(error)


def _raise_made(machine: Interpreter, frame: Frame, arg: int, made: Frame) -> Frame | None:
    """`raise Error` where Error has an interpreted `__init__`."""
    if arg == 1:
        frame.stack.pop()
        return enter(machine, frame, also(made, RAISE))
    error, cause = frame.stack[-2:]
    del frame.stack[-2:]
    return enter(machine, frame, machine.call(polyfills.raise_with, (error, cause)))


def _set_cause(machine: Interpreter, error: BaseException, cause: Any) -> None:
    if issubclass(type(cause), type) and issubclass(cause, BaseException):
        made_by, cause = cause, cause()
        if VERSION.checks_made_causes and not issubclass(type(cause), BaseException):
            raise TypeError(NO_EXCEPTION_MADE.format(made_by, type(cause)))
    if cause is not None and not issubclass(type(cause), BaseException):
        raise TypeError("exception causes must derive from BaseException")
    machine.heap.will_raise(error)
    set_cause(error, cause)


def raise_thrown(
    machine: Interpreter,
    args: tuple[BaseException, BaseException | None],
    kwargs: dict[str, Any],
) -> NoReturn:
    """`generator.throw`: who calls it, and what is handled there, leaves no trace."""
    error, handled = args
    _will_raise(machine, error)
    machine.heap.will_raise(error)
    set_context(error, handled)
    machine.fresh_raise = False
    raise error


def push_exc_info(machine: Interpreter, frame: Frame, arg: Any) -> None:
    stack = frame.stack
    error = stack[-1]
    stack[-1] = frame.handled
    stack.append(error)
    frame.handled = error


def pop_except(machine: Interpreter, frame: Frame, arg: Any) -> None:
    frame.handled = frame.stack.pop()


_NO_EXCEPTION_CLASS = "catching classes that do not inherit from BaseException is not allowed"


def _check_classes(classes: Any) -> None:
    for cls in classes if type(classes) is tuple else (classes,):
        if not (issubclass(type(cls), type) and issubclass(cls, BaseException)):
            raise TypeError(_NO_EXCEPTION_CLASS)


def check_exc_match(machine: Interpreter, frame: Frame, arg: Any) -> None:
    stack = frame.stack
    classes = stack[-1]
    _check_classes(classes)
    stack[-1] = _is_given(stack[-2], classes)


def _is_given(error: Any, classes: Any) -> bool:
    """As PyErr_GivenExceptionMatches: by identity along the MRO, no metaclass is asked."""
    wanted = classes if type(classes) is tuple else (classes,)
    mro = mro_of(type(error))
    return any(cls is base for cls in wanted for base in mro)


def check_eg_match(machine: Interpreter, frame: Frame, arg: Any) -> None:
    stack = frame.stack
    error, classes = stack[-2:]
    _check_classes(classes)
    for cls in classes if type(classes) is tuple else (classes,):
        if issubclass(cls, BaseExceptionGroup):
            raise TypeError(
                "catching ExceptionGroup with except* is not allowed. Use except instead."
            )
    if issubclass(type(error), BaseException):  # its parts share its traceback
        _will_raise(machine, error)
    _refuse_program_code(machine, error)
    matched, rest = _split_group(error, classes)
    own_groups(machine, (matched, rest), error)
    stack[-2:] = [rest, matched]
    if matched is not None:
        frame.handled = matched


def _split_group(error: Any, classes: Any) -> tuple[Any, Any]:
    if error is None:
        return None, None
    if _is_given(error, classes):
        if issubclass(type(error), BaseExceptionGroup):
            return error, None
        return BaseExceptionGroup("", (error,)), None
    if issubclass(type(error), BaseExceptionGroup):
        return error.split(classes)
    return None, error


def prep_reraise_star(machine: Interpreter, frame: Frame, arg: Any) -> None:
    stack = frame.stack
    original, raised = stack[-2:]
    _will_raise(machine, original)
    for group in (original, *raised):
        _refuse_program_code(machine, group)
    del stack[-2:]
    error = _reraise_star(original, raised)
    own_groups(machine, (error,), original, *raised)
    stack.append(error)


def _refuse_program_code(machine: Interpreter, error: Any) -> None:
    """What a class of the program says of its groups is for C to ask, once in each call."""
    asked = asks_for(error) if machine.recording else None
    if asked is not None:
        raise broken("unknown-call", f"{asked}, asked by `except*`,")


def own_groups(machine: Interpreter, errors: Iterable[Any], *origins: Any) -> None:
    """The groups that C has made of others, or around them, belong to the segment as all do that
    it makes: what is written to them is there for whoever reads it next."""
    if machine.recording:
        known = {id(part) for origin in origins for part in parts_of(origin)}
        for part in (part for error in errors for part in parts_of(error)):
            if id(part) not in known and not machine.heap.is_created(part):
                machine.heap.create(part)


def _reraise_star(original: Any, raised: list[Any]) -> Any:
    """`_PyExc_PrepReraiseStar`: what an except* statement raises in the end, or None."""
    errors = [error for error in raised if error is not None]
    if not errors:
        return None
    if not issubclass(type(original), BaseExceptionGroup):
        return errors[0]
    new = [error for error in errors if not _same_metadata(error, original)]
    kept = [error for error in errors if _same_metadata(error, original)]
    rest = _projection(original, kept) if kept else None
    if not new:
        return rest
    if rest is not None:
        new.append(rest)
    return new[0] if len(new) == 1 else BaseExceptionGroup("", new)


def _same_metadata(error: Any, original: BaseExceptionGroup[Any]) -> bool:
    return (
        issubclass(type(error), BaseExceptionGroup)
        and traceback_of(error) is traceback_of(original)
        and cause_of(error) is cause_of(original)
        and context_of(error) is context_of(original)
    )


def _projection(original: BaseExceptionGroup[Any], kept: list[Any]) -> Any:
    leaves: set[int] = set()
    for error in kept:
        _collect_leaves(error, leaves)
    by_id = partial(BaseExceptionGroup.subgroup, original)  # C asks for no `split` here
    return by_id(lambda error: id(error) in leaves)


def _collect_leaves(error: Any, leaves: set[int]) -> None:
    if issubclass(type(error), BaseExceptionGroup):
        for inner in exceptions_of(error):
            _collect_leaves(inner, leaves)
    else:
        leaves.add(id(error))


def reraise(machine: Interpreter, frame: Frame, arg: int) -> None:
    _will_raise(machine, frame.stack[-1])
    machine.fresh_raise = False
    raise frame.stack[-1]


# ---- with ----------------------------------------------------------------------------------------
@frozen
class Entered(Continuation):
    """`__enter__` returned: `__exit__`, bound, goes under its result."""

    exit: Any

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(self.exit)
        frame.stack.append(value)
        return frame


def before_with(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    manager = frame.stack[-1]
    cls = type(manager)
    if cls in PROXIES:
        raise TypeError(_not_a_manager(machine.domain.type_of(manager)))
    enter_method, exit_method = machine.lookup(cls, "__enter__"), machine.lookup(cls, "__exit__")
    if enter_method is NULL:
        raise TypeError(_not_a_manager(cls))
    if exit_method is NULL:
        raise TypeError(_not_a_manager(cls) + " (missed __exit__ method)")
    bound_exit = _bind_exit(machine, exit_method, manager, cls)
    result = attributes.call_bound(machine, enter_method, manager, (), None)
    return push_by(machine, frame, 1, result, Entered(bound_exit))


def _not_a_manager(cls: type) -> str:
    return f"{bare_name(cls)!r} object does not support the context manager protocol"


def _bind_exit(machine: Interpreter, method: Any, manager: Any, cls: type) -> Any:
    if type(method) is FunctionType:
        return MethodType(method, manager)
    bound = attributes.descriptor_get(machine, method, manager, cls, "__exit__")
    return method.__get__(manager, cls) if type(bound) is Call else bound


def with_except_start(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    stack = frame.stack
    error, exit_method = stack[-1], stack[-4]
    result = machine.call(exit_method, (type(error), error, traceback_of(error)))
    return push(machine, frame, 0, result)


def stop_iteration_error(machine: Interpreter, frame: Frame, arg: Any) -> None:
    """PEP 479: a StopIteration that leaves a generator becomes a RuntimeError; not one that leaves
    an iterator of C."""
    error = frame.stack[-1]
    of_c = frame.generator is not None and frame.generator.is_of_c
    if issubclass(type(error), StopIteration) and not of_c:
        replaced = RuntimeError("generator raised StopIteration")
        replaced.__cause__ = replaced.__context__ = error
        frame.stack[-1] = replaced
