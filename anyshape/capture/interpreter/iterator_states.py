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

    def state(values: Locals, started: bool) -> State:
        return cls, tuple(values[name] for name in names)

    return state


def _mapped(values: Locals, started: bool) -> State:
    return map, (values["fn"], *values["iterators"])


def _zipped(values: Locals, started: bool) -> State:
    made = zip, tuple(values["iterators"])
    return (*made, True) if values["strict"] else made


def _dropwhile(values: Locals, started: bool) -> State:
    source = values["iterator"] if started else values["iterable"]
    return itertools.dropwhile, (values["predicate"], source), int(started or values["begun"])


def _takewhile(values: Locals, started: bool) -> State:
    return itertools.takewhile, (values["predicate"], values["iterable"]), 0


def _items(values: Locals, started: bool) -> State:
    """An iterator by `__getitem__`: between two items the index is that of the last one."""
    return iter, (values["obj"],), values["index"] + started


STATES: Mapping[str, Callable[[Locals, bool], State]] = {
    "mapped": _mapped,
    "filtered": _over(filter, "fn", "iterator"),
    "zipped": _zipped,
    "enumerated": _over(enumerate, "iterator", "count"),
    "calls_until": lambda values, started: (iter, (values["fn"], values["sentinel"])),
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
