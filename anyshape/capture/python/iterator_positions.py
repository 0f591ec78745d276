"""Where iterators of C over sequences are set to stand, and how many items those over containers
have left.

In: calls of their `__setstate__` and `__length_hint__` while recording. Out: an iterator of the
trace that is set there: C reads nothing of the sequence; a number, of a container whose length is
relied on since the iterator was made.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any

from anyshape.capture.heap.iterators import SETTABLE
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.generators import Generator

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


def _hint(method: Any) -> Handler:
    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = len(args) == 1 and not kwargs and type(args[0]) in COUNTING
        if not known or not machine.recording or machine.domain.is_outside(args[0]):
            return machine.native(method, args, kwargs)
        return method(*args)

    return handler


_EMPTY: tuple[Any, ...] = ("", "\u1234", (), [], b"", bytearray(), range(0), range(1 << 80))
_KEPT: tuple[Any, ...] = ([], (), set(), {}, {}.values(), deque())
_BOTH_WAYS: tuple[Any, ...] = ([], {}, {}.values(), {}.items(), deque())
COUNTING = (
    *[type(iter(items)) for items in (*_EMPTY, *_KEPT, {}.items())],
    *[type(reversed(items)) for items in _BOTH_WAYS],
    itertools.repeat,
)
"""Iterators that count what is left without asking anybody."""
_KEEPING = frozenset(
    {frozenset, type({}.keys()), *map(type, _KEPT), *[type(iter(items)) for items in _KEPT]}
)


def gives_no_loose_tuple(iterables: tuple[Any, ...]) -> bool:
    """Whether what it gives is no tuple that C code gives again and again, if nobody refers to
    it."""
    if len(iterables) != 1:
        return False
    kind = type(iterables[0])
    return kind in _KEEPING or (kind is Generator and iterables[0].python_type is GeneratorType)


KINDS = (*SETTABLE, type(iter(range(0))), type(iter(range(1 << 80))))
HANDLERS: Mapping[Any, Handler] = {
    **{vars(kind)["__setstate__"]: _set_position(vars(kind)["__setstate__"]) for kind in KINDS},
    **{vars(kind)["__length_hint__"]: _hint(vars(kind)["__length_hint__"]) for kind in COUNTING},
}
