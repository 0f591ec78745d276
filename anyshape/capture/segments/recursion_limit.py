"""How deep the program may call: it counts its own frames, and ours lie between them.

In: calls of `sys.setrecursionlimit` and `sys.getrecursionlimit` between segments. Out: the limit as
the program set it, with room for our frames on top; once the call ends it is as the program set it.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from anyshape.capture.interpreter.domain import Interpreter
from anyshape.nouns import mutable

OURS = str(Path(__file__).parents[2])
ON_TOP = 20
"""For those of ours that are entered further in, between the program and what it calls."""


@mutable
class RecursionLimit:
    """`asked` is what the program has set in this call, `given` what stands for it; 0: nothing."""

    asked: int = 0
    given: int = 0

    def set(self, machine: Interpreter, args: tuple[Any, ...]) -> None:
        """`sys.setrecursionlimit(*args)`."""
        if len(args) == 1 and type(args[0]) is int and 0 < args[0] < 1 << 30:
            given = args[0] + _frames_of_ours(machine) + ON_TOP
            sys.setrecursionlimit(given)
            self.asked, self.given = args[0], given
        else:
            sys.setrecursionlimit(*args)

    def get(self) -> int:
        """`sys.getrecursionlimit()`."""
        real = sys.getrecursionlimit()
        return self.asked if self.given == real else real

    def settle(self) -> None:
        """The call ends: from here on no frame of ours counts."""
        if self.given and self.given == sys.getrecursionlimit():
            sys.setrecursionlimit(self.asked)


def _frames_of_ours(machine: Interpreter) -> int:
    """How many more frames there are than the program has, as far up as we called."""
    frame, count = inspect.currentframe(), 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(OURS)
        frame = frame.f_back
    return max(count - sum(1 for _ in machine.frames()), 0)
