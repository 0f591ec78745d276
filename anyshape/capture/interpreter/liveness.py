"""Which locals of a frame will still be read: the others are no part of a program point.

In: decoded code. Out: for each instruction the set of live fast slots, as bits. Cells and free
variables always live, and so does everything in code that may look at its own locals.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import islice
from types import FunctionType
from typing import Any

from anyshape.capture.heap import purity
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.quiet_classes import (
    class_module,
    flags_of,
    mro_of,
    namespace_of,
    weakref_offset,
)
from anyshape.capture.interpreter.control_flow import successors
from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.interpreter.generators import Generator

_READS = frozenset(
    {
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_AND_CLEAR",
        "DELETE_FAST",
        "LOAD_CLOSURE",
        "MAKE_CELL",
    }
)
_OBSERVERS = frozenset(
    {"locals", "vars", "eval", "exec", "dir", "super", "_getframe", "currentframe", "stack"}
)


def live_at(frame: Frame) -> int:
    """The slots of a frame that will still be read, as bits.

    The instruction in front of ``frame.index`` may be under way, as one that calls `__bool__` or
    `__next__`: where it goes on is not decided yet, and it may still raise into its handler.
    """
    code = frame.code
    slots = live_slots(code)
    live = slots[frame.index]
    if frame.index:
        for following in _following(code, frame.index - 1, len(code.instructions)):
            live |= slots[following]
    return live


def is_live(live: int, slot: int, value: Any) -> bool:
    """Whether a slot matters: it will be read, or the program sees when its value dies."""
    return bool(live >> slot & 1) or is_missed(value)


def is_missed(value: Any, depth: int = 3) -> bool:
    """Whether code of the program runs, or a weak reference ends, when nobody holds the value."""
    kind = type(value)
    if kind is Generator or kind in _HOLDERS:
        if kind is Generator and runs_when_closed(value):
            return True
        return depth > 0 and any(is_missed(part, depth - 1) for part in _contents_of(value))
    if not _is_of_the_program(type(value)):
        return False
    return is_finalized(value) or weakref.getweakrefcount(value) > 0


def may_be_watched(value: Any, unwatched: tuple[type, ...], depth: int = 3) -> bool:
    """Whether the program can see when nobody holds the value any more: a weak reference may be
    made to it, or to what goes with it. ``unwatched``: types that are not counted."""
    kind = type(value)
    if issubclass(kind, unwatched):
        return False
    if weakref_offset(kind) != 0 and kind is not Generator:
        return True
    return depth > 0 and any(may_be_watched(p, unwatched, depth - 1) for p in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    """What goes with a value to which no weak reference can be made."""
    kind = type(value)
    if kind is Generator or kind in _HOLDERS:
        return _contents_of(value)
    return islice(gc.get_referents(value) if flags_of(kind) & HEAP_TYPE else (), _LOOKED_AT)


def runs_when_closed(generator: Generator) -> bool:
    """Whether closing it may run handlers of its own, or of what it delegates to or holds, now or
    once it has been advanced further: by then it may hold anything."""
    return not (generator.finished or generator.frame.code.hidden)


def holds_finalized(value: Any, depth: int = 3) -> bool:
    """Whether the value, or a part of it a few levels down, has a `__del__` of the program's."""
    kind = type(value)
    if kind in _HOLDERS or kind is Generator:
        return depth > 0 and any(holds_finalized(part, depth - 1) for part in _contents_of(value))
    if not _is_of_the_program(kind):
        return False
    parts = islice(gc.get_referents(value), _LOOKED_AT)
    return has_finalizer(kind) or (
        depth > 0 and any(holds_finalized(part, depth - 1) for part in parts)
    )


_HOLDERS = frozenset({list, tuple, dict})
_LOOKED_AT = 100
"""So many parts of a container are looked at."""


def _contents_of(value: Any) -> Iterator[Any]:
    """What goes with a container, or with a suspended generator: what it delegates to, too."""
    if type(value) is Generator:
        return iter(() if value.finished else (*value.frame.locals, *value.frame.stack))
    return islice(value.values() if type(value) is dict else value, _LOOKED_AT)


def is_finalized(value: Any) -> bool:
    """Whether the class of the value has a `__del__` of the program's."""
    return has_finalizer(type(value))


def has_finalizer(kind: type) -> bool:
    """Whether a class has a `__del__` of the program's."""
    return _is_of_the_program(kind) and any(
        type(namespace_of(base).get("__del__")) is FunctionType for base in mro_of(kind)
    )


def _is_of_the_program(kind: type) -> bool:
    if not flags_of(kind) & HEAP_TYPE or issubclass(kind, type):
        return False
    return not purity.is_library(str(class_module(kind)))


def live_slots(code: Code) -> list[int]:
    """Bit `s` of entry `i` says that slot `s` may be read at or after instruction `i`; worked out
    once for each code."""
    if code.live is None:
        code.live = _worked_out(code)
    return code.live


def _worked_out(code: Code) -> list[int]:
    count = len(code.instructions)
    everything = (1 << code.local_count) - 1
    real = code.code
    if _OBSERVERS & (set(real.co_names) | set(real.co_freevars)):
        return [everything] * (count + 1)
    always = 0
    shared = set(real.co_cellvars) | set(real.co_freevars)
    for slot, name in enumerate(code.local_names):
        if name in shared:
            always |= 1 << slot
    live = [always] * (count + 1)
    following = [_following(code, i, count) for i in range(count)]
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            found = always
            for j in following[i]:
                found |= live[j]
            name, arg = code.opcodes[i]
            if name == "STORE_FAST":
                found &= ~(1 << arg) | always
            elif name in _READS:
                found |= 1 << arg
            if found != live[i]:
                live[i] = found
                changed = True
    return live


def _following(code: Code, index: int, count: int) -> list[int]:
    """The next instructions, those of an exception handler included."""
    found = [j for j in successors(code, index) if 0 <= j < count]
    row = code.handled_by[index]
    return [*found, row.target] if row is not None else found
