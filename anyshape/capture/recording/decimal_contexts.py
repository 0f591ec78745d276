"""Contexts of C's `decimal` while recording.

In: contexts from outside that the program meets, and what computes in the thread's. Out: a copy
that stands for each. The thread computes in a copy for as long as capture lasts; at the segment's
end, contexts from outside get what their copies say then. Each call is guarded to begin with the
settings of the first, and with its flags where the program reads them. A segment does not end
inside `with localcontext()`: it ends in front.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap import decimals
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.decimals import Copied, Module
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.sources import Source
from anyshape.capture.recording.domain import RecordingDomain

Args = tuple[Any, ...]
Handler = Callable[[RecordingDomain, Args, dict[str, Any]], Any]


class ContextsAreEntered(BaseException):
    """The segment ends inside `with localcontext()`."""


def see(domain: RecordingDomain, source: Source, real: Any) -> Any:
    """What stands for a context from outside."""
    recorder, contexts, heap = domain.recorder, domain.decimals, domain.machine.heap
    for known in contexts.copies:
        if known.real is real:
            if known.source is not source:
                recorder.guard(source, "same", known.source)
            return known.copy
    settings = decimals.settings_of(real)
    recorder.guard(source, "computes", (settings, None))
    if contexts.copies:
        recorder.guard(source, "distinct", tuple(known.source for known in contexts.copies))
    copy = heap.create(decimals.context_of(type(real), settings, ()))
    copied = Copied(real, source, settings, copy)
    contexts.copies.append(copied)
    contexts.unread[id(copy)] = copied
    recorder.sources.remember_constant(copy, source)
    return copy


def enter(domain: RecordingDomain) -> None:
    """From now on the thread computes in the copy of its context."""
    contexts, sources, c = domain.decimals, domain.recorder.sources, sys.modules["_decimal"]
    if contexts.thread is None:
        real = c.getcontext()
        if not decimals.is_context(type(real)):
            raise broken("unknown-call", "computing in a decimal context of the program's class")
        asked = sources.const(c.getcontext, "decimal.getcontext")
        copy = see(domain, sources.child(asked, "call", ()), real)
        contexts.thread = next(known for known in contexts.copies if known.copy is copy)
        c.setcontext(copy)


def settle(domain: RecordingDomain) -> None:
    """At the segment's end: what is written to contexts from outside, and which one is the
    thread's."""
    contexts, heap = domain.decimals, domain.machine.heap
    if contexts.managers:
        raise ContextsAreEntered
    for known in contexts.copies:
        settings = decimals.settings_of(known.copy)
        flags = decimals.flags_of_context(known.copy)
        exactly = id(known.copy) not in contexts.unread
        other = None if settings == known.settings else settings
        if flags or exactly or other is not None:
            heap.log(decimals.put, known.copy, (other, flags, exactly))
    if contexts.thread is not None:
        c = sys.modules["_decimal"]
        if c.getcontext() is not contexts.thread.copy:
            heap.log(c.setcontext, c.getcontext(), ())
    contexts.end()


def read_flags(domain: RecordingDomain, context: Any) -> None:
    """The program looks at the flags of a context: those that it began with are relied on."""
    known = domain.decimals.unread.pop(id(context), None)
    if known is not None:
        flags = decimals.flags_of_context(known.real)
        domain.recorder.guard(known.source, "computes", (known.settings, flags))
        decimals.put(context, None, flags, exactly=False)


def reads_signals(domain: RecordingDomain, obj: Any, name: str, value: Any) -> None:
    """Flags and traps are read in C's memory, which its numbers write."""
    known, created = decimals.module(), domain.machine.heap.is_created
    if known is None or type(value) is not known.signals:
        return
    if type(obj) is known.context and created(obj):
        if name == "flags":
            read_flags(domain, obj)
        domain.created(value)
    elif not created(value):
        raise broken("unknown-call", "reading the signals of a decimal context")


def _refuse_signals(domain: RecordingDomain, source: Source, value: Any) -> Any:
    """Nobody knows of which context these are the flags or the traps."""
    raise broken("unknown-call", "reading the signals of a decimal context")


def stand_in(kind: type) -> Callable[[RecordingDomain, Source, Any], Any] | None:
    """What makes what the program sees of an object from outside, if it is none itself."""
    known = decimals.module()
    if known is None or kind not in (known.context, known.signals):
        return None
    return see if kind is known.context else _refuse_signals


def reads_contexts(domain: RecordingDomain, fn: Any, values: Args) -> None:
    """A call that is given contexts reads their flags, but for those that only write some."""
    if domain.decimals.unread and not (handler_of(fn) or decimals.is_of_context(fn)):
        for value in values:
            read_flags(domain, value)


def computed(
    domain: RecordingDomain, fn: Callable[..., Any], args: Args, kwargs: dict[str, Any]
) -> Any:
    """What C computes with decimal numbers, in the copy of the thread's context."""
    decimals.refuse_others(fn, args)
    enter(domain)
    if domain.machine.heap.journal is None and not domain.recorder.depth:
        return fn(*args, **kwargs)
    current = sys.modules["_decimal"].getcontext()  # no branch of a fork takes back what it writes
    before = decimals.flags_of_context(current)
    try:
        return fn(*args, **kwargs)
    finally:
        if decimals.flags_of_context(current) != before:
            decimals.put(current, None, before)
            raise broken("fork", f"{name_of(fn)}, which sets flags of a decimal context,")


# ---- what the program calls ----------------------------------------------------------------------
def _handler(known: Callable[[RecordingDomain, Any, Args, dict[str, Any]], Any]) -> Any:
    def of(fn: Any) -> Handler:
        def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
            heap = domain.machine.heap
            known_module = decimals.module()
            assert known_module is not None
            kinds = (known_module.context, known_module.signals, known_module.manager)
            of_c = [v for v in (*args, *kwargs.values()) if type(v) in kinds]
            if heap.journal is not None or not all(map(heap.is_created, of_c)):
                raise broken("unknown-call", name_of(fn))
            return known(domain, fn, args, kwargs)

        return handler

    return of


@_handler
def _reads(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    for arg in args:
        read_flags(domain, arg)
    return fn(*args, **kwargs)


@_handler
def _clears(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    result = fn(*args, **kwargs)
    domain.decimals.unread.pop(id(args[0]), None)
    return result


@_handler
def _copies(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    made, unread = domain.created(fn(*args, **kwargs)), domain.decimals.unread
    if id(args[0]) in unread:
        unread[id(made)] = unread[id(args[0])]
    return made


@_handler
def _gets(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    enter(domain)
    return domain.created(fn(*args, **kwargs))


@_handler
def _sets(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    """C sets a copy of what it has made as a template."""
    enter(domain)
    real = next((k.real for k in domain.decimals.copies if args and k.copy is args[0]), None)
    if any(real is getattr(sys.modules["_decimal"], name) for name in _TEMPLATES):
        settings = decimals.settings_of(args[0])  # as the segment has left them
        args = (domain.created(decimals.context_of(type(real), settings, ())),)
    return fn(*args, **kwargs)


@_handler
def _manages(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    contexts = domain.decimals
    if not contexts.enters:
        raise broken("unknown-call", "decimal.localcontext")
    enter(domain)
    made = domain.created(fn(*args, **kwargs))
    given = kwargs.get("ctx", args[0] if args else None)
    contexts.managers[id(made)] = contexts.unread.get(id(given or _current()))
    return made


@_handler
def _enters(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    contexts, made = domain.decimals, domain.created(fn(*args, **kwargs))
    known = contexts.managers.get(id(args[0]))
    if known is not None:
        contexts.unread[id(made)] = known
    return made


@_handler
def _leaves(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    result = fn(args[0], *(None for _ in args[1:]))
    domain.decimals.managers.pop(id(args[0]), None)
    return result


@_handler
def _of_signals(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def _current() -> Any:
    return sys.modules["_decimal"].getcontext()


_TEMPLATES = ("DefaultContext", "BasicContext", "ExtendedContext")
_ASKED_OF_SIGNALS = "__repr__ __eq__ __ne__ __iter__ __len__ __getitem__ __setitem__ copy"


def handler_of(fn: Any) -> Handler | None:
    """What does the work of a function of C that reads or writes contexts."""
    known = decimals.module()
    return None if known is None else _handlers(known).get(fn)


@functools.cache
def _handlers(known: Module) -> Mapping[Any, Handler]:
    c, kind, manager = known.c, known.context, known.manager
    methods = [getattr(known.signals, name) for name in _ASKED_OF_SIGNALS.split()]
    rows = (
        (_reads, (kind.__repr__, kind.__reduce__)),
        (_copies, (c.Context.copy, c.Context.__copy__)),
        (_clears, (c.Context.clear_flags,)),
        (_of_signals, (c.Context.clear_traps, *methods)),
        (_gets, (c.getcontext,)),
        (_sets, (c.setcontext,)),
        (_manages, (c.localcontext,)),
        (_enters, (vars(manager)["__enter__"],)),
        (_leaves, (vars(manager)["__exit__"],)),
    )
    return {fn: of(fn) for of, functions in rows for fn in functions}
