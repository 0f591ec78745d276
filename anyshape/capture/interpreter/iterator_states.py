"""The polyfills that run in the place of iterators of C, and what these tell `pickle` and `copy`.

In: the name of a polyfill and the locals of its frame, suspended at its `yield` or not begun. Out:
what `__reduce__` of the iterator of C gives there, and where `__setstate__` puts its number. Those
that are absent have states that the locals do not say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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
LOOPS: Mapping[str, Callable[[Locals, Sequence[Any]], Any]] = {
    "filtered": lambda values, stack: filter(values["fn"], values["iterator"]),
    "filterfalse": lambda values, stack: itertools.filterfalse(values["predicate"], stack[0]),
    "chain": lambda values, stack: itertools.chain.from_iterable(stack[0]),
    "chain_from_iterable": lambda values, stack: itertools.chain.from_iterable(stack[0]),
}
"""Those that look for an item in a loop: the iterator that goes on with it there, by the locals and
what lies on the stack."""
BETWEEN = ("mapped", "filtered", "zipped", "enumerated", "calls_until")
"""Those whose locals are iterators already: between two items, their states say how they go on."""
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


class _Items:
    """What is iterated over by its items."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError


STOOD_FOR: Mapping[str, type] = {
    "mapped": map,
    "filtered": filter,
    "zipped": zip,
    "enumerated": enumerate,
    "calls_until": type(iter(int, 1)),
    "items_until_index_error": type(iter(_Items())),
    "reversed_of": reversed,
    "chain_from_iterable": itertools.chain,
    "_rows": itertools.product,
    "_group": type(next(itertools.groupby("a"))[1]),
    **{
        name: getattr(itertools, name)
        for name in (
            *("chain", "islice", "accumulate", "starmap", "takewhile", "dropwhile", "filterfalse"),
            *("compress", "pairwise", "cycle", "zip_longest", "groupby"),
        )
    },
}
"""Polyfills, by name, and the iterators of C in whose place they run."""
STATELESS = frozenset({"mapped", "filtered", "zipped", "starmap", "filterfalse"})
"""Those that may be advanced while they run: another one over the same iterators does it."""
GOING_ON = STATELESS | {"items_until_index_error", "enumerated", "compress", "calls_until"}
"""Those whose code, begun once more with its locals as they are, goes on behind an exception."""
