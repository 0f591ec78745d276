"""Are torch's modes still those that a specialization relies on? Asked in each call.

In: what `execution_modes.snapshot()` gave. Out: a function that says whether it would give that
again. There are eighteen of them, and to ask for each through Python is a quarter of what a call
of a short program executes. So one C function asks the same functions of torch from some call on;
a process that calls a few times does not load its library.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from anyshape.capture.guards.execution_modes import NOTHING, Read, reads_of
from anyshape.dispatch.native_guards import are_being_built, are_built, compared
from anyshape.errors import AnyshapeError
from anyshape.nouns import mutable
from anyshape.options import Options
from anyshape.runtime.launch import Address

ASKED_BY_PYTHON = 8
"""So often first, and between two looks at whether the C function has been built."""


@mutable(eq=False)
class ModeTest:
    """The test of one specialization's modes; `entry` is the function whose global `modes_hold`
    and `mode_reads` are: it asks C from some call on."""

    modes: tuple[Any, ...]
    snapshot: Callable[[], tuple[Any, ...]]
    options: Options
    entry: weakref.ref[Any] | None = None
    asked: int = 0

    def hold(self, reads: object) -> bool:
        """By Python."""
        self.asked += 1
        if self.asked % ASKED_BY_PYTHON == 0:
            self._by_c()
        return self.snapshot() == self.modes

    def _by_c(self) -> None:
        if are_being_built(self.options):
            return
        entry = None if self.entry is None else self.entry()
        reads = reads_of(self.modes)
        if not isinstance(entry, FunctionType) or reads is None:
            return
        try:
            function = compared(self.options)["anyshape_gives"] if are_built(self.options) else None
        except AnyshapeError:
            return  # no C compiler: what runs was built before
        if function is not None:
            # Another thread may be between the two: `hold` does not look at what it is handed.
            entry.__globals__["mode_reads"] = addresses_of(reads)
            entry.__globals__["modes_hold"] = function


def addresses_of(reads: Sequence[Read]) -> Address:
    """The triples that the C function walks; what they point to lives as long as the number."""
    words = [0 if part is NOTHING else id(part) for read in reads for part in read]
    owner = (ctypes.c_void_p * (len(words) + 1))(*words)
    made = Address.of(owner)
    owner.parts = tuple(reads)  # type: ignore[attr-defined]
    return made
