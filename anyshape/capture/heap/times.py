"""`datetime`: which of its functions in C depend on their arguments alone.

In: a function of C. Out: yes or no. Others ask the clock, the place or the locale. Times of a
`tzinfo` that the program has written are for `c_callbacks.py`.
"""

from __future__ import annotations

import datetime
from typing import Any

CLASSES = (
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
)
ELSEWHERE = frozenset(
    "now utcnow today fromtimestamp timestamp astimezone strftime strptime __format__".split()
    + ["isocalendar"]
)
"""Methods that ask what is no argument, or give a tuple that C alone makes."""
MAKERS = frozenset("fromordinal fromisoformat fromisocalendar combine".split())


def is_pure(fn: Any, args: tuple[Any, ...]) -> bool:
    """Of a method of C, called with its object, or of a constructor that a class has."""
    owner = getattr(fn, "__objclass__", None)
    if owner is not None:
        of_a_time = owner in CLASSES and fn.__name__ not in ELSEWHERE
        return of_a_time and bool(args) and is_plain(args[0])
    bound = getattr(fn, "__self__", None)
    return any(bound is cls for cls in CLASSES) and fn.__name__ in MAKERS


def is_plain(value: Any) -> bool:
    """Whether it is of no subclass, which is asked to make results, and of no foreign time zone."""
    if type(value) not in CLASSES:
        return False
    zone_of = ZONES.get(type(value))
    return zone_of is None or type(zone_of(value)) in (type(None), datetime.timezone)


ZONES: dict[type, Any] = {
    cls: vars(cls)["tzinfo"].__get__ for cls in (datetime.datetime, datetime.time)
}
"""How C reads what a time of each class is relative to."""
