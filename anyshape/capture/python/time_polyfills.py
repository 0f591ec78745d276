"""`datetime` where C code asks a `tzinfo` or a class of the program, interpreted (polyfills.py).

What C computes is computed with times that have no zone; the zone is asked when, as often and with
what C asks it.
"""

from __future__ import annotations

import operator
import time
from datetime import datetime, timedelta
from datetime import time as Time
from typing import Any

from anyshape.capture.interpreter.intrinsic_names import is_subtype, native

_EQUALITY = (operator.eq, operator.ne)
_EPOCH_DAY = (1970, 1, 1)


# ---- zones ---------------------------------------------------------------------------------------
def utcoffset(moment: Any) -> Any:
    return offset_of(moment, asked_with(moment), "utcoffset")


def dst(moment: Any) -> Any:
    return offset_of(moment, asked_with(moment), "dst")


def tzname(moment: Any) -> Any:
    zone = moment.tzinfo
    if zone is None:
        return None
    found = zone.tzname(asked_with(moment))
    if found is not None and not is_subtype(type(found), str):
        kind = type(found).__name__
        raise TypeError(f"tzinfo.tzname() must return None or a string, not '{kind}'")
    return found


def asked_with(moment: Any) -> Any:
    """What a zone is handed: nothing for a time of no day."""
    return moment if is_subtype(type(moment), datetime) else None


def offset_of(moment: Any, given: Any, name: Any) -> Any:
    zone = moment.tzinfo
    return None if zone is None else asked(zone, given, name)


def asked(zone: Any, given: Any, name: Any) -> Any:
    found = getattr(zone, name)(given)
    if found is None:
        return None
    if not is_subtype(type(found), timedelta):
        kind = type(found).__name__
        raise TypeError(f"tzinfo.{name}() must return None or a timedelta, not '{kind}'")
    days = found.days
    if days < -1 or days >= 1 or (days == -1 and found.seconds == 0 and found.microseconds == 0):
        raise ValueError(
            "offset must be a timedelta strictly between"
            " -timedelta(hours=24) and timedelta(hours=24)."
        )
    return found


def exact(delta: Any) -> Any:
    """What C computes with, whatever the class of a difference says."""
    if delta is None or type(delta) is timedelta:
        return delta
    return timedelta(delta.days, delta.seconds, delta.microseconds)


def plain(moment: Any) -> Any:
    """The same time of C's own class, without a zone."""
    if type(moment) is datetime or type(moment) is Time:
        return native(type(moment).replace, moment, tzinfo=None)
    parts = (moment.hour, moment.minute, moment.second, moment.microsecond)
    if is_subtype(type(moment), datetime):
        day = (moment.year, moment.month, moment.day)
        return native(datetime, *day, *parts, fold=moment.fold)
    return native(Time, *parts, fold=moment.fold)


def remade(moment: Any, found: Any) -> Any:
    """A result of the class of a time, with its zone: that class is called."""
    if type(moment) is datetime:
        return native(datetime.replace, found, tzinfo=moment.tzinfo)
    day = (found.year, found.month, found.day)
    parts = (found.hour, found.minute, found.second, found.microsecond)
    return type(moment)(*day, *parts, moment.tzinfo)


# ---- arithmetic ----------------------------------------------------------------------------------
def moved(function: Any, moment: Any, delta: Any) -> Any:
    return remade(moment, native(function, plain(moment), exact(delta)))


def difference(a: Any, b: Any) -> Any:
    if a.tzinfo is b.tzinfo:
        return native(operator.sub, plain(a), plain(b))
    offset, other = exact(utcoffset(a)), exact(utcoffset(b))
    if (offset is None) is not (other is None):
        raise TypeError("can't subtract offset-naive and offset-aware datetimes")
    found = native(operator.sub, plain(a), plain(b))
    if offset is None or native(operator.eq, offset, other):
        return found
    return found - (offset - other)


def compare_moments(function: Any, a: Any, b: Any) -> Any:
    if a.tzinfo is b.tzinfo:
        return native(function, plain(a), plain(b))
    offset, other = exact(utcoffset(a)), exact(utcoffset(b))
    equality = function in _EQUALITY
    if (offset is None) is not (other is None):
        if equality:
            return function is operator.ne
        raise TypeError("can't compare offset-naive and offset-aware datetimes")
    if offset is None or native(operator.eq, offset, other):
        first, second = plain(a), plain(b)
    else:
        first, second = difference(a, b), timedelta(0)
    if equality and native(operator.eq, first, second):
        if is_ambiguous(a, offset) or is_ambiguous(b, other):
            return function is operator.ne
    return native(function, first, second)


def is_ambiguous(moment: Any, offset: Any) -> Any:
    """Whether its zone says something else of the other of two equal times of the clock."""
    fold = 0 if moment.fold else 1
    flipped = native(datetime.replace, plain(moment), tzinfo=moment.tzinfo, fold=fold)
    found = exact(utcoffset(flipped))
    if found is None or offset is None:
        return found is not offset
    return native(operator.ne, found, offset)


def compare_times(function: Any, a: Any, b: Any) -> Any:
    if a.tzinfo is b.tzinfo:
        return native(function, plain(a), plain(b))
    offset, other = exact(utcoffset(a)), exact(utcoffset(b))
    if (offset is None) is not (other is None):
        if function in _EQUALITY:
            return function is operator.ne
        raise TypeError("can't compare offset-naive and offset-aware times")
    if offset is None or native(operator.eq, offset, other):
        return native(function, plain(a), plain(b))
    first = (seconds_of(a) - offset.days * 86400 - offset.seconds, a.microsecond)
    second = (seconds_of(b) - other.days * 86400 - other.seconds, b.microsecond)
    return native(function, first, second)


def seconds_of(moment: Any) -> Any:
    return moment.hour * 3600 + moment.minute * 60 + moment.second


# ---- other zones ---------------------------------------------------------------------------------
def astimezone(moment: Any, zone: Any) -> Any:
    own = moment.tzinfo
    if own is zone:
        return moment
    offset = exact(utcoffset(moment))
    if offset is None:
        return native(datetime.astimezone, plain(moment), zone)
    shifted = native(operator.sub, plain(moment), offset)
    return zone.fromutc(native(datetime.replace, shifted, tzinfo=zone))


def fromutc(zone: Any, moment: Any) -> Any:
    if not is_subtype(type(moment), datetime):
        raise TypeError("fromutc: argument must be a datetime")
    if moment.tzinfo is not zone:
        raise ValueError("fromutc: dt.tzinfo is not self")
    offset = exact(utcoffset(moment))
    if offset is None:
        raise ValueError("fromutc: non-None utcoffset() result required")
    saving = exact(dst(moment))
    if saving is None:
        raise ValueError("fromutc: non-None dst() result required")
    found = moved(operator.add, moment, offset - saving)
    saving = exact(asked(zone, found, "dst"))
    if saving is None:
        raise ValueError("fromutc: tz.dst() gave inconsistent results; cannot convert")
    return moved(operator.add, found, saving) if saving else found


# ---- texts and parts -----------------------------------------------------------------------------
def isoformat(moment: Any, args: Any, kwargs: Any) -> Any:
    bare = plain(moment)
    text = native(type(bare).isoformat, bare, *args, **kwargs)
    return text + offset_text(exact(utcoffset(moment)))


def text_of(moment: Any) -> Any:
    return moment.isoformat(" ") if is_subtype(type(moment), datetime) else moment.isoformat()


def representation(moment: Any) -> Any:
    bare = plain(moment)
    text = native(repr, bare)
    if type(moment) is not type(bare):
        text = type(moment).__name__ + text[len(f"datetime.{type(bare).__name__}") :]
    zone = moment.tzinfo
    return text if zone is None else f"{text[:-1]}, tzinfo={zone!r})"


def offset_text(offset: Any) -> Any:
    if offset is None:
        return ""
    sign = "+"
    if offset.days < 0:
        sign, offset = "-", -offset
    minutes, seconds = offset.seconds // 60, offset.seconds % 60
    text = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    if seconds or offset.microseconds:
        text += f":{seconds:02d}"
    if offset.microseconds:
        text += f".{offset.microseconds:06d}"
    return text


def timetuple(moment: Any) -> Any:
    saving = exact(dst(moment))
    flag = -1 if saving is None else 1 if saving else 0
    return parts_of(plain(moment), flag)


def utctimetuple(moment: Any) -> Any:
    offset = exact(utcoffset(moment))
    found = plain(moment)
    return parts_of(found if offset is None else native(operator.sub, found, offset), 0)


def parts_of(found: Any, flag: Any) -> Any:
    parts = native(datetime.timetuple, found)
    return native(time.struct_time, (*parts[:8], flag))


def timestamp(moment: Any) -> Any:
    offset = exact(utcoffset(moment))
    if offset is None:
        raise TypeError("can't subtract offset-naive and offset-aware datetimes")
    found = native(operator.sub, plain(moment), native(datetime, *_EPOCH_DAY))
    return native(timedelta.total_seconds, found - offset)
