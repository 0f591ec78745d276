"""Attributes of classes from outside that a segment writes.

    class Fast(Setting): ...
    Fast._state = True      # by a context manager, which sets it back

In: a class that was there before, a name and a value. Out: the write in the log of effects, and
what lookups along the MRO find from then on. Names that C code asks classes for (``__len__``,
``__bases__``) and those that a metaclass sees to end the segment.
"""

from __future__ import annotations

from typing import Any, Protocol

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE, IMMUTABLE_TYPE
from anyshape.capture.heap.observer import Observer
from anyshape.capture.heap.quiet_classes import bare_name, class_entry, flags_of, mro_of
from anyshape.capture.heap.values import NULL

NOT_WRITTEN = object()
_set, _delete = type.__setattr__, type.__delattr__


class Heap(Protocol):
    """What is needed of the heap."""

    domain: Observer
    slots: dict[tuple[int, str], tuple[Any, Any]]

    def set_written(self, obj: Any, name: str, value: Any) -> None: ...

    def log(self, fn: Any, target: Any, args: tuple[Any, ...]) -> None: ...

    def behind(self, obj: Any) -> Any: ...

    def create(self, value: Any) -> Any: ...

    def is_created(self, value: Any) -> bool: ...

    def absent(self, obj: Any, name: str) -> None: ...


def write(heap: Heap, obj: Any, name: str, value: Any) -> None:
    """`cls.name = value` (`NULL` deletes); breaks where that is more than an entry of a dict."""
    if not _is_entry(obj, name) or (value is NULL and not _has(heap, obj, name)):
        raise broken("python-effect", f"setting {name!r} of a {bare_name(type(obj))}")
    heap.set_written(obj, name, value)
    heap.log(*(_delete, obj, (name,)) if value is NULL else (_set, obj, (name, value)))
    heap.domain.class_changed()


def written(heap: Heap, cls: type, name: str) -> Any:
    """What the segment has written there: `NULL` where it was deleted."""
    found = heap.slots.get((id(cls), name)) if heap.slots else None
    return NOT_WRITTEN if found is None else found[1]


def refuse_written(heap: Heap) -> None:
    """C code reads the dicts of classes."""
    if any(issubclass(type(obj), type) for obj, _ in heap.slots.values()):
        raise broken("unknown-call", "a list of the attributes of a class that has some set")


def may_change(obj: Any) -> bool:
    """Whether what `type` says of a class, its name for one, may be another thing later."""
    if not issubclass(type(obj), type):
        return True
    flags = flags_of(obj)
    return flags & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE


def refuse_hidden(heap: Heap, obj: Any, descriptor: Any, name: str) -> None:
    """A break where C says one thing of a class and its own names another, as with a property
    `__name__`: guards that read the class would not tell which."""
    if not issubclass(type(obj), type) or heap.is_created(obj) or (id(obj), name) in heap.slots:
        return
    own = type.__dict__["__dict__"].__get__(obj)
    if name in own and own[name] is not descriptor.__get__(obj):
        raise broken("unknown-call", f"{name} of a class that defines another one")


def make_annotations(heap: Heap, cls: type) -> None:
    """C gives a class that has none its own, which are empty, when it is asked for them."""
    own = type.__dict__["__dict__"].__get__(cls)
    if (
        "__annotations__" in own
        or heap.is_created(cls)
        or (id(cls), "__annotations__") in heap.slots
    ):
        return
    heap.absent(cls, "__annotations__")
    made = heap.create({})
    heap.set_written(cls, "__annotations__", made)
    heap.log(_set, cls, ("__annotations__", made))
    heap.domain.class_changed()


def rely_on_all_names(heap: Heap, cls: type) -> None:
    """C code lists the names of a class and its bases."""
    for base in mro_of(cls):
        if may_change(base) and not heap.is_created(base):
            names = heap.behind(type.__dict__["__dict__"].__get__(base))
            heap.domain.read(names, "keys", None, tuple(names))


def _is_entry(obj: Any, name: Any) -> bool:
    """Whether setting it writes an entry of the class's dict, and does nothing else."""
    if not issubclass(type(obj), type) or type(name) is not str:
        return False
    plain = flags_of(obj) & HEAP_TYPE and not flags_of(obj) & IMMUTABLE_TYPE
    special = name.startswith("__") and name.endswith("__")
    return bool(plain) and not special and class_entry(type(obj), name) is None


def _has(heap: Heap, cls: type, name: str) -> bool:
    found = written(heap, cls, name)
    own = type.__dict__["__dict__"].__get__(cls)
    return name in own if found is NOT_WRITTEN else found is not NULL
