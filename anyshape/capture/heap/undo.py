"""Undoing writes to real objects: each function gives a callable that puts back what is there now.
The heap's journal holds them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from types import CellType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.hidden_dicts import names_of
from anyshape.capture.heap.nested_containers import elements_of
from anyshape.capture.heap.quiet_classes import bare_name, class_entry, flags_of
from anyshape.capture.heap.raised_state import UNRAISED, put_back
from anyshape.capture.heap.values import NULL


def write_cell(cell: CellType, value: Any = NULL) -> None:
    """Set what a cell holds; `NULL` empties it."""
    if value is NULL:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def undo_contents(obj: Any) -> Callable[[], None]:
    """For a container, a cell or an instance's dict."""
    if issubclass(type(obj), (list, deque)):
        saved = [*elements_of(obj)]
        return lambda: _refill(obj, saved)
    if issubclass(type(obj), OrderedDict):
        items = list(OrderedDict.items(obj))
        return lambda: _refill_dict(obj, items, OrderedDict)
    if issubclass(type(obj), dict):
        pairs = list(dict.items(obj))
        return lambda: _refill_dict(obj, pairs, dict)
    if issubclass(type(obj), set):
        members = [*set.__iter__(obj)]
        return lambda: _refill_set(obj, members)
    if issubclass(type(obj), CellType):
        return _undo_cell(obj)
    if issubclass(type(obj), bytearray):
        content = bytes(bytearray.__iter__(obj))
        return lambda: bytearray.__setitem__(obj, slice(None), content)
    raise broken("fork", f"a write to {bare_name(type(obj))}")


def container_of(undo: Callable[[], object]) -> Any:
    """The list or dict whose contents an entry of a journal puts back; None for other entries."""
    code, cells = getattr(undo, "__code__", None), getattr(undo, "__closure__", None)
    if code is None or not cells or code.co_freevars[0] != "obj" or len(cells) != 2:
        return None
    obj = cells[0].cell_contents
    return obj if type(obj) in (list, dict) else None


def _refill(obj: Any, saved: list[Any]) -> None:
    if issubclass(type(obj), list):
        list.__setitem__(obj, slice(None), saved)
    else:
        deque.clear(obj)
        deque.extend(obj, saved)


def _refill_dict(obj: Any, items: list[Any], base: Any) -> None:
    base.clear(obj)
    for key, value in items:
        base.__setitem__(obj, key, value)


def _refill_set(obj: set[Any], members: list[Any]) -> None:
    set.clear(obj)
    set.update(obj, members)


def _undo_cell(cell: CellType) -> Callable[[], None]:
    try:
        value = cell.cell_contents
    except ValueError:
        return lambda: write_cell(cell, NULL)
    return lambda: write_cell(cell, value)


def put_entry_back(table: dict[Any, Any], key: Any, before: Any) -> None:
    """``before`` is None where there was no entry."""
    if before is None:
        del table[key]
    else:
        table[key] = before


def require_attribute(name: str, read: Callable[[], Any]) -> None:
    """Raises as deleting an attribute does that is not there."""
    try:
        read()
        return
    except AttributeError:
        pass
    raise AttributeError(name)  # here, where no other error is its context


def undo_slot(obj: Any, descriptor: Any) -> Callable[[], None]:
    try:
        value = descriptor.__get__(obj, type(obj))
    except AttributeError:
        return lambda: descriptor.__delete__(obj)
    return lambda: descriptor.__set__(obj, value)


def undo_attribute(obj: Any, name: str) -> Callable[[], None]:
    namespace = names_of(obj) or {}
    slot = class_entry(type(obj), name)
    if name not in namespace and type(slot) in (GetSetDescriptorType, MemberDescriptorType):
        return undo_slot(obj, slot)
    if name in namespace or (
        issubclass(type(obj), type) and hasattr(vars(type).get(name), "__set__")
    ):
        value = namespace[name] if name in namespace else getattr(obj, name)
        return lambda: set_attribute(obj, name, value)
    return lambda: set_attribute(obj, name, NULL)


def set_attribute(obj: Any, name: str, value: Any) -> None:
    """Set (or, with `NULL`, delete) an attribute by C code, past what a metaclass makes of it."""
    if issubclass(type(obj), type):
        setter, deleter = type.__setattr__, type.__delattr__
    else:
        setter, deleter = setattr, delattr
    if value is NULL:
        deleter(obj, name)
    else:
        setter(obj, name, value)


def takes(obj: Any, descriptor: Any, value: Any) -> bool:
    """Whether setting the attribute of an outside object cannot fail, and C code asks none for it:
    one of `__slots__` takes any value; of others of C, the texts of functions are known. Their
    names are in texts of C, and can be set to what they are."""
    owner = getattr(descriptor, "__objclass__", None)
    if owner is FunctionType and descriptor.__name__ in ("__name__", "__qualname__"):
        return type(value) is str and descriptor.__get__(obj) == value
    if owner is FunctionType:  # deleted, they are None
        return descriptor.__name__ in ("__doc__", "__module__") and value is not NULL
    return type(descriptor) is MemberDescriptorType and bool(
        flags_of(descriptor.__objclass__) & HEAP_TYPE
    )


def made_since(created: Mapping[int, Any], known: int) -> frozenset[int]:
    """The ids of what was made after the first so many objects, and of where attributes of it
    lie."""
    made = list(islice(created.values(), known, None))
    namespaces = [found for found in map(_namespace, made) if found is not None]
    return frozenset(map(id, (*made, *namespaces)))


def raises_older(journal: Sequence[Callable[[], object]], fresh: Collection[int]) -> bool:
    """Whether an exception was raised, or its traceback written, that had been raised before; one
    that had not is of no other use than to be raised."""
    raised = set(fresh)
    for undo in journal:
        if type(undo) is partial and undo.func is put_back:
            error, state = undo.args
            if state == UNRAISED:
                raised.add(id(error))
            elif id(error) not in raised:
                return True
    return False


def _namespace(obj: Any) -> Any:
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


def has_older_writes(journal: Sequence[Callable[[], object]], fresh: Collection[int]) -> bool:
    """Whether these entries of a journal undo a write to what is not among the `fresh` objects, by
    id. Classes that were looked up are no writes."""
    if raises_older(journal, fresh):
        return True
    for undo in journal:
        if type(undo) is partial:
            continue
        cells = getattr(undo, "__closure__", None) or ()
        if not any(id(cell.cell_contents) in fresh for cell in cells):
            return True
    return False


def set_behind(descriptor: Any, obj: Any, value: Any) -> None:
    """Set, or with `NULL` delete, what a C descriptor gives."""
    if value is NULL:
        descriptor.__delete__(obj)
    else:
        descriptor.__set__(obj, value)
