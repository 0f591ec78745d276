"""Calls of a cache from outside that go past it, to its function: of sizes and other numbers that
no guard holds, the cache may know nothing yet, or something of an earlier call.

In: what such calls have given, and what the program does with it later. Out: whether the program
could tell them from calls of the cache, which calls its function once for each key and gives one
object ever after. Where it could, capture begins again, and the cache is called natively
(`segments/assumptions.py`). `recording/past_caches.py` has what the graph shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, NoReturn

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.nested_containers import BASES, values_of
from anyshape.capture.heap.values import IMMUTABLE, TensorValue
from anyshape.nouns import mutable


class CachesAreSeen(BaseException):
    """The program would tell calls past these caches, given by their ids, from calls of them."""

    def __init__(self, caches: frozenset[int]) -> None:
        self.caches = caches


@mutable
class PastCaches:
    """`called`: the ids of caches that are called natively. `results`: what calls past caches have
    given, with the cache, by the id of each container, object, or value of the graph."""

    called: frozenset[int] = frozenset()
    results: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    seen: frozenset[int] = frozenset()

    def see(self, cache: Any) -> NoReturn:
        """The program could tell: capture ends, and begins again."""
        self.seen |= {id(cache)}
        raise broken("unknown-call", "a cache that calls its function once")

    def add(self, cache: Any, part: Any) -> None:
        """A call past the cache has given this, in a tuple maybe."""
        part = _object(part)
        self.results.setdefault(id(part), (part, cache))

    def refuse(self, obj: Any) -> None:
        """The object is written, or its identity is asked for."""
        found = self.results.get(id(_object(obj)))
        if found is not None:
            self.see(found[1])

    def refuse_two(self, a: Any, b: Any) -> None:
        """The program asks whether these are one object: two calls of the cache give the same."""
        a, b = _object(a), _object(b)
        if a is not b and id(a) in self.results and id(b) in self.results:
            self.refuse(a)

    def refuse_made(self, obj: Any) -> None:
        """The object is handed out at the end of the segment."""
        found = self.results.get(id(obj))
        if found is not None:
            raise CachesAreSeen(frozenset({id(found[1])}))


def refuse_within(past: PastCaches, caches: Iterable[Any]) -> None:
    """The segment ends inside of the functions behind these caches, or where one is seen; raises
    what begins capture again."""
    seen = past.seen.union(map(id, caches)) - past.called
    if seen:
        raise CachesAreSeen(seen) from None


def _object(value: Any) -> Any:
    return value.value if type(value) is TensorValue else value


def parts_of(value: Any) -> Iterator[Any]:
    """What lies in it, itself included, but for plain constants and tuples."""
    pending, known = [value], set()
    while pending:
        part = pending.pop()
        if id(part) in known or type(part) in IMMUTABLE:
            continue
        known.add(id(part))
        if not issubclass(type(part), tuple):
            yield part
        if issubclass(type(part), BASES):
            pending.extend(values_of(part))
