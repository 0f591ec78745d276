"""Numbers of C's `decimal`, and the contexts that say how to compute with them.

In: values, and calls that are given them. Out: whether one is such a number or context; what a
context says, and another one that says the same (`recording/decimal_contexts.py`).
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE, IMMUTABLE_TYPE
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.nested_containers import values_of
from anyshape.capture.heap.quiet_classes import bare_name, class_module, flags_of, mro_of
from anyshape.capture.heap.sources import Source
from anyshape.nouns import frozen, mutable


@frozen(eq=False)
class Module:
    """What C's module has: a program that computes with no such numbers has not loaded it."""

    c: Any
    context: type
    signals: type  # of what lies in the `flags` and `traps` of contexts
    manager: type  # of what `localcontext` gives
    names: tuple[type, ...]  # the signals themselves


def module() -> Module | None:
    """None where nobody has loaded it."""
    c = sys.modules.get("_decimal")
    return None if c is None else _module(c)


@functools.cache
def _module(c: Any) -> Module:
    flags = c.Context().flags
    return Module(c, c.Context, type(flags), type(c.localcontext()), tuple(flags))


def is_context(kind: type) -> bool:
    known = module()
    return known is not None and kind is known.context


def are_among(values: Iterable[Any]) -> bool:
    """Whether one of the values is a decimal number, its class, or a list or tuple of some."""
    return "_decimal" in sys.modules and any(map(_is_or_holds, values))


def _is_or_holds(value: Any) -> bool:
    if issubclass(type(value), (list, tuple)):
        return any(map(_is_decimal, values_of(value)))
    return _is_decimal(value)


def _is_decimal(value: Any) -> bool:
    return any(map(_is_class, mro_of(value if issubclass(type(value), type) else type(value))))


def _is_class(cls: type) -> bool:
    if bare_name(cls) != "Decimal" or class_module(cls) != "decimal":
        return False
    return flags_of(cls) & (HEAP_TYPE | IMMUTABLE_TYPE) != HEAP_TYPE  # `_pydecimal` has one, too


def is_number(cls: type) -> bool:
    """Whether its objects are made exactly by their texts: of C's own class and of no other."""
    return _is_class(cls)


def is_method(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether it is a method of C's numbers, or of a context that computes with such numbers, and
    is given these and plain values alone: it depends on them and on a context."""
    known, is_of_c = module(), type(fn) in (types.MethodDescriptorType, types.WrapperDescriptorType)
    if known is None or not is_of_c or not args:
        return False
    if is_of_context(fn):
        if type(args[0]) is not known.context or fn.__name__.startswith("_"):
            return False
        args = args[1:]
    elif fn.__objclass__ is not known.c.Decimal:
        return False
    return all(type(arg) is known.c.Decimal or type(arg) in _VALUES for arg in args)


def is_of_context(fn: Any) -> bool:
    """Whether it is a method of C's contexts, which writes to the flags of its own."""
    known = module()
    return known is not None and getattr(fn, "__objclass__", None) is known.context


_VALUES = frozenset({int, bool, str, float, type(None)})


def refuse_others(fn: Any, args: tuple[Any, ...]) -> None:
    """A break at numbers of another copy of the module, which has contexts of its own."""
    classes = {cls for v in (fn, *args) for cls in mro_of(type(v)) if _is_class(cls)}
    if any(cls is not sys.modules["_decimal"].Decimal for cls in classes):
        raise broken("unknown-call", name_of(fn))


# ---- contexts ------------------------------------------------------------------------------------
Settings = tuple[int, str, int, int, int, int, tuple[str, ...]]


def settings_of(context: Any) -> Settings:
    """How a context says to compute; its flags are not part of it."""
    numbers = (context.prec, context.rounding, context.Emin, context.Emax, context.capitals)
    return (*numbers, context.clamp, _set_in(context.traps))


def flags_of_context(context: Any) -> tuple[str, ...]:
    """The names of the signals whose flags are set."""
    return _set_in(context.flags)


def _set_in(signals: Any) -> tuple[str, ...]:
    return tuple(signal.__name__ for signal in signals if signals[signal])


def computes(context: Any, expected: tuple[Settings, tuple[str, ...] | None]) -> bool:
    """Whether it is a context with these settings, and these flags if any are told."""
    settings, flags = expected
    return (
        is_context(type(context))
        and settings_of(context) == settings
        and (flags is None or flags_of_context(context) == flags)
    )


def put(
    context: Any, settings: Settings | None, flags: tuple[str, ...], exactly: bool = True
) -> None:
    """Writes settings and flags; other flags stay as they are but where `exactly` these are set."""
    if settings is not None:
        names = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
        for name, value in zip(names, settings[:-1], strict=True):
            setattr(context, name, value)
        _put_signals(context.traps, settings[-1], exactly=True)
    _put_signals(context.flags, flags, exactly)


def _put_signals(signals: Any, names: tuple[str, ...], exactly: bool) -> None:
    for signal in signals:
        if exactly or signal.__name__ in names:
            signals[signal] = signal.__name__ in names


def context_of(kind: Any, settings: Settings, flags: tuple[str, ...]) -> Any:
    """A context that says this."""
    made = kind()
    put(made, settings, flags)
    return made


@frozen(eq=False)
class Copied:
    """A context from outside, where it lies, how it says to compute when capture begins, and the
    copy that stands for it."""

    real: Any
    source: Source
    settings: Settings
    copy: Any


@mutable(eq=False)
class Contexts:
    """What one capture has met. `unread`, by `id`: contexts in whose flags those are missing that
    one from outside began with; `managers`: the results of `localcontext` that have not been left,
    with what lies in `unread` of the contexts that they have copied."""

    copies: list[Copied] = field(default_factory=list)
    thread: Copied | None = None
    unread: dict[int, Copied] = field(default_factory=dict)
    managers: dict[int, Copied | None] = field(default_factory=dict)
    enters: bool = True

    def end(self) -> None:
        """The thread computes in its own context again."""
        if self.thread is not None:
            sys.modules["_decimal"].setcontext(self.thread.real)
            self.thread = None
