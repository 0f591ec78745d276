"""What becomes of the result of a virtual frame, where it is not simply pushed on its caller's
stack.

A continuation is an immutable object held by the callee's frame, so that a program point is data
and can be copied. `returned` and `raised` run with `machine.frame` set to the caller, whose `index`
is already behind the calling instruction; `returned` gives the frame to go on with. `raised` gives
None to let the exception go on through the caller. `yielded` is for frames of generators.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.values import NULL
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.nouns import frozen

NO_EXCEPTION_MADE = "calling {} should have returned an instance of BaseException, not {}"


@frozen
class Ended:
    """The return value of a generator that native code resumed."""

    value: Any


class Finished(BaseException):
    """A root frame returned; carries the value out of the loop."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Continuation:
    """Push the result; the base of all others. One that `ends_frame` keeps nothing of an exception
    that it takes: what the frame held dies with it."""

    __slots__ = ()
    ends_frame = False

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(value)
        return frame

    def yielded(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(value)
        return frame

    def raised(self, machine: Interpreter, frame: Frame, error: BaseException) -> Frame | None:
        return None


class Root(Continuation):
    """The frame was started by native code: leave the loop. It stays the machine's frame until the
    loop is left, so that an interrupt (KeyboardInterrupt) meanwhile is raised in it, not in a frame
    outside of the loop.
    """

    __slots__ = ()

    def returned(self, machine: Interpreter, frame: Frame | None, value: Any) -> Frame:
        raise Finished(value)

    def yielded(self, machine: Interpreter, frame: Frame | None, value: Any) -> Frame:
        raise Finished(value)


class GeneratorRoot(Root):
    """Native code resumed a generator: a return is a StopIteration there."""

    __slots__ = ()

    def returned(self, machine: Interpreter, frame: Frame | None, value: Any) -> Frame:
        raise Finished(Ended(value))


@frozen
class Become(Continuation):
    """Push `value` whatever the frame returns: `__init__` (which must return None),
    `__setattr__`-like calls.
    """

    value: Any
    strict: bool = False

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        if self.strict and value is not None:
            raise TypeError(f"__init__() should return None, not {bare_name(type(value))!r}")
        frame.stack.append(self.value)
        return frame


def settled_attribute(machine: Interpreter, found: Any, owner: Any, name: str) -> Any:
    """A hook's result for an attribute with its calls begun: one that a native function raises is
    said of what it is, as one that a frame raises is by `AttributeOf`."""
    try:
        return machine.settle(found)
    except AttributeError as error:
        say_of_what(error, owner, name)
        raise


def say_of_what(error: AttributeError, owner: Any, name: str) -> None:
    """As `PyObject_GetAttr` does with an error that does not say it."""
    if error.name is None and error.obj is None:
        error.name, error.obj = name, owner


@frozen(eq=False)
class AttributeOf(Continuation):
    """The frame gives an attribute: an AttributeError that does not say of what gets it, unless
    the look for it is `silent`."""

    owner: Any
    name: str
    silent: bool = False

    def raised(self, machine: Interpreter, frame: Frame, error: Any) -> Frame | None:
        if not self.silent and issubclass(type(error), AttributeError):
            say_of_what(error, self.owner, self.name)
        return None


@frozen(eq=False)
class CalleeOf(AttributeOf):
    """The attribute is called: NULL goes behind it."""

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack += value, NULL
        return frame


class Discard(Continuation):
    """Throw the result away (`__setattr__`, `__setitem__`, `__delitem__`, ...)."""

    __slots__ = ()

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        return frame


class Again(Continuation):
    """Push the result and execute the calling instruction again, which finds it where its
    operand was.
    """

    __slots__ = ()

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(value)
        frame.index -= 1
        return frame


class Raise(Continuation):
    """The frame made an exception (`raise Error` with an interpreted `__init__`): raise it."""

    __slots__ = ()

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        if not issubclass(type(value), BaseException):
            raise TypeError(NO_EXCEPTION_MADE.format("an exception class", type(value)))
        machine.fresh_raise = True
        raise value


class Resume(Continuation):
    """`next(generator)` or `generator.send(...)`: a return is a StopIteration in the caller."""

    __slots__ = ()

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        raise StopIteration(value) if value is not None else StopIteration


@frozen
class ResumeOr(Continuation):
    """`next(generator, default)`."""

    default: Any

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(self.default)
        return frame

    def raised(self, machine: Interpreter, frame: Frame, error: BaseException) -> Frame | None:
        return self.returned(machine, frame, None) if _ends(error) else None


@frozen
class Chain(Continuation):
    """First one continuation, then another with what the first pushed."""

    first: Continuation
    second: Continuation

    @property
    def ends_frame(self) -> bool:  # type: ignore[override] # nobody sets it
        return self.first.ends_frame

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame = self.first.returned(machine, frame, value)
        return self.second.returned(machine, frame, frame.stack.pop())

    def yielded(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame = self.first.yielded(machine, frame, value)
        return self.second.returned(machine, frame, frame.stack.pop())

    def raised(self, machine: Interpreter, frame: Frame, error: BaseException) -> Frame | None:
        taken = self.first.raised(machine, frame, error)
        if taken is None:
            return self.second.raised(machine, frame, error)
        return self.second.returned(machine, taken, taken.stack.pop())


@frozen
class ForNext(Continuation):
    """FOR_ITER: a yielded value is pushed; the end of a generator, or a StopIteration that comes
    out of it or of a `__next__`, leaves the loop.

    At the end the iterator is popped; 3.12 jumps to an END_FOR, which pops two.
    """

    target: int
    end_for: bool

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        if self.end_for:
            frame.stack.append(NULL)
        else:
            frame.stack.pop()
        frame.index = self.target
        return frame

    def raised(self, machine: Interpreter, frame: Frame, error: BaseException) -> Frame | None:
        return ForNext.returned(self, machine, frame, None) if _ends(error) else None


@frozen
class ForCall(ForNext):
    """FOR_ITER over an object with an interpreted `__next__`."""

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(value)
        return frame


@frozen
class SendNext(Continuation):
    """SEND: a yielded value is pushed over the delegate; its return value jumps to the end of the
    `yield from`.

    3.11 replaces the delegate by the value; 3.12 leaves it for END_SEND.
    """

    target: int
    keeps_delegate: bool

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        if self.keeps_delegate:
            frame.stack.append(value)
        else:
            frame.stack[-1] = value
        frame.index = self.target
        return frame

    def raised(self, machine: Interpreter, frame: Frame, error: Any) -> Frame | None:
        return SendNext.returned(self, machine, frame, error.value) if _ends(error) else None


@frozen
class SendCall(SendNext):
    """SEND to an object with an interpreted `send` or `__next__`."""

    def returned(self, machine: Interpreter, frame: Frame, value: Any) -> Frame:
        frame.stack.append(value)
        return frame


def _ends(error: BaseException) -> bool:
    """Whether an iterator says by this that it has ended; no generator of the program's lets a
    StopIteration out (PEP 479)."""
    return issubclass(type(error), StopIteration)


ROOT = Root()
GENERATOR_ROOT = GeneratorRoot()
DISCARD = Discard()
AGAIN = Again()
RAISE = Raise()
RESUME = Resume()
