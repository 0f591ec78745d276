"""Forking native iterators: the same position in the same container, advanced independently
afterwards.

A checkpoint copies the virtual frames; a list iterator on a stack must not be shared between the
two sides of a fork. Iterators of the types listed here tell their state through `__reduce__`; any
other iterator is left shared (`can_fork` says which).
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.nouns import frozen

_LEAVES: frozenset[type] = frozenset(
    {
        type(iter([])),
        type(iter(())),
        type(iter("")),
        type(iter("\u1234")),
        type(iter(b"")),
        type(iter(bytearray())),
        type(iter(range(0))),
        type(iter(range(1 << 80))),
        type(reversed([])),
        type(iter({})),
        type(iter({}.values())),
        type(iter({}.items())),
        type(reversed({})),
        type(iter(set())),
        type(iter(OrderedDict())),
        type(iter(deque())),
        type(reversed(())),
        itertools.count,
        itertools.repeat,
    }
)
# Those whose position can be set back in place, so that everybody who holds them sees it.
SETTABLE: frozenset[type] = frozenset(
    {
        type(iter([])),
        type(iter(())),
        type(iter("")),
        type(iter("\u1234")),
        type(iter(b"")),
        type(reversed([])),
    }
)
_COMPOSITES: frozenset[type] = frozenset({zip, enumerate, itertools.chain, itertools.islice})
FORKABLE = _LEAVES | _COMPOSITES
# Those that tell their state, so that another can be made; copies of some would share a part.
TELLING = FORKABLE | {
    itertools.accumulate,
    itertools.combinations,
    itertools.combinations_with_replacement,
    itertools.compress,
    itertools.cycle,
    itertools.dropwhile,
    itertools.filterfalse,
    itertools.permutations,
    itertools.product,
    itertools.starmap,
    itertools.takewhile,
    itertools.zip_longest,
}
# What the state of an iterator holds its elements in.
_HOLDING: frozenset[type] = frozenset({list, tuple, deque, OrderedDict})


def can_fork(iterator: object) -> bool:
    """Whether `copy_iterator` gives an independent iterator for it."""
    return type(iterator) in FORKABLE


def may_give(value: Any, kinds: frozenset[type], depth: int = 3) -> bool:
    """Whether an iterator may give one of these types, or what holds one; nothing is taken."""
    if type(value) in TELLING:
        _, *state = value.__reduce__()
        return any(may_give(part, kinds, depth) for part in state)
    if type(value) in _HOLDING:
        return depth > 0 and any(may_give(item, kinds, depth - 1) for item in value)
    return type(value) in kinds


def copy_iterator(value: Any, memo: dict[int, Any], *, inside: bool = False) -> Any:
    """An independent iterator at the same position; any other value is given back as it is.

    `SETTABLE` ones are left alone (the heap's journal sets them back) unless they are inside
    another.
    """
    kind = type(value)
    if kind not in FORKABLE or (kind in SETTABLE and not inside):
        return value
    if id(value) in memo:
        return memo[id(value)][1]
    if kind in STARTS:
        position = position_of(value)
        if position is None:
            raise broken("fork", f"{bare_name(kind)} of a container that has changed")
        twin: Any = position.iterator()
    else:
        twin = _rebuild(value.__reduce__(), memo, deep=kind in _COMPOSITES)
    memo[id(value)] = (value, twin)
    return twin


def referenced_elsewhere(slots: Sequence[Sequence[Any]], created: Mapping[int, Any]) -> list[Any]:
    """The iterators in the slots of frames that something else holds as well: a list, a cell, a
    generator. Instead of one of these no copy will do, since who holds it would not see it.
    ``created`` are the objects that a trace has made, which it holds too."""
    found = [
        v for slot_values in slots for v in slot_values if can_fork(v) and type(v) not in SETTABLE
    ]
    known: dict[int, int] = {}
    for iterator in found:
        known[id(iterator)] = known.get(id(iterator), 0) + PER_SLOT
    distinct = {
        id(v): v
        for v in found
        if sys.getrefcount(v) > known[id(v)] + IN_PASSING + (id(v) in created)
    }
    return list(distinct.values())


PER_SLOT, IN_PASSING = 3, 2
"""References: of a frame's slot, of the tuple and of the list made from it; of a loop's variable
and of the call that counts."""


def same_position(a: Any, b: Any) -> bool:
    """Whether two iterators are at the same position in the same container: neither of two copies
    was advanced further than the other."""
    if type(a) is not type(b) or not can_fork(a):
        return False
    return _same_state(a.__reduce__(), b.__reduce__())


def _same_state(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in (tuple, list):
        return len(a) == len(b) and all(map(_same_state, a, b))
    return a == b if type(a) in (int, str, bytes, range) else same_position(a, b)


@frozen
class Position:
    """An iterator over a mapping or a set: what makes one of its kind, and how many items of the
    container it has given. `container` is None where it is exhausted."""

    container: Any
    start: Callable[[Any], Iterator[Any]]
    given: int

    def iterator(self) -> Iterator[Any]:
        """Another one at the same position."""
        return advanced(self.start(self.container), self.given)


def advanced(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    """The iterator, once it has given so many items."""
    deque(itertools.islice(iterator, count), maxlen=0)
    return iterator


def position_of(value: Any) -> Position | None:
    """Where an iterator over a mapping or a set is, in which container: what it tells by
    `__reduce__` is a list of what is left. None if that cannot be said, since the container was
    changed behind its back, or a view of an OrderedDict cannot be told from another."""
    starts = STARTS[type(value)]
    container = next((c for c in gc.get_referents(value) if issubclass(type(c), ITERATED)), None)
    if container is None:
        start, empty = starts[0]
        return Position(None, _ended(start, empty), 0)
    try:
        left = list(value.__reduce__()[1][0])
    except RuntimeError:
        return None
    found = []
    for start, _ in starts:
        items = list(start(container))
        given = len(items) - len(left)
        if given >= 0 and all(map(_is_same_item, items[given:], left)):
            found.append(Position(container, start, given))
    alike = len(found) == 1 or not left
    return found[0] if found and alike else None


def _ended(start: Callable[[Any], Iterator[Any]], empty: type) -> Callable[[Any], Iterator[Any]]:
    return lambda _: advanced(start(empty()), 1)


def _is_same_item(a: Any, b: Any) -> bool:
    """`items` gives a tuple of its own for each pair."""
    pairs = type(a) is type(b) is tuple and len(a) == len(b)
    return a is b or (pairs and all(x is y for x, y in zip(a, b)))


def _starts(kind: Any) -> list[tuple[Callable[[Any], Iterator[Any]], type]]:
    """Iterators over a mapping's keys, values and items, forwards and backwards, whatever methods
    classes of the program have."""
    views = (kind.keys, kind.values, kind.items)
    forwards = [(lambda c, view=view: iter(view(c)), kind) for view in views]
    return [*forwards, *((lambda c, view=view: reversed(view(c)), kind) for view in views)]


def _members(container: Any) -> Iterator[Any]:
    return (set if issubclass(type(container), set) else frozenset).__iter__(container)


ITERATED = (dict, set, frozenset)
STARTS: dict[type, list[tuple[Callable[[Any], Iterator[Any]], type]]] = {
    **{type(start({})): [(start, made)] for start, made in _starts(dict)},
    type(iter(OrderedDict())): _starts(OrderedDict),
    type(iter(set())): [(_members, set)],
}


def _rebuild(state: tuple[Any, ...], memo: dict[int, Any], *, deep: bool) -> Any:
    make, args, *rest = state
    if deep:
        args = tuple(copy_iterator(arg, memo, inside=True) for arg in args)
    twin = make(*args)
    if rest and rest[0] is not None:
        position = rest[0]
        if deep and type(position) is tuple:
            position = tuple(copy_iterator(part, memo, inside=True) for part in position)
        twin.__setstate__(position)
    return twin
