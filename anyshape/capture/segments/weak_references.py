"""Weak references that the program makes while recording, to what the trace has made.

In: calls of what makes and follows them. Out: the real reference, which ends when the heap lets go
of the object (`heap/deaths.py`); where capture does not watch for that yet, it begins again and
does. At a graph break, and where a reference leaves the function, capture ends in front of the
reference as it does at one to what an earlier segment has made.
"""

from __future__ import annotations

import gc
import operator
import weakref
from collections.abc import Mapping
from types import MethodType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.deaths import (
    PROXY_KINDS,
    REFERENCES,
    DeathsAreMet,
    DeathsAreUnknown,
    are_referenced,
    target_of,
)
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.values import NULL, Call
from anyshape.capture.recording.domain import RecordingDomain

Args = tuple[Any, ...]
WRAPPER: Any = type(object.__init__)
NEW = weakref.ref.__new__
REMOVE = vars(weakref)["_remove_dead_weakref"]
KEYS = frozenset({int, float, bool, str, bytes, type(None)})
COUNTING = (weakref.getweakrefcount, weakref.getweakrefs)


def call(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    """What a call gives that makes or asks weak references to objects of the trace;
    NotImplemented where it does not."""
    if type(fn) in PROXY_KINDS:
        return Call(target_of(fn), args, kwargs) if _is_ours(domain, fn) else NotImplemented
    if type(fn) is WRAPPER and fn.__objclass__ in PROXY_KINDS and not kwargs:
        return _through(domain, fn, args)
    at = _target_at(fn)
    if at is not None:
        target = args[at] if len(args) > at else NULL
        if target is NULL or not _dies_with_the_call(domain, target):
            return NotImplemented
        return _made(domain, fn, args, at, kwargs)
    if issubclass(type(fn), weakref.ref) and not args and not kwargs:
        return _followed(domain, fn)
    if fn is weakref.ref.__call__ and len(args) == 1 and _is_ours(domain, args[0]):
        return fn(*args)
    if fn is REMOVE and len(args) == 2 and _is_ours(domain, args[0]) and type(args[1]) in KEYS:
        domain.machine.heap.will_write(args[0])
        return fn(*args)
    if fn is weakref.ref.__init__ and args and _is_ours(domain, args[0]):
        return None  # C does nothing
    if any(fn is each for each in COUNTING) and len(args) == 1:
        return fn(*args) if _is_ours(domain, *args) or type(args[0]) in KEYS else NotImplemented
    return NotImplemented


def _target_at(fn: Any) -> int | None:
    """Which argument is referred to weakly, if one is."""
    if fn is weakref.proxy or (issubclass(type(fn), type) and issubclass(fn, REFERENCES)):
        return 0
    return 1 if type(fn) is type(NEW) and fn == NEW else None


def _is_ours(domain: RecordingDomain, *values: Any) -> bool:
    return all(map(domain.machine.heap.is_created, values))


def _dies_with_the_call(domain: RecordingDomain, value: Any) -> bool:
    if type(value) is MethodType and domain.recorder.sources.of(value) is None:
        domain.machine.heap.create(value)
    return _is_handed_on(domain, value) or domain.machine.heap.is_created(value)


def _is_handed_on(domain: RecordingDomain, value: Any) -> bool:
    source = domain.recorder.sources.of(value)
    return source is not None and source.kind == "slot" and domain.recorder.resumed


def _made(domain: RecordingDomain, fn: Any, args: Args, at: int, kwargs: dict[str, Any]) -> Any:
    deaths, heap = domain.deaths, domain.machine.heap
    target = args[at]
    if (kwargs and at == 0) or deaths.watch == "refused" or _is_handed_on(domain, target):
        raise broken("unknown-call", f"weakref.{getattr(fn, '__name__', name_of(fn))}")
    if deaths.watch == "unmet" or heap.journal is not None:
        raise deaths.doubt(DeathsAreMet if deaths.watch == "unmet" else DeathsAreUnknown)

    def make(target: Any, *rest: Any) -> Any:
        return fn(*args[:at], target, *rest, **kwargs)

    return heap.create(deaths.refer(make, target, args[at + 1 :]))


def _followed(domain: RecordingDomain, reference: Any) -> Any:
    """What a reference leads to: that of one from outside is relied on."""
    if domain.deaths.made and _is_ours(domain, reference):
        return weakref.ref.__call__(reference)
    if type(reference) is not weakref.ref:
        return NotImplemented
    return domain.read(reference, "target", None, reference())


def settle(domain: RecordingDomain, returns: bool) -> None:
    """At the segment's end: nothing that is referred to weakly, and no reference, may leave the
    function, or be alive for another reason than the program's."""
    deaths, machine = domain.deaths, domain.machine
    machine.class_changed()
    domain.plain.clear()
    deaths.ended()
    left = deaths.watched(classes=False)
    if not returns or deaths.pending or are_referenced(left, (machine.heap.created,)):
        raise DeathsAreUnknown


# ---- proxies -------------------------------------------------------------------------------------
_BINARY = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "lshift", "rshift"),
    *("and", "or", "xor"),
)
_OPERATORS: Mapping[str, Any] = {
    **{f"__{name}__": getattr(operator, f"__{name}__") for name in _BINARY},
    **{f"__i{name}__": getattr(operator, f"__i{name}__") for name in (*_BINARY, "pow")},
    **{f"__{name}__": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"__{name}__": getattr(operator, name) for name in ("neg", "pos", "invert", "getitem")},
    **{"__divmod__": divmod, "__pow__": pow, "__abs__": abs, "__int__": int, "__float__": float},
    **{"__index__": operator.index, "__len__": len, "__bool__": bool, "__str__": str},
    **{"__iter__": iter, "__next__": next, "__bytes__": bytes, "__reversed__": reversed},
    **{"__contains__": operator.contains, "__setitem__": operator.setitem},
    "__delitem__": operator.delitem,
}
"""What a special method of C's proxies does with what they lead to."""
_SWAPPED: Mapping[str, Any] = {
    f"__r{name[2:-2]}__": _OPERATORS[name]
    for name in (*(f"__{name}__" for name in _BINARY), "__divmod__", "__pow__")
}
_FIRST_ONLY = frozenset({"__contains__", "__setitem__", "__delitem__"})
"""Those that take their other arguments as they are."""


def _through(domain: RecordingDomain, fn: Any, args: Args) -> Any:
    """A call of a special method of a proxy that the trace has made."""
    name = fn.__name__
    swapped = name in _SWAPPED
    operation = _SWAPPED[name] if swapped else _OPERATORS.get(name)
    if operation is None or not args or not _is_ours(domain, args[0]):
        return NotImplemented
    rest = args[1:] if name in _FIRST_ONLY else tuple([_led_to(domain, arg) for arg in args[1:]])
    values = (target_of(args[0]), *rest)
    return Call(operation, values[::-1] if swapped else values)


def _led_to(domain: RecordingDomain, value: Any) -> Any:
    return target_of(value) if type(value) in PROXY_KINDS and _is_ours(domain, value) else value


# ---- the collector -------------------------------------------------------------------------------
def collect(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    """`gc.collect()` whose count nobody looks at: done at the end of the segment, as nothing that
    the program refers to weakly is in it."""
    deaths, machine = domain.deaths, domain.machine
    frame = machine.current()
    unread = frame.code.opcodes[frame.index][0] == "POP_TOP"
    plain = not kwargs and all(type(arg) is int for arg in args)
    if not unread or not plain or gc.callbacks or machine.heap.journal is not None:
        raise broken("unknown-call", "gc.collect")
    machine.class_changed()
    domain.plain.clear()
    watched = deaths.watched(classes=True)
    if any(issubclass(type(value), type) for value in watched):  # tables of capture hold classes
        raise deaths.doubt()
    if len(watched) > LOOKED_AT or not all(are_referenced([v], (deaths.created,)) for v in watched):
        raise deaths.doubt()
    domain.collects = True
    domain.defer(gc.collect, args, kwargs)


LOOKED_AT = 20
"""So many objects are looked for among what the collector would end."""
