"""Which outside objects a specialization relies on being different ones.

In: the sources of what was read, and what was compared by identity or written. Out: one guard that
says that these are as many objects as at the first call. That two sources hold one object is
guarded where it is seen (`SymbolicDomain.see`); here is the other half.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch

from anyshape.capture.guards.constant_kinds import CONSTANTS, EQUAL, IDENTITY
from anyshape.capture.heap.sources import Source, Sources

CONTAINERS = (list, dict, set, frozenset, tuple, deque, bytearray)
METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
SHARED = (*IDENTITY, *EQUAL, *CONTAINERS, torch.Tensor, torch.nn.Module, *METHODS)
"""What may be one object or two unless the program asks: tensors and containers are compared by
what lies in them, methods are made by each read, the others are guarded by identity."""


def distinct_objects(
    sources: Sources, identified: Iterable[Source], written: frozenset[type]
) -> tuple[Source, ...]:
    """The sources whose objects must be different ones; none where no two could be one."""
    moving = [(obj, source) for obj, source in sources.read_objects() if not source.is_pinned]
    kinds = {_kind(obj) for obj, _ in moving if type(obj) in written or not is_shared(obj)}
    groups: dict[Any, dict[Source, None]] = {kind: {} for kind in kinds}
    for obj, source in sources.read_objects() if kinds else ():
        if (kind := _kind(obj)) in kinds:
            groups[kind][source] = None
    found = dict.fromkeys(identified)
    for group in groups.values():
        found.update(group if len(group) > 1 else {})
    ordered = sorted(found, key=lambda source: source.is_pinned)
    return tuple(ordered) if len(ordered) > 1 and not ordered[0].is_pinned else ()


def _kind(obj: Any) -> Any:
    """What two objects have in common that may be one: functions of other code are others."""
    return obj.__code__ if type(obj) is types.FunctionType else type(obj)


def is_shared(obj: Any) -> bool:
    """Whether nothing tells it from another of its kind unless the program asks."""
    if type(obj) is types.FunctionType:  # one that moves: no call makes the others anew
        return False
    return type(obj) in CONSTANTS or issubclass(type(obj), SHARED)
