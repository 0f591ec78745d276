"""Classes that a segment makes, what lies in them, and what it has handed to a cache of C.

In: the heap at the end of a segment. Out: the objects that are handed on as they are, instead of
being made anew in each run: a class cannot be put together again by writing its attributes, and
what a cache holds is not another object. A segment that hands one on runs once. What holds a
symbolic value cannot be handed on.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.values import IMMUTABLE, PROXIES
from anyshape.capture.interpreter.attributes import instance_dict
from anyshape.capture.interpreter.generators import Generator

LOOKED_THROUGH = (
    *(types.CellType, types.FunctionType, types.MethodType, property, staticmethod, classmethod),
    *(tuple, type(vars(type)["__dict__"])),
)
"""What may hold objects of the trace without being registered itself."""


class MadeClasses:
    """`belonging`: the classes made in the trace, what caches of C were handed (`kept`), and the
    objects of the trace that they hold, by id;
    `unfit`: those of them that hold a symbolic value or a generator, or lie beside one."""

    def __init__(self, heap: Heap, kept: Iterable[Any] = ()) -> None:
        self.belonging: dict[int, Any] = {}
        self.unfit: set[int] = set()
        for value in list(heap.created.values()):
            if issubclass(type(value), type):
                self._add(heap, value)
        for value in kept:
            self._add(heap, value)
            self.belonging[id(value)] = value

    def _add(self, heap: Heap, made: Any) -> None:
        reachable = dict(_reachable(heap, made))
        if any(type(value) in PROXIES or type(value) is Generator for value in reachable.values()):
            self.unfit.update(reachable)
        self.belonging.update(
            (key, value) for key, value in reachable.items() if _is_made_here(heap, value)
        )


def belongs_to_this_run(heap: Heap, value: Any) -> bool:
    """Whether the trace has made it, and another run would make another one. A tuple is what lies
    in it: C makes one of the arguments in any case."""
    kind = type(value)
    if kind is frozenset:
        return any(belongs_to_this_run(heap, item) for item in value)
    alike = kind in IMMUTABLE or kind in (tuple, torch.Size) or issubclass(kind, type)
    return not alike and heap.is_created(value)


def _reachable(heap: Heap, made: Any) -> Iterator[tuple[int, Any]]:
    """It, and what can be reached from it through objects of the trace."""
    pending: list[Any] = [made]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value) in seen or (type(value) in IMMUTABLE and not issubclass(type(value), type)):
            continue
        seen.add(id(value))
        yield id(value), value
        if issubclass(type(value), type):
            pending += vars(value).values() if heap.is_created(value) else ()
        elif _is_made_here(heap, value) or issubclass(type(value), LOOKED_THROUGH):
            pending += gc.get_referents(value)
            pending += (instance_dict(value) or {}).values()


def _is_made_here(heap: Heap, value: Any) -> bool:
    """Whether the trace has made it, or has made its class, be it that C code, or what C code
    called, then made the object."""
    return heap.is_created(value) or heap.is_created(type(value))
