"""Weak references from outside, read behind a write that may end them.

    h.part = None    # is done at the end of the segment
    r()              # None in CPython, if nothing else holds the part

Such a read ends the segment in front of it, so that the write is done first. What a write takes
away is looked through for objects that are referred to weakly.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.effects import ENTRY, PLAIN_KEYS, Effect
from anyshape.capture.heap.quiet_classes import class_entry
from anyshape.capture.heap.unread_writes import BLIND
from anyshape.capture.heap.values import IMMUTABLE, PROXIES
from anyshape.capture.interpreter.attributes import instance_dict

WEAK = (
    *(weakref.ref, weakref.ProxyType, weakref.CallableProxyType),
    *(weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
)
LOOKED_AT = 2_000
"""Among so many objects that a write takes away; more are taken for some that are referred to."""
ADDING = frozenset(fn for fn, count in BLIND.items() if count == 1)
"""Writes that take nothing away."""
_NAMED: Mapping[Any, Callable[[Any], Any]] = {
    ENTRY: lambda target: target,
    **dict.fromkeys((object.__setattr__, object.__delattr__), instance_dict),
    **dict.fromkeys((type.__setattr__, type.__delattr__), vars),
}
"""Where a write finds what lies there under a name."""


class Ended:
    """The first ``harmless`` writes of a segment end nothing."""

    __slots__ = ("harmless",)

    def __init__(self) -> None:
        self.harmless = 0

    def refuse(self, obj: Any, effects: Sequence[Effect], keeps: bool) -> None:
        """A read of an object that is a weak reference, or holds some; a graph break where one of
        the writes so far may have ended it. ``keeps``: none of them is taken back."""
        if not issubclass(type(obj), WEAK):
            return
        since = self.harmless if keeps else 0
        if any(_ends_weak_references(effect) for effect in effects[since:]):
            raise broken("unknown-call", "reading a weak reference behind a write that may end it,")
        if keeps:
            self.harmless = len(effects)


def _ends_weak_references(effect: Effect) -> bool:
    """Whether the write takes something away that leads to what is referred to weakly."""
    found = [*_watched(_taken_away(effect))]
    seen = {id(value) for value in found}
    for value in found:  # which grows
        if weakref.getweakrefcount(value) or len(found) > LOOKED_AT:
            return True
        for part in _watched(gc.get_referents(value)):
            if id(part) not in seen:
                seen.add(id(part))
                found.append(part)
    return False


def _watched(values: Sequence[Any]) -> Iterator[Any]:
    """Without what lives on: classes, modules and their names; what stands for a tensor is ours."""
    for value in values:
        kind = type(value)
        lives_on = kind in IMMUTABLE or kind in PROXIES or issubclass(kind, (type, ModuleType))
        if not lives_on and not (kind is dict and "__builtins__" in value):
            yield value


def _taken_away(effect: Effect) -> Sequence[Any]:
    """What lies in the target as long as the write is not done, and no longer then; where that is
    not known, all that lies there."""
    target, kind = effect.target, type(effect.target)
    if effect.fn in ADDING or kind in PROXIES or issubclass(kind, torch.Tensor):
        return ()
    where = _NAMED.get(effect.fn)
    named: Any = None if where is None else where(target)
    if type(named) in (dict, MappingProxyType) and type(effect.args[0]) in PLAIN_KEYS:
        name = effect.args[0]
        if name in named:
            return (named[name],)
        if effect.fn is ENTRY or class_entry(kind, name) is None:
            return ()
    return gc.get_referents(target)
