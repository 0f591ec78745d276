"""Forking native iterators: the same position in the same container, advanced independently
afterwards.

A checkpoint copies the virtual frames; a list iterator on a stack must not be shared between the
two sides of a fork. Iterators of the types listed here tell their state through `__reduce__`; any
other iterator is left shared (`can_fork` says which).
"""

from __future__ import annotations

import itertools
import sys
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any

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
    twin = _rebuild(value.__reduce__(), memo, deep=kind in _COMPOSITES)
    memo[id(value)] = (value, twin)
    return twin


def held_elsewhere(slots: Sequence[Sequence[Any]], created: Mapping[int, Any]) -> list[Any]:
    """The iterators in the slots of frames that something else holds as well: a list, a cell, a
    generator. In the place of one of these no copy will do, since who holds it would not see it.
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
