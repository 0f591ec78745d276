"""Where iterators of C over sequences are set to stand.

In: calls of their `__setstate__` while recording. Out: an iterator of the trace that is set there:
C reads nothing of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.iterators import SETTABLE
from anyshape.capture.interpreter.domain import Interpreter

Handler = Callable[[Interpreter, tuple[Any, ...], dict[str, Any]], Any]


def _set_position(method: Any) -> Handler:
    """`__setstate__` of an iterator of C over a sequence, which reads nothing of that."""

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = len(args) == 2 and type(args[0]) in KINDS and type(args[1]) is int
        heap, outside = machine.heap, machine.domain.is_outside
        if not known or not machine.recording or outside(args[0]) or heap.journal is not None:
            return machine.native(method, args, kwargs)
        return method(*args)

    return handler


KINDS = (*SETTABLE, type(iter(range(0))), type(iter(range(1 << 80))))
HANDLERS: Mapping[Any, Handler] = {
    vars(kind)["__setstate__"]: _set_position(vars(kind)["__setstate__"]) for kind in KINDS
}
