"""A dictionary that forks in constant time and never changes what its fork sees."""

from __future__ import annotations

from collections.abc import Set
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Layered(Generic[Key, Value]):
    """Own entries above frozen layers, the newest first; layers of like size are merged."""

    __slots__ = ("older", "own")

    def __init__(self, older: tuple[dict[Key, Value], ...] = ()) -> None:
        self.own: dict[Key, Value] = {}
        self.older = older

    def get(self, key: Key) -> Value | None:
        """The newest value for the key."""
        if key in self.own:
            return self.own[key]
        for layer in self.older:
            if key in layer:
                return layer[key]
        return None

    def lacks(self, keys: Set[Key]) -> bool:
        """Has it none of these?"""
        for layer in self.older:
            if not layer.keys().isdisjoint(keys):
                return False
        return self.own.keys().isdisjoint(keys)

    def missing(self, keys: Set[Key]) -> Set[Key]:
        """Those of these that it has not."""
        for layer in (self.own, *self.older):
            keys = keys - layer.keys()
        return keys

    def update(self, entries: dict[Key, Value]) -> None:
        """Sets them all."""
        self.own.update(entries)

    def __setitem__(self, key: Key, value: Value) -> None:
        self.own[key] = value

    def __bool__(self) -> bool:
        return bool(self.own or self.older)

    def fork(self) -> Layered[Key, Value]:
        """A dictionary with the same entries; later changes to either stay there."""
        if self.own:
            self.older = _merged((self.own, *self.older))
            self.own = {}
        return Layered(self.older)


def _merged(layers: tuple[dict[Key, Value], ...]) -> tuple[dict[Key, Value], ...]:
    """Keeps every layer less than half as large as the next, so that they stay few."""
    while len(layers) > 1 and 2 * len(layers[0]) > len(layers[1]):
        layers = ({**layers[1], **layers[0]}, *layers[2:])
    return layers
