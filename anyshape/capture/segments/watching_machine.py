"""A machine that looks after each instruction whether what the program refers to weakly has died,
and calls what the program wants called then (`heap/deaths.py`).
"""

from __future__ import annotations

import operator
import sys
from types import CodeType, FunctionType, MethodType
from typing import Any, NoReturn

from anyshape.capture.heap.values import NULL, Break
from anyshape.capture.interpreter.class_polyfills import call_in_order
from anyshape.capture.interpreter.continuations import DISCARD, Continuation
from anyshape.capture.interpreter.domain import Mark
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.machine import Language, Machine
from anyshape.capture.interpreter.opcode_results import also, enter
from anyshape.capture.interpreter.opcodes import OPCODE_HANDLERS
from anyshape.capture.recording.domain import RecordingDomain

CALL, CALL_WITH_TUPLE = OPCODE_HANDLERS["CALL"], OPCODE_HANDLERS["CALL_FUNCTION_EX"]
HOLDS_TUPLE = sys.version_info < (3, 12)
"""Whether `f(*args)` holds the arguments until a function in Python has returned."""
RETURNS = tuple(
    OPCODE_HANDLERS[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in OPCODE_HANDLERS
)


class WatchingMachine(Machine):
    """See the module. `handling` are frames, by `id`, to which an exception has come: a traceback
    that the program keeps holds what their locals hold. `operands` are those of the instructions
    that have called others, by the `id` of their frame: CPython drops them when these return, but
    for arguments of functions in Python, which a call hands over."""

    __slots__ = ("deaths", "handling", "operands", "plain")

    def __init__(
        self, domain: RecordingDomain, language: Language, codes: dict[CodeType, Code]
    ) -> None:
        super().__init__(domain, language, codes)
        self.deaths = deaths = domain.deaths
        self.plain = domain.plain
        self.heap.adopts = self._adopt
        self.handling: set[int] = set()
        self.operands: dict[int, Any] = {}
        self.exact_deaths = True
        deaths.created, deaths.closes = self.heap.created, _closes

    def _adopt(self, value: Any, seen: Any) -> bool:
        """Whether a tuple is of the machine's own making, which a mirror would hold."""
        made = type(value) is tuple and not self.domain.is_outside(value)
        if made and all(map(operator.is_, value, seen)):
            self.heap.create(value)
            return True
        return False

    def execute(self, frame: Frame) -> NoReturn:
        instructions = frame.instructions
        deaths = self.deaths
        self.handling.add(id(frame))
        self._drop_operands(frame)
        while True:
            handler, arg = instructions[frame.index]
            frame.index += 1
            operands = self._operands(frame, handler)
            switched = handler(self, frame, arg)
            if switched is not None:
                if operands and _lies_below(frame, switched):
                    if handler is CALL_WITH_TUPLE:
                        operands += switched.locals
                    self.operands[id(frame)] = operands
                else:
                    self.operands.pop(id(switched), None)
                shown = self._is_shown(frame) if handler in RETURNS and deaths.made else False
                frame = switched
                instructions = frame.instructions
                if shown:  # what its locals hold lives on
                    raise deaths.doubt()
            operands = None
            if deaths.made:
                self.plain.clear()  # it holds functions, to save time
                if deaths.ended() and deaths.pending:
                    frame = self._tell(frame)
                    instructions = frame.instructions

    def _drop_operands(self, frame: Frame) -> None:
        """Of the frame that goes on, and of those that have ended."""
        waiting = {id(each) for each in self.frames()} - {id(frame)}
        for key in self.operands.keys() - waiting:
            del self.operands[key]

    def _operands(self, frame: Frame, handler: Any) -> list[Any] | None:
        """What C holds while the instruction calls a function; code that replaces C's holds its
        own."""
        if handler is CALL_WITH_TUPLE and not HOLDS_TUPLE:
            return None
        if handler is CALL and not frame.code.hidden:
            _, arg = frame.instructions[frame.index - 1]
            fn, receiver = frame.stack[-arg[0] - 2 :][:2]
            called = receiver if fn is NULL else fn
            if type(called) is MethodType:
                called = called.__func__
            if type(called) is FunctionType:
                return None
        return [*frame.stack]

    def _is_shown(self, frame: Frame) -> bool:
        """Whether a traceback of an exception that lives shows a frame that returns."""
        if id(frame) not in self.handling:
            return False
        self.handling.discard(id(frame))
        shared = [*frame.code.shared_frames.values()]
        return any(sys.getrefcount(each) > SHARED for each in shared)

    def _tell(self, frame: Frame) -> Frame:
        """Calls the functions of the program, in C's order; what one raises C only prints."""
        create, pending = self.heap.create, self.deaths.pending
        calls = create(tuple([create((callback, reference)) for callback, reference in pending]))
        pending.clear()
        callee: Any = self.call(call_in_order, (calls,))
        return enter(self, frame, also(callee, UNRAISABLE))

    def checkpoint(self) -> Mark:
        if self.deaths.made:
            raise self.deaths.doubt()
        return super().checkpoint()


def _lies_below(frame: Frame, callee: Frame) -> bool:
    """Whether the callee, or one that it comes back to at once, comes back to the frame."""
    below: Frame | None = callee
    for _ in range(FRAMES_OF_A_CALL):
        below = None if below is None else below.back
        if below is frame:
            return True
    return False


FRAMES_OF_A_CALL = 8
"""An instruction enters no more frames at once."""


def _closes(generator: Any) -> bool:
    if type(generator) is not Generator or generator.running or generator.is_left_open:
        return False
    generator.let_go()
    return True


SHARED = 4
"""How often such a frame is held where no traceback shows it: by its code, a list, and whoever
asks."""


class Unraisable(Continuation):
    """The result is of no interest, and what is raised would not come to the program."""

    __slots__ = ()

    def returned(self, machine: Any, frame: Frame, value: Any) -> Frame:
        return DISCARD.returned(machine, frame, value)

    def raised(self, machine: Any, frame: Frame, error: BaseException) -> Frame | None:
        doubt: Break = machine.deaths.doubt()
        raise doubt


UNRAISABLE = Unraisable()
