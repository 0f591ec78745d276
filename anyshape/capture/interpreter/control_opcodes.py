"""Opcodes that move control: jumps, calls, functions, returns, generators, import, match."""

from __future__ import annotations

import sys
from collections.abc import Callable
from sys import getrefcount
from types import FunctionType
from typing import Any

from anyshape.capture.heap.class_flags import MAPPING, SEQUENCE
from anyshape.capture.heap.iterators import FORKABLE
from anyshape.capture.heap.quiet_classes import bare_name, flags_of, has_entry
from anyshape.capture.heap.values import NULL, Call
from anyshape.capture.interpreter import (
    attributes,
    class_polyfills,
    iteration_polyfills,
    polyfills,
    protocol,
)
from anyshape.capture.interpreter.continuations import (
    Continuation,
    ForCall,
    ForNext,
    Root,
    SendCall,
    SendNext,
)
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.opcode_results import (
    again,
    also,
    drop,
    enter,
    push,
    push_by,
    release,
    released,
)
from anyshape.capture.interpreter.value_opcodes import callee, shown_callable
from anyshape.capture.interpreter.versions import VERSION
from anyshape.nouns import frozen

JumpIf = Callable[["Interpreter", Frame, int], Frame | None]


# ---- jumps ---------------------------------------------------------------------------------------
def jump(machine: Interpreter, frame: Frame, arg: int) -> None:
    frame.index = arg


def jump_back(machine: Interpreter, frame: Frame, arg: int) -> None:
    machine.domain.will_jump_back()
    frame.index = arg


def turning(jump_if: JumpIf) -> JumpIf:
    """The same jump at the end of a loop."""

    def turn(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
        machine.domain.will_jump_back()
        return jump_if(machine, frame, arg)

    return turn


def pop_jump_if_true(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    value = frame.stack[-1]
    if value is not True and value is not False:
        value = protocol.truth(machine, value)
        if type(value) is not bool:
            return again(machine, frame, value)
    frame.stack.pop()
    if value:
        frame.index = arg
    return None


def pop_jump_if_false(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    value = frame.stack[-1]
    if value is not True and value is not False:
        value = protocol.truth(machine, value)
        if type(value) is not bool:
            return again(machine, frame, value)
    frame.stack.pop()
    if not value:
        frame.index = arg
    return None


def pop_jump_if_none(machine: Interpreter, frame: Frame, arg: int) -> None:
    if frame.stack.pop() is None:
        frame.index = arg


def pop_jump_if_not_none(machine: Interpreter, frame: Frame, arg: int) -> None:
    if frame.stack.pop() is not None:
        frame.index = arg


@frozen
class JumpOrPop(Continuation):
    """The truth of the value under it decides: jump and keep it, or pop it."""

    target: int
    when: bool

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        if type(value) is not bool:  # what a `__bool__` of the program's made of a size
            machine.frame = frame
            value = machine.domain.branch(value, frame)
        if value is self.when:
            frame.index = self.target
        else:
            frame.stack.pop()
        return frame


def _jump_or_pop(machine: Interpreter, frame: Frame, target: int, when: bool) -> Frame | None:
    answer = protocol.truth(machine, frame.stack[-1])
    return push_by(machine, frame, 0, answer, JumpOrPop(target, when))


def jump_if_true_or_pop(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    return _jump_or_pop(machine, frame, arg, True)


def jump_if_false_or_pop(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    return _jump_or_pop(machine, frame, arg, False)


# ---- iteration -----------------------------------------------------------------------------------
def get_iter(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    iterator = protocol.iterate(machine, frame.stack[-1])
    if machine.heap.journal is not None and type(iterator) in FORKABLE:
        machine.heap.create(iterator)
    return push(machine, frame, 1, iterator)


def get_yield_from_iter(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return get_iter(machine, frame, arg)


def for_iter(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    iterator = frame.stack[-1]
    kind = type(iterator)
    if kind is Generator:
        continuation = ForNext(arg, VERSION.leaves_ended)
        callee = iterator.begin(None, continuation)
        return (
            continuation.returned(machine, frame, None)
            if callee is None
            else enter(machine, frame, callee)
        )
    if attributes.is_python(machine, kind, "__next__"):
        step = machine.settle(attributes.special(machine, iterator, "__next__"))
        if type(step) is Frame:
            return enter(machine, frame, also(step, ForCall(arg, VERSION.leaves_ended)))
        frame.stack.append(step)
        return None
    if machine.recording:
        value = machine.heap.advance(iterator, shared=False)
    else:
        value = next(iterator, NULL)
    if value is NULL:
        return ForNext(arg, VERSION.leaves_ended).returned(machine, frame, None)
    frame.stack.append(value)
    return None


def end_for(machine: Interpreter, frame: Frame, arg: Any) -> None:
    del frame.stack[-2:]


# ---- generators ----------------------------------------------------------------------------------
def return_generator(machine: Interpreter, frame: Frame, arg: Any) -> Frame:
    caller = frame.back
    generator = Generator(machine, frame)
    continuation = frame.continuation
    leaves = isinstance(continuation, Root)
    frame.continuation = frame.back = None
    if not leaves:
        machine.frame = caller
    if machine.recording:
        machine.heap.create(generator)
    if continuation is not None:
        return continuation.returned(machine, caller, generator)
    assert caller is not None
    caller.stack.append(generator)
    return caller


UNHELD = 3
"""Who holds a generator that nobody of the program does: the heap, a list, and whoever asks."""


def yield_value(machine: Interpreter, frame: Frame, arg: Any) -> Frame:
    value = frame.stack.pop()
    last: list[Any] = [frame.generator]  # until its caller has control: it may have a `finally`
    continuation, caller = frame.continuation, last[0].suspend(machine)
    taken = continuation.yielded(machine, caller, value)
    if machine.recording and getrefcount(last[0]) <= UNHELD and machine.heap.is_created(last[0]):
        return release(machine, taken, last, 0) or taken
    return taken


@frozen
class Delegation:
    """The argument of SEND: where the end of the delegate jumps to."""

    target: int


def send(machine: Interpreter, frame: Frame, arg: Delegation) -> Frame | None:
    stack = frame.stack
    delegate, value = stack[-2:]
    if type(delegate) is Generator:
        continuation = SendNext(arg.target, VERSION.leaves_ended)
        callee = delegate.begin(value, continuation)
        stack.pop()
        if callee is None:
            return continuation.returned(machine, frame, None)
        return enter(machine, frame, callee)
    following = SendCall(arg.target, VERSION.leaves_ended)
    name = "__next__" if value is None else "send"
    if value is not None and not _is_sent_to_in_c(machine, delegate):
        return push_by(machine, frame, 1, Call(polyfills.send_to, (delegate, value)), following)
    if attributes.is_python(machine, type(delegate), name):
        call = attributes.special(machine, delegate, name, *(() if value is None else (value,)))
        return push_by(machine, frame, 1, call, following)
    try:
        stack[-1] = _delegated(machine, delegate, value)
        return None
    except StopIteration as stop:
        ended = stop.value
    stack.pop()
    return SendNext.returned(following, machine, frame, ended)


def _is_sent_to_in_c(machine: Interpreter, delegate: Any) -> bool:
    """Whether C code says how something is sent to a delegate."""
    return type(machine.lookup(type(delegate), "send")) in attributes.C_FUNCTIONS


def _delegated(machine: Interpreter, delegate: Any, value: Any) -> Any:
    """What a native iterator gives for the next value sent to a `yield from` over it."""
    if value is not None:
        return delegate.send(value)
    if not machine.recording:
        return next(delegate)
    result = machine.heap.advance(delegate, shared=False)
    if result is NULL:
        raise StopIteration
    return result


def end_send(machine: Interpreter, frame: Frame, arg: Any) -> None:
    del frame.stack[-2]


def cleanup_throw(machine: Interpreter, frame: Frame, arg: Any) -> None:
    """A throw into a `yield from` ended: by StopIteration with a value, or not."""
    error = frame.stack[-1]
    if not issubclass(type(error), StopIteration):
        machine.fresh_raise = False
        raise error
    frame.stack[-3:] = [NULL, error.value]


# ---- calls ---------------------------------------------------------------------------------------
def call(machine: Interpreter, frame: Frame, arg: tuple[int, tuple[str, ...]]) -> Frame | None:
    count, names = arg
    stack = frame.stack
    base = len(stack) - count - 2
    fn, receiver = stack[base : base + 2]
    if fn is NULL:
        fn, receiver = receiver, NULL
    args = tuple(stack[base + 2 :] if receiver is NULL else stack[base + 1 :])
    if names:
        split = len(args) - len(names)
        result = machine.call(fn, args[:split], dict(zip(names, args[split:], strict=True)))
    else:
        result = machine.call(fn, args)
    del stack[base:]
    if type(result) is Frame:
        return enter(machine, frame, result)
    stack.append(result)
    return None


def call_function_ex(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    stack = frame.stack
    flag = arg & 1
    kwargs = stack[-1] if flag else {}
    args = stack[-1 - flag]
    fn = callee(stack, -2 - flag)
    if type(args) is not tuple:
        if protocol.is_not_iterable(machine, args):
            shown, kind = shown_callable(fn), protocol.class_shown(machine, args).__name__
            raise TypeError(f"{shown} argument after * must be an iterable, not {kind}")
        if protocol.must_be_taken_first(machine, args):
            return _retry_with(
                machine,
                frame,
                -1 - flag,
                Call(iteration_polyfills.make_from_list, (tuple, args)),
                arg,
            )
        protocol.will_exhaust(machine, args)
        args = tuple(protocol.iterate(machine, args))
    elif machine.recording:
        args = machine.heap.mirror(args)
    if type(kwargs) is not dict:
        kwargs = _keyword_mapping(fn, kwargs)
    elif machine.recording:
        kwargs = machine.heap.mirror(kwargs)
    return push(machine, frame, 3 + flag, machine.call(fn, args, dict(kwargs)))


def _keyword_mapping(fn: Any, kwargs: Any) -> dict[str, Any]:
    if not has_entry(type(kwargs), "keys"):
        shown, kind = shown_callable(fn), bare_name(type(kwargs))
        raise TypeError(f"{shown} argument after ** must be a mapping, not {kind}")
    return dict(kwargs)


@frozen
class Replace(Continuation):
    """Replace an operand by the result and execute the instruction again."""

    position: int

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack[self.position] = value
        frame.index -= 1
        return frame


def _retry_with(
    machine: Interpreter, frame: Frame, position: int, result: Any, arg: Any
) -> Frame | None:
    return push_by(machine, frame, 0, result, Replace(position))


def return_value(machine: Interpreter, frame: Frame, arg: Any) -> Frame:
    if machine.recording:
        closer = released(machine, frame, 1)
        if closer is not None:
            frame.index -= 1
            return closer
    return leave(machine, frame, frame.stack.pop())


def return_const(machine: Interpreter, frame: Frame, arg: Any) -> Frame:
    if machine.recording:
        closer = released(machine, frame, 0)
        if closer is not None:
            frame.index -= 1
            return closer
    return leave(machine, frame, arg)


def leave(machine: Interpreter, frame: Frame, value: Any) -> Frame:
    """Return from a frame."""
    if frame.generator is not None:
        frame.generator.returned()
    elif not machine.recording:
        frame.let_go()
    caller, continuation = frame.back, frame.continuation
    if continuation is None:
        machine.frame = caller
        assert caller is not None  # a root has a continuation
        caller.stack.append(value)
        return caller
    if not isinstance(continuation, Root):
        machine.frame = caller
    return continuation.returned(machine, caller, value)


def make_function(machine: Interpreter, frame: Frame, arg: int) -> None:
    stack = frame.stack
    code = stack.pop()
    closure = stack.pop() if arg & 8 else None
    annotations = stack.pop() if arg & 4 else None
    keyword_defaults = stack.pop() if arg & 2 else None
    defaults = stack.pop() if arg & 1 else None
    fn = FunctionType(code, frame.globals, code.co_name, defaults, closure)
    fn.__qualname__ = code.co_qualname
    if annotations is not None:
        pairs = annotations if type(annotations) is tuple else ()
        fn.__annotations__ = (
            dict(zip(pairs[::2], pairs[1::2], strict=True)) if pairs else dict(annotations)
        )
    if keyword_defaults is not None:
        fn.__kwdefaults__ = keyword_defaults
    if machine.recording:
        machine.heap.create(fn)
    stack.append(fn)


def load_build_class(machine: Interpreter, frame: Frame, arg: Any) -> None:
    builder = frame.builtins.get("__build_class__", NULL)
    if builder is NULL:
        raise NameError("__build_class__ not found")
    frame.stack.append(builder)


# ---- import --------------------------------------------------------------------------------------
def import_name(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    level, names = frame.stack[-2:]
    importer = frame.builtins["__import__"]
    module = machine.call(importer, (arg, frame.globals, frame.names, names, level))
    return push(machine, frame, 2, module)


def import_from(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    return push(machine, frame, 0, Call(class_polyfills.import_from, (frame.stack[-1], arg)))


def import_star(machine: Interpreter, frame: Frame, arg: Any) -> None:
    module = frame.stack.pop()
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in vars(module) if not name.startswith("_")]
    for name in names:
        protocol.store_item(machine, frame.names, name, getattr(module, name))


# ---- match ---------------------------------------------------------------------------------------


def match_mapping(machine: Interpreter, frame: Frame, arg: Any) -> None:
    frame.stack.append(bool(flags_of(type(frame.stack[-1])) & MAPPING))


def match_sequence(machine: Interpreter, frame: Frame, arg: Any) -> None:
    frame.stack.append(bool(flags_of(type(frame.stack[-1])) & SEQUENCE))


def match_keys(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    subject, keys = frame.stack[-2:]
    if len(set(keys)) != len(keys):
        double = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ValueError(f"mapping pattern checks duplicate key ({double!r})")
    return push(machine, frame, 0, Call(class_polyfills.match_keys, (subject, keys)))


def match_class(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    subject, cls, names = frame.stack[-3:]
    return push(machine, frame, 3, Call(class_polyfills.match_class, (subject, cls, arg, names)))


# ---- the rest ------------------------------------------------------------------------------------
def print_expr(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return drop(machine, frame, 1, Call(sys.displayhook, (frame.stack[-1],)))
