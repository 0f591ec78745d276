"""A machine that breaks after a number of instructions: each program is then a test of how state is
put together again after a break (the option `break_every`).
"""

from __future__ import annotations

from types import CodeType
from typing import NoReturn

from anyshape.capture.heap.breaks import broken
from anyshape.capture.interpreter.domain import Domain
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.machine import Language, Machine


class StressedMachine(Machine):
    """It breaks once, in front of the instruction that follows so many others."""

    __slots__ = ("left",)

    def __init__(
        self, domain: Domain, language: Language, codes: dict[CodeType, Code], count: int
    ) -> None:
        super().__init__(domain, language, codes)
        self.left = count

    def execute(self, frame: Frame) -> NoReturn:
        instructions = frame.instructions
        while True:
            handler, arg = instructions[frame.index]
            frame.index += 1
            self.left -= 1
            if self.left < 0 and instructions is frame.code.instructions:
                raise broken("stress")
            switched = handler(self, frame, arg)
            if switched is not None:
                frame = switched
                instructions = frame.instructions
