"""Calls of `datetime` in C that would ask a `tzinfo` or a class of the program.

In: a function of C and its arguments, while recording. Out: the polyfill that is interpreted in its
place (`time_polyfills.py`), or nothing where C asks nobody.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap import times
from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.python import time_polyfills

MOMENT, CLOCK, DELTA = datetime.datetime, datetime.time, datetime.timedelta
ZONED = (MOMENT, CLOCK)
TIMES = (*ZONED, DELTA)
ADDING = (operator.add, operator.iadd)
SUBTRACTING = (operator.sub, operator.isub)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
FIELDS = ("tzinfo", "fold", "hour", "minute", "second", "microsecond")
DAY = ("year", "month", "day")
IN_C = {cls: {n: vars(cls)[n] for n in FIELDS} for cls in ZONED} | {
    datetime.date: {n: vars(datetime.date)[n] for n in DAY}
}


def is_asked(machine: Interpreter, value: Any) -> bool:
    """Whether C code would ask the program about the time, and the polyfills can instead: its
    fields are where C has them."""
    kind = type(value)
    if not machine.recording or not issubclass(kind, ZONED) or times.is_plain(value):
        return False
    if kind in ZONED:
        return True
    fields = {n: field for c in IN_C if issubclass(kind, c) for n, field in IN_C[c].items()}
    return all(machine.lookup(kind, name) is field for name, field in fields.items())


def operated(machine: Interpreter, function: Any, a: Any, b: Any) -> Call | None:
    """Any operator on such times."""
    if not issubclass(type(a), TIMES) or not issubclass(type(b), TIMES):
        return None
    if function in COMPARISONS:
        return _compared(machine, function, a, b)
    if function in ADDING:
        if issubclass(type(b), MOMENT) and issubclass(type(a), DELTA):
            a, b = b, a
        return _moved(machine, operator.add, a, b)
    if function not in SUBTRACTING:
        return None
    if issubclass(type(a), MOMENT) and issubclass(type(b), MOMENT):
        asked = is_asked(machine, a) or is_asked(machine, b)
        return Call(time_polyfills.difference, (a, b)) if asked else None
    return _moved(machine, operator.sub, a, b)


def _moved(machine: Interpreter, function: Any, moment: Any, delta: Any) -> Call | None:
    if not issubclass(type(moment), MOMENT) or not issubclass(type(delta), DELTA):
        return None
    if not is_asked(machine, moment):
        return None
    return Call(time_polyfills.moved, (function, moment, delta))


def shown(machine: Interpreter, function: Any, value: Any, spec: str = "") -> Call | None:
    """`str`, `repr` and `format` of such a time."""
    if spec or not is_asked(machine, value):
        return None
    if function is repr:
        return Call(time_polyfills.representation, (value,))
    method = "__str__" if function is str else "__format__"
    return Call(time_polyfills.text_of, (value,)) if _is_of_c(machine, value, method) else None


def _is_of_c(machine: Interpreter, value: Any, method: str) -> bool:
    base = next(base for base in ZONED if issubclass(type(value), base))
    return machine.lookup(type(value), method) is getattr(base, method)


def _compared(machine: Interpreter, function: Any, a: Any, b: Any) -> Call | None:
    for kind, polyfill in COMPARED.items():
        if issubclass(type(a), kind) and issubclass(type(b), kind):
            asked = is_asked(machine, a) or is_asked(machine, b)
            return Call(polyfill, (function, a, b)) if asked else None
    return None


COMPARED: Mapping[type, Callable[..., Any]] = {
    MOMENT: time_polyfills.compare_moments,
    CLOCK: time_polyfills.compare_times,
}


def _method(method: Any, polyfill: Callable[..., Any]) -> Callable[..., Any]:
    """With nothing but the time itself."""

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs and is_asked(machine, args[0]):
            return Call(polyfill, args)
        return machine.native(method, args, kwargs)

    return handler


def _isoformat(method: Any) -> Callable[..., Any]:
    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and is_asked(machine, args[0]):
            return Call(time_polyfills.isoformat, (args[0], args[1:], kwargs))
        return machine.native(method, args, kwargs)

    return handler


def _astimezone(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To a zone; without one, the time zone of the machine is asked."""
    named = dict(zip(("self", "tz"), args)) | kwargs
    zone = named.get("tz")
    fits = named.keys() == {"self", "tz"} and len(args) + len(kwargs) == 2
    if fits and machine.recording and issubclass(type(zone), datetime.tzinfo):
        moment = named["self"]
        own = times.ZONES[MOMENT](moment) if type(moment) is MOMENT else None
        asked = is_asked(machine, moment) or not times.is_plain_zone(zone)
        if own is not None and asked:
            return Call(time_polyfills.astimezone, (moment, zone))
    return machine.native(MOMENT.astimezone, args, kwargs)


def _fromutc(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 2 and not kwargs and machine.recording:
        if type(args[1]) is MOMENT or is_asked(machine, args[1]):
            return Call(time_polyfills.fromutc, args)
    return machine.native(datetime.tzinfo.fromutc, args, kwargs)


def _timestamp(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs and is_asked(machine, args[0]):
        if times.ZONES[MOMENT](args[0]) is not None:
            return Call(time_polyfills.timestamp, args)
    return machine.native(MOMENT.timestamp, args, kwargs)


HANDLERS: Mapping[Any, Callable[..., Any]] = {
    **{
        getattr(cls, name): _method(getattr(cls, name), getattr(time_polyfills, name))
        for cls in ZONED
        for name in ("utcoffset", "dst", "tzname")
    },
    **{
        getattr(MOMENT, name): _method(getattr(MOMENT, name), getattr(time_polyfills, name))
        for name in ("timetuple", "utctimetuple")
    },
    **{cls.isoformat: _isoformat(cls.isoformat) for cls in ZONED},
    **{cls.__str__: _method(cls.__str__, time_polyfills.text_of) for cls in ZONED},
    MOMENT.astimezone: _astimezone,
    MOMENT.timestamp: _timestamp,
    datetime.tzinfo.fromutc: _fromutc,
}
