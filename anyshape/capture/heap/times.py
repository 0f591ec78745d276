"""`datetime`: which of its functions in C depend on their arguments alone.

In: a function of C. Out: yes or no. Others ask the clock, the time zone or the locale. Times of a
`tzinfo` that the program has written are for `c_callbacks.py`.
"""

from __future__ import annotations

import datetime
import operator
import types
from typing import Any

from anyshape.capture.heap.quiet_reads import quiet_getattr

CLASSES = (
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
)
KINDS = (*(datetime.date, datetime.time, datetime.timedelta), datetime.timezone)
"""Those that all others are subclasses of."""
_DAY, _CLOCK = ("year", "month", "day"), ("hour", "minute", "second", "microsecond")
IN_WEEKS: type = type(datetime.date.min.isocalendar())
"""A year, a week and a day of it: a tuple that the class makes of its parts."""
FIELDS: dict[type, tuple[str, ...]] = {
    datetime.date: _DAY,
    datetime.datetime: (*_DAY, *_CLOCK, "tzinfo"),
    datetime.time: (*_CLOCK, "tzinfo"),
    datetime.timedelta: ("days", "seconds", "microseconds"),
}
"""What C keeps in each, in the order in which it is made of them."""
ELSEWHERE = frozenset(
    "now utcnow today fromtimestamp timestamp astimezone strftime strptime __format__".split()
)
"""Methods that ask what is no argument."""
MAKERS = frozenset("fromordinal fromisoformat fromisocalendar combine".split())


def is_pure(fn: Any, args: tuple[Any, ...]) -> bool:
    """Of a method of C, called with its object, or of a constructor that a class has."""
    if is_quiet(fn, args):
        return True
    owner = quiet_getattr(fn, "__objclass__")
    if owner is not None:
        of_a_time = owner in CLASSES and fn.__name__ not in ELSEWHERE
        return of_a_time and bool(args) and is_plain(args[0])
    bound = quiet_getattr(fn, "__self__")
    return any(bound is cls for cls in CLASSES) and fn.__name__ in MAKERS


QUIET = frozenset("weekday isoweekday toordinal ctime date time timetz".split())
"""Methods that ask nobody, whatever class and zone a time is of."""
CARRYING = frozenset("replace __reduce__ __reduce_ex__".split())
"""Those that hand the zone on, of a class of C."""
MOVING = (operator.add, operator.sub, operator.iadd, operator.isub)


def is_quiet(fn: Any, args: tuple[Any, ...]) -> bool:
    """Whether the function asks no zone and no class of the program, whatever it is given."""
    if type(fn) is type:
        zoned = fn is datetime.datetime or fn is datetime.time
        return zoned and bool(args) and all(_is_field(arg) for arg in args)
    if type(fn) is types.BuiltinFunctionType:
        moves = any(fn is function for function in MOVING) and len(args) == 2
        if fn.__name__ == "combine" and fn.__self__ is datetime.datetime:
            return 2 <= len(args) <= 3 and _are_parts(*args)
        if fn.__name__ == "__new__" and any(fn.__self__ is cls for cls in ZONES):
            return len(args) > 1 and all(map(_is_field, args[1:]))
        return moves and {*map(type, args)} == {datetime.datetime, datetime.timedelta}
    owner = quiet_getattr(fn, "__objclass__")
    if type(fn) is not METHOD or owner not in CLASSES or not args:
        return False
    if not issubclass(type(args[0]), owner):
        return False
    if fn.__name__ in QUIET:
        return len(args) == 1
    return fn.__name__ in CARRYING and type(args[0]) is owner and all(map(_is_field, args[1:]))


def _are_parts(day: Any, clock: Any, zone: Any = None) -> bool:
    of_c = type(day) in (datetime.date, datetime.datetime) and type(clock) is datetime.time
    return of_c and _is_field(zone)


METHOD = type(datetime.date.weekday)


def _is_field(value: Any) -> bool:
    return type(value) in (int, bool, type(None)) or issubclass(type(value), datetime.tzinfo)


def is_plain(value: Any) -> bool:
    """Whether it is of no subclass, which is asked to make results, and of no foreign time zone."""
    if type(value) not in CLASSES:
        return False
    zone_of = ZONES.get(type(value))
    return zone_of is None or is_plain_zone(zone_of(value))


def is_plain_zone(zone: Any) -> bool:
    """Whether C alone knows what it says."""
    return zone is None or type(zone) is datetime.timezone


ZONES: dict[type, Any] = {
    cls: vars(cls)["tzinfo"].__get__ for cls in (datetime.datetime, datetime.time)
}
"""How C reads what a time of each class is relative to."""


def state_of(value: Any) -> tuple[Any, ...]:
    """All that a time of C's own classes holds, but for a foreign zone."""
    zone_of = ZONES.get(type(value))
    if zone_of is None:
        return (type(value).__name__, *value.__reduce__()[1])
    zone = zone_of(value)
    bare = value.replace(tzinfo=None).__reduce_ex__(4)[1]  # `fold`, too
    kind = type(zone).__name__
    shown = repr(zone) if type(zone) is datetime.timezone else ""
    return (type(value).__name__, kind, shown, *bare)
