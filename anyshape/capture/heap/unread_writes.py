"""Writes to outside containers that the program has not read: nothing about what lies there is
relied on.

In: an append to a list, or a store under a plain key of a dict. Out: the write is kept here, beside
the log of effects, until the container is read as a whole; then its mirror gets it. What was stored
in a dict is found here under its key.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from anyshape.capture.heap.values import NULL, TensorValue
from anyshape.nouns import mutable

# The writers that look at nothing, and how many arguments they take.
BLIND: Mapping[Any, int] = {
    list.append: 1,
    deque.append: 1,
    deque.appendleft: 1,
    dict.__setitem__: 2,
    OrderedDict.__setitem__: 2,
}
PLAIN_KEYS = frozenset({str, int, bool, bytes, type(None)})  # compared by C, without a surprise


def is_blind(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the write `fn(container, *args)` looks at nothing that lies in the container."""
    count = BLIND.get(fn)
    return count == len(args) and not kwargs and (count == 1 or is_key(args[0]))


def is_key(value: Any) -> bool:
    """Whether C compares it for a key without a surprise: a tensor is compared by its identity."""
    return type(value) in PLAIN_KEYS or type(value) is TensorValue


@mutable(eq=False)
class Unread:
    """An outside container and what was written to it, in order; `entries` are those of a dict."""

    real: Any
    writes: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    entries: dict[Any, Any] = field(default_factory=dict)

    def write(self, fn: Any, args: tuple[Any, ...]) -> Callable[[], None]:
        """Keeps one write; gives what takes it back."""
        before = dict(self.entries)
        self.writes.append((fn, args))
        if len(args) == 2:
            self.entries[args[0]] = args[1]
        return lambda: self._take_back(before)

    def _take_back(self, before: dict[Any, Any]) -> None:
        self.writes.pop()
        self.entries.clear()
        self.entries.update(before)

    def find(self, key: Any) -> Any:
        """What was stored under the key; `NULL` if nothing was."""
        return self.entries.get(key, NULL)

    def appended(self) -> list[Any] | None:
        """What was put at the end of a list, if that is all that was written."""
        plain = all(fn is list.append for fn, _ in self.writes) and type(self.real) is list
        return [args[0] for _, args in self.writes] if plain else None

    def reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """`Domain.read` for the mirror: what has been overwritten is not read."""

        def still_there(obj: Any, kind: str, key: Any, value: Any) -> Any:
            overwritten = kind in ("item", "entry") and self.find(key) is not NULL
            return NULL if overwritten and obj is self.real else read(obj, kind, key, value)

        return still_there

    def replay(self, state: Any) -> None:
        """Writes it all to a mirror."""
        for fn, args in self.writes:
            fn(state, *args)
