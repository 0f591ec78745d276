"""A heap that tells somebody what is read of objects: code that is interpreted now may run at
another time.

In: a heap. Out: the same one, which says of each read what was read of which object, and what was
found there, before the program sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.values import NULL

Watcher = Callable[[Any, Any, Any], None]
CONTENTS: Any = object()
"""What is found where more than one entry is read, or how many there are."""


def watch(heap: Heap, watcher: Watcher | None) -> Watcher | None:
    """From now on this one is told of reads; the one that was before."""
    before, heap.watcher = heap.watcher, watcher
    heap.__class__ = Heap if watcher is None else WatchedHeap
    return before


class WatchedHeap(Heap):
    """See the module."""

    __slots__ = ()

    def _tell(self, obj: Any, name: Any, value: Any) -> Any:
        assert self.watcher is not None
        self.watcher(obj, name, value)
        return value

    def mirror(self, obj: Any) -> Any:
        self._tell(obj, "", CONTENTS)
        return super().mirror(obj)

    def mirror_of(self, obj: Any) -> Any:
        self._tell(obj, "", CONTENTS)
        return super().mirror_of(obj)

    def length(self, obj: Any) -> Any:
        self._tell(obj, "", CONTENTS)
        return super().length(obj)

    def item(self, obj: Any, key: Any) -> Any:
        return self._tell(obj, key, super().item(obj, key))

    def item_or_null(self, obj: dict[Any, Any], key: Any) -> Any:
        return self._tell(obj, key, super().item_or_null(obj, key))

    def read_contains(self, container: Any, item: Any) -> Any:
        self._tell(container, "", CONTENTS)
        return super().read_contains(container, item)

    def instance_attribute(self, obj: Any, namespace: dict[str, Any], name: str) -> Any:
        return self._tell(obj, name, super().instance_attribute(obj, namespace, name))

    def attribute(self, obj: Any, name: str, value: Any) -> Any:
        return self._tell(obj, name, super().attribute(obj, name, value))

    def class_attribute(self, cls: type, name: str, value: Any) -> Any:
        return self._tell(cls, name, super().class_attribute(cls, name, value))

    def slot(self, obj: Any, descriptor: Any, cls: type, name: str) -> Any:
        return self._tell(obj, name, super().slot(obj, descriptor, cls, name))

    def global_name(self, globals_: dict[str, Any], builtins: Any, name: str) -> Any:
        value = super().global_name(globals_, builtins, name)
        scope = globals_ if globals_.get(name, NULL) is not NULL else builtins
        return self._tell(scope, name, value)

    def cell(self, cell: CellType, name: str) -> Any:
        return self._tell(cell, name, super().cell(cell, name))
