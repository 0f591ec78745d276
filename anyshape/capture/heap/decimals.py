"""Numbers of C's `decimal`: what computes with them asks the thread's context how, and writes to
its flags.

In: values, and calls that are given them. Out: whether one is such a number; the result of a call,
and which flags it sets.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE, IMMUTABLE_TYPE
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.nested_containers import values_of
from anyshape.capture.heap.quiet_classes import bare_name, class_module, flags_of, mro_of


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
    module = sys.modules.get("_decimal")
    is_of_c = type(fn) in (types.MethodDescriptorType, types.WrapperDescriptorType)
    if module is None or not is_of_c or not args:
        return False
    if is_of_context(fn):
        known = type(args[0]) is module.Context and not fn.__name__.startswith("_")
        return known and all(
            type(arg) is module.Decimal or type(arg) in _VALUES for arg in args[1:]
        )
    if fn.__objclass__ is not module.Decimal:
        return False
    return all(type(arg) is module.Decimal or type(arg) in _VALUES for arg in args)


def is_of_context(fn: Any) -> bool:
    """Whether it is a method of C's contexts, which writes to the flags of its own."""
    module = sys.modules.get("_decimal")
    return module is not None and getattr(fn, "__objclass__", None) is module.Context


_VALUES = frozenset({int, bool, str, float, type(None)})


def refuse_signals(value: Any) -> None:
    """The flags and the traps of a context are read in C's memory, which its numbers write."""
    if bare_name(type(value)) == "SignalDict":
        raise broken("unknown-call", "reading the signals of a decimal context")


def context_text() -> str:
    """How the thread computes with decimal numbers now; `flags` are not part of it."""
    context = sys.modules["_decimal"].getcontext()
    parts = (context.prec, context.rounding, context.Emin, context.Emax, context.capitals)
    trapped = sorted(signal.__name__ for signal, on in context.traps.items() if on)
    return " ".join(map(str, (*parts, context.clamp, *trapped)))


def called(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sets: Callable[[tuple[str, ...]], None],
) -> Any:
    """`fn(*args, **kwargs)`, which leaves the context as it is: `sets` is told the names of the
    signals whose flags it sets. A break where it raises beside that, or where it might set those
    of another context: another copy of the module has contexts of its own."""
    module = sys.modules["_decimal"]
    classes = {cls for v in (fn, *args) for cls in mro_of(type(v)) if _is_class(cls)}
    if any(cls is not module.Decimal for cls in classes):
        raise broken("unknown-call", name_of(fn))
    context = module.getcontext()
    before = [signal for signal, on in context.flags.items() if on]
    context.clear_flags()
    written: tuple[str, ...] = ()
    try:
        try:
            result = fn(*args, **kwargs)
        finally:
            written = tuple(signal.__name__ for signal, on in context.flags.items() if on)
            context.clear_flags()
            for signal in before:
                context.flags[signal] = True
    except Exception:
        if written:
            what = f"{name_of(fn)}, which sets flags of a decimal context,"
            raise broken("unknown-call", what) from None
        raise
    if written:
        sets(written)
    return result


def set_flags(*names: str) -> None:
    """Sets the flags of these signals in the thread's context, as a computation does that traps
    none of them."""
    module = sys.modules["_decimal"]
    flags = module.getcontext().flags
    for name in names:
        flags[getattr(module, name)] = True
