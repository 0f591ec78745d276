"""Which outside objects a specialization relies on being different ones.

In: the places of what was read, and what was compared by identity or written. Out: one guard that
says that these are as many objects as at the first call. That two places hold one object is
guarded where it is seen (`SymbolicDomain.see`); here is the other half.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from anyshape.capture.reads import CONSTANTS, EQUAL, IDENTITY
from anyshape.capture.sources import Source, Sources

CONTAINERS = (list, dict, set, frozenset, tuple, deque, bytearray)
SHARED = (*IDENTITY, *EQUAL, *CONTAINERS, torch.Tensor, torch.nn.Module, types.MethodType)
"""What may be one object or two unless the program asks: tensors and containers are compared by
what lies in them, the others are guarded by identity."""


def told_apart(
    sources: Sources, identified: Iterable[Source], written: frozenset[type]
) -> tuple[Source, ...]:
    """The places whose objects must be different ones; none where no two could be one."""
    kinds: dict[type, dict[Source, None]] = {}
    for obj, source in _candidates(sources, written):
        kinds.setdefault(type(obj), {})[source] = None
    found: dict[Source, None] = dict.fromkeys(identified)
    for group in kinds.values():
        if len(group) > 1 and any(not source.is_pinned for source in group):
            found.update(group)
    moving = [source for source in found if not source.is_pinned]
    fixed = [source for source in found if source.is_pinned]
    return (*moving, *fixed) if moving and len(found) > 1 else ()


def _candidates(sources: Sources, written: frozenset[type]) -> Iterator[tuple[Any, Source]]:
    for obj, source in sources.placed():
        kind = type(obj)
        if kind in written or not (kind in CONSTANTS or isinstance(obj, SHARED)):
            yield obj, source
