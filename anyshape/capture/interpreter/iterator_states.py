"""What iterators of C tell `pickle` and `copy`, of the polyfills that run in their place.

In: the name of a polyfill and the locals of its frame, suspended at its `yield` or not begun. Out:
what `__reduce__` of the iterator of C gives there, and where `__setstate__` puts its number. Those
that are absent have states that the locals do not say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

Locals = Mapping[str, Any]
State = tuple[Any, ...]


def _over(cls: type, *names: str) -> Callable[[Locals, bool], State]:
    """`cls` called with what lies in these locals."""

    def state(held: Locals, started: bool) -> State:
        return cls, tuple(held[name] for name in names)

    return state


def _mapped(held: Locals, started: bool) -> State:
    return map, (held["fn"], *held["iterators"])


def _zipped(held: Locals, started: bool) -> State:
    made = zip, tuple(held["iterators"])
    return (*made, True) if held["strict"] else made


def _dropwhile(held: Locals, started: bool) -> State:
    source = held["iterator"] if started else held["iterable"]
    return itertools.dropwhile, (held["predicate"], source), int(started or held["begun"])


def _takewhile(held: Locals, started: bool) -> State:
    return itertools.takewhile, (held["predicate"], held["iterable"]), 0


def _items(held: Locals, started: bool) -> State:
    """An iterator by `__getitem__`: between two items the index is that of the last one."""
    return iter, (held["obj"],), held["index"] + started


STATES: Mapping[str, Callable[[Locals, bool], State]] = {
    "mapped": _mapped,
    "filtered": _over(filter, "fn", "iterator"),
    "zipped": _zipped,
    "enumerated": _over(enumerate, "iterator", "count"),
    "calls_until": lambda held, started: (iter, (held["fn"], held["sentinel"])),
    "items_until_index_error": _items,
    "starmap": _over(itertools.starmap, "function", "iterable"),
    "filterfalse": _over(itertools.filterfalse, "predicate", "iterable"),
    "compress": _over(itertools.compress, "data", "selectors"),
    "takewhile": _takewhile,
    "dropwhile": _dropwhile,
}
ENDED: Mapping[str, State] = {
    "mapped": (map, (bool, ())),
    "filtered": (filter, (bool, ())),
    "zipped": (zip, ()),
    "enumerated": (enumerate, ((),)),
    "calls_until": (iter, ((),)),
    "items_until_index_error": (iter, ((),)),
    "starmap": (itertools.starmap, (bool, ())),
    "filterfalse": (itertools.filterfalse, (bool, ())),
    "compress": (itertools.compress, ((), ())),
    "takewhile": (itertools.takewhile, (bool, ())),
    "dropwhile": (itertools.dropwhile, (bool, ())),
}
"""What those tell that have given all that they had; their frames are gone."""
NUMBERS: Mapping[str, str | None] = {
    "items_until_index_error": "index",
    "dropwhile": "begun",
    "zipped": "strict",
    "takewhile": None,
}
"""The local that `__setstate__` sets; None: it says whether the iterator has ended."""
