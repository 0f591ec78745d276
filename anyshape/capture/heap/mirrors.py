"""Mirrors: a copy of each kind of container, every element of which went through `Domain.read`.

`read(obj, kind, key, value)` gives what the program shall see of an outside container's length,
keys and items (see domain.py).
"""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from anyshape.capture.heap.breaks import broken

Read = Callable[[Any, str, Any, Any], Any]
Copier = Callable[[Read, Any], Any]
HELD_AT_MOST = 1 << 16
"""Bytes that a guard compares."""


def mapping_behind(view: Any) -> Any:
    """The dict of a dict view or a read-only proxy. A view's `mapping` is a proxy, whose `|` gives
    away the dict's type only; so ask the collector.
    """
    for referent in gc.get_referents(view):
        if isinstance(referent, dict):
            return referent
    return None


def held_in(obj: Any) -> tuple[str, tuple[int, ...], bytes] | None:
    """(format, shape, bytes) of what gives its memory away and holds little: an array of `array` or
    numpy, a memoryview. None for anything else.
    """
    try:
        view = memoryview(obj)
        if view.nbytes > HELD_AT_MOST or "O" in view.format:
            return None
        return view.format, tuple(view.shape or ()), view.tobytes()
    except (TypeError, ValueError, BufferError):
        return None


def _mirror_list(read: Read, obj: Any) -> Any:
    count = read(obj, "count", None, list.__len__(obj))
    values = [read(obj, "item", index, value) for index, value in enumerate(list.__iter__(obj))]
    assert count == len(values)
    if type(obj) is list:
        return values
    twin = list.__new__(type(obj))
    list.extend(twin, values)
    return twin


def _mirror_tuple(read: Read, obj: Any) -> Any:
    read(obj, "count", None, tuple.__len__(obj))
    values = [read(obj, "item", i, value) for i, value in enumerate(tuple.__iter__(obj))]
    try:
        if hasattr(type(obj), "n_sequence_fields"):  # a struct sequence of C: torch.return_types
            return type(obj)(values)
        return tuple.__new__(type(obj), values)
    except TypeError:  # one that cannot be made (sys.version_info): constants
        return obj


def _mirror_dict(read: Read, obj: Any) -> Any:
    keys = (
        tuple(dict.keys(obj)) if not isinstance(obj, OrderedDict) else tuple(OrderedDict.keys(obj))
    )
    read(obj, "keys", None, keys)
    twin = _empty_dict_like(obj)
    step = "item" if type(obj).__getitem__ is dict.__getitem__ else "entry"
    for key in keys:
        if not dict.__contains__(obj, key):
            raise broken("unknown-call", "a dict with a key whose hash has changed")
        value = read(obj, step, key, dict.__getitem__(obj, key))
        if isinstance(obj, OrderedDict):
            OrderedDict.__setitem__(twin, key, value)
        else:
            dict.__setitem__(twin, key, value)
    return twin


def _empty_dict_like(obj: Any) -> Any:
    base: Any = next(b for b in (defaultdict, OrderedDict, dict) if isinstance(obj, b))
    twin = base.__new__(type(obj))
    if base is defaultdict:
        factory: Any = vars(defaultdict)["default_factory"]
        factory.__set__(twin, factory.__get__(obj))
    return twin


def _mirror_set(read: Read, obj: Any) -> Any:
    values = list(set.__iter__(obj) if isinstance(obj, set) else frozenset.__iter__(obj))
    read(obj, "keys", None, tuple(values))
    if isinstance(obj, frozenset):
        return frozenset.__new__(type(obj), values)
    twin = set.__new__(type(obj))
    set.update(twin, values)
    return twin


def _mirror_deque(read: Read, obj: Any) -> Any:
    read(obj, "count", None, deque.__len__(obj))
    values = enumerate(deque.__iter__(obj))
    twin = deque.__new__(type(obj))
    deque.__init__(twin, [read(obj, "item", i, value) for i, value in values], obj.maxlen)
    return twin


def _mirror_bytes(read: Read, obj: Any) -> Any:
    read(obj, "keys", None, tuple(obj))
    twin = bytearray.__new__(type(obj))
    bytearray.__init__(twin, bytes(obj))
    return twin


_COPIERS: tuple[tuple[type, Copier], ...] = (
    (list, _mirror_list),
    (tuple, _mirror_tuple),
    (dict, _mirror_dict),
    (set, _mirror_set),
    (frozenset, _mirror_set),
    (deque, _mirror_deque),
    (bytearray, _mirror_bytes),
)


def copier_of(obj: Any) -> Copier | None:
    for kind, copier in _COPIERS:
        if isinstance(obj, kind):
            return copier
    return None
