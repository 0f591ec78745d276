"""Between segments: real frames run natively, instruction by instruction.

In: the real frames that a segment left. Out: the frames after one instruction, after a region that
is not worth a segment, or the program's result.
"""

from __future__ import annotations

import gc
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Set
from typing import Any, Literal, Protocol

import torch

from anyshape.capture.heap.quiet_classes import class_module
from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter import calls_of_the_program, handover, unwinding
from anyshape.capture.interpreter.continuations import Finished
from anyshape.capture.interpreter.domain import Concrete, Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.liveness import has_finalizer
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.interpreter.polyfills import given, raise_from
from anyshape.capture.python.language import make_ready, python_machine
from anyshape.capture.segments import warned
from anyshape.capture.segments.callables import LOGGING, answer, is_opaque
from anyshape.capture.segments.marked_functions import compiled_by_torch, is_disabled
from anyshape.capture.segments.random_draws import METHODS
from anyshape.capture.segments.recursion_limit import RecursionLimit
from anyshape.capture.tensors import modules
from anyshape.capture.tensors.torch_polyfills import MEMBERS
from anyshape.costs import COSTS
from anyshape.nouns import frozen

AS_A_WHOLE = LOGGING.union(METHODS)
"""Functions in Python that CPython calls where capture cannot follow them."""


def _called(machine: Interpreter, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the call gives. What it raises is raised by a frame, as if it had been interpreted: who
    called it, a loop over an iterator for one, may wait for that."""
    try:
        return _answer(calls_of_the_program.call(machine.frame, fn, args, kwargs))
    except Exception as error:
        return Call(raise_from, ([error],))


def _answer(value: Any) -> Any:
    """A value that is an answer, whatever it is: NotImplemented says that there is none."""
    return Call(given, (value,)) if value is NotImplemented else value


_MEETING_OURS = (sys.setrecursionlimit, gc.get_objects, gc.get_referrers, sys.getallocatedblocks)
"""What meets our own frames and objects: none is to be made from there on."""


class Native(Concrete):
    """The concrete domain between segments: what capture must not look into is called natively,
    queries are answered as in capture. So is what `calls` says can not be gone on from."""

    calls: Callable[[types.FunctionType, tuple[Any, ...]], bool] | None = None
    goes_on_alone = False
    """Whether the program has made what tells it when an object dies: from there on, nothing may
    hold one longer than CPython does, as guards and constants of segments would. Or it has set how
    deep calls may be."""
    meets_ours = False
    """Whether it has called one of `_MEETING_OURS`: new code and frames would be met, too."""

    def __init__(self) -> None:
        super().__init__()
        self.recursion = RecursionLimit()

    def python_call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answered = answer(fn, self.machine)
        if answered is not None:
            return answered
        if fn.__module__ == "anyshape.api" and fn.__name__ == "is_compiling":
            return True
        if is_disabled(fn):
            return _answer(calls_of_the_program.call(self.machine.frame, fn, args, kwargs))
        if fn in MEMBERS:  # an iterator over a list, as in capture: nobody runs frames for it
            return iter([*fn(*args, **kwargs)])
        original = compiled_by_torch(fn)
        if original is not None:
            return Call(original, args, kwargs)
        if fn in AS_A_WHOLE or (self.calls is not None and self.calls(fn, args)):
            return _called(self.machine, fn, args, kwargs)
        if fn in modules.CALLS and args and issubclass(type(args[0]), torch.nn.Module):
            forward = modules.forward_alone(self.machine, args[0])
            return NotImplemented if forward is None else Call(forward, args, kwargs)
        return NotImplemented

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made = (
            getattr(fn, "__name__", "") == "__new__"
            and bool(args)
            and issubclass(type(args[0]), type)
        )
        if fn is weakref.proxy or (made and _tells_of_death(args[0])):
            self._note_death()
        if any(fn is watcher for watcher in _MEETING_OURS):
            if not self.meets_ours:
                make_ready(self.machine)
            self.goes_on_alone = self.meets_ours = True
            for frame in self.machine.frames():
                calls_of_the_program.prepare(frame.code)
        if fn is sys.setrecursionlimit and not kwargs:
            return self.recursion.set(self.machine, args)
        if fn is sys.getrecursionlimit and not (args or kwargs):
            return self.recursion.get()
        if fn is warnings.warn and warned.warn_of_a_caller(self.machine, args, kwargs):
            return None
        return calls_of_the_program.call(self.machine.frame, fn, args, kwargs)

    def _note_death(self) -> None:
        """torch's own weak references, in containers too, are to what outlives the call."""
        names = (str(frame.globals.get("__name__", "")) for frame in self.machine.frames())
        name = next((name for name in names if name not in _WEAK_CONTAINERS), "")
        self.goes_on_alone |= name.partition(".")[0] != "torch"

    def instantiate(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor is made whole: there is nothing to compile in how."""
        if _tells_of_death(cls):
            self._note_death()
        whole = issubclass(cls, torch.Tensor) and class_module(cls).partition(".")[0] == "torch"
        return cls(*args, **kwargs) if whole else NotImplemented

    def is_opaque(self, fn: Any) -> bool:
        return is_opaque(fn)


_WEAK_CONTAINERS = frozenset({"weakref", "_weakrefset"})


def _tells_of_death(cls: type) -> bool:
    return issubclass(cls, weakref.ReferenceType) or has_finalizer(cls)


def concrete_machine(codes: dict[Any, Any]) -> Machine:
    """A machine that runs real frames natively."""
    return python_machine(Native(), codes)


def resume(machine: Machine) -> Any:
    """Goes on natively to the program's end."""
    domain = machine.domain
    assert isinstance(domain, Native)
    domain.calls = _any_function
    return machine.resume()


def hand_over(machine: Machine) -> Any:
    """The same, where the program may have a loop of many turns: CPython goes on with the frames,
    unless the program would see that."""
    domain = machine.domain
    assert isinstance(domain, Native)
    if not (domain.meets_ours or sys.gettrace() or sys.getprofile()):
        handover.hand_over(machine)
    return resume(machine)


def goes_on_alone(machine: Machine) -> bool:
    """Whether no further segment may be entered: see `Native`."""
    domain = machine.domain
    assert isinstance(domain, Native)
    return domain.goes_on_alone


def let_go(machine: Machine) -> None:
    """The call ends. A machine is in a cycle: what frames hold would wait for the collector."""
    machine.frame = None
    domain = machine.domain
    assert isinstance(domain, Native)
    domain.recursion.settle()


def is_watched(machine: Machine) -> bool:
    """Whether the program holds a frame object of a frame that runs: a segment would put another
    frame in its place."""
    return any(frame.is_watched() for frame in machine.frames())


def _any_function(fn: types.FunctionType, args: tuple[Any, ...]) -> bool:
    return True


def step(machine: Machine) -> tuple[bool, Any, bool]:
    """Executes one instruction natively: whether the program has returned, its result, and
    whether an exception goes to a handler of the program; raises what no handler takes."""
    frame = machine.current()
    handler, arg = frame.instructions[frame.index]
    frame.index += 1
    try:
        handler(machine, frame, arg)
    except Finished as finished:
        machine.frame = None
        return True, finished.value, False
    except BaseException as error:
        raised = error
    else:
        return False, None, False
    left = unwinding.unwind(machine, raised) is None
    del raised  # its traceback holds this frame
    if left:
        unwinding.leave(machine)
    return False, None, True


def interrupted(machine: Machine, error: BaseException) -> Any:
    """Raises in the program, at its next instruction, what came while the segment from there on was
    captured or ran; goes on natively if the program handles it."""
    machine.current().index += 1
    left = unwinding.unwind(machine, error) is None
    del error
    if left:
        unwinding.leave(machine)
    return resume(machine)


@frozen
class Returned:
    """The program has returned."""

    value: Any


class Counting(Protocol):
    """What counts the instructions of a call."""

    instructions: int


def run_through(
    machine: Machine, ends_in: Callable[[Frame], Set[int]], call: Counting
) -> Literal["ended", "long"] | Returned:
    """Through a region natively, and the instruction at one of its ends; or as far as it seems
    worth a segment after all."""
    try:
        return "ended" if _ends(machine, ends_in, call) else "long"
    except Finished as finished:
        machine.frame = None
        return Returned(finished.value)


def _ends(machine: Machine, ends_in: Callable[[Frame], Set[int]], call: Counting) -> bool:
    tensors = 0
    frame = machine.current()
    ends = ends_in(frame)
    for _ in range(COSTS.interpreted_instructions):
        at = frame.index
        call.instructions += 1
        handler, arg = frame.instructions[at]
        frame.index = at + 1
        try:
            switched = handler(machine, frame, arg)
        except Finished:
            raise
        except BaseException as error:
            raised: BaseException | None = error
        else:
            raised = None
        if raised is not None:
            left = unwinding.unwind(machine, raised) is None
            raised = None  # its traceback holds this frame
            if left:
                unwinding.leave(machine)
            switched = machine.current()
        if at in ends:
            return True
        if switched is not None and switched is not frame:
            frame = switched
            ends = ends_in(frame)
        elif frame.stack and issubclass(type(frame.stack[-1]), torch.Tensor):
            tensors += 1
            if tensors > COSTS.interpreted_operators:
                break
    return False
