"""Mirrors: a copy of each kind of container, every element of which went through `Domain.read`.

`read(obj, kind, key, value)` gives what the program shall see of an outside container's length,
keys and items (see domain.py).
"""

from __future__ import annotations

import gc
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.quiet_classes import bare_name, class_entry, flags_of, has_entry
from anyshape.nouns import mutable

Read = Callable[[Any, str, Any, Any], Any]
Copier = Callable[[Read, Any], Any]
LARGEST_BUFFER = 1 << 16
"""Bytes that a guard compares."""
MAXLEN = vars(deque)["maxlen"].__get__
VIEWS = {
    type(getattr(made(), name)()): name
    for made in (dict, OrderedDict)
    for name in ("keys", "values", "items")
}
"""The views of mappings, and the methods that give them."""


def maker_of(view: type) -> Any:
    """The method of C that gives views of a kind, whatever a subclass has of its name."""
    base = OrderedDict if view.__name__.startswith("odict") else dict
    return vars(base)[VIEWS[view]]


@mutable
class Mirror:
    """The stand-in of an outside container; `written` once it no longer shows what is outside.

    One that was made for a write to an attribute has not been read: `touched` are the names that
    were written, and the other entries lie in it as outside. It is None once all has been read.
    """

    real: Any
    state: Any
    written: bool = False
    touched: set[str] | None = None

    def touch(self, name: str) -> Callable[[], None] | None:
        """The entry is written; gives what takes that back, None where nothing has changed."""
        if self.touched is None or name in self.touched:
            return None
        self.touched.add(name)
        return partial(self.touched.remove, name)

    def read_whole(self, read: Read) -> Callable[[], None]:
        """Reads what has not been written; gives what takes that back."""
        touched, before = self.touched, dict(self.state)
        assert touched is not None
        keys = keys_in_order(self.real)
        read(self.real, "keys", None, keys)
        for key in keys:
            if key not in touched:
                value = dict.__getitem__(self.real, key)
                self.state[key] = read(self.real, kind_of_entry(self.real), key, value)
        self.touched = None
        return partial(self._forget_read, touched, before)

    def _forget_read(self, touched: set[str], before: dict[str, Any]) -> None:
        self.touched = touched
        self.state.clear()
        self.state.update(before)


def mapping_behind(view: Any) -> Any:
    """The dict of a dict view or a read-only proxy. A view's `mapping` is a proxy, whose `|` gives
    away the dict's type only; so ask the collector.
    """
    for referent in gc.get_referents(view):
        if issubclass(type(referent), dict):
            return referent
    return None


def written_behind(view: Any, *written: Mapping[int, Any]) -> Any:
    """The dict that a read-only proxy shows, where one of `written` knows it, by id: the dict
    itself is not what the program has made of it. Anything else as it is."""
    if type(view) is not MappingProxyType:
        return view
    mapping = mapping_behind(view)
    return mapping if any(id(mapping) in known for known in written) else view


def buffer_of(obj: Any) -> tuple[str, tuple[int, ...], bytes] | None:
    """(format, shape, bytes) of what gives its memory away and holds little: an array of `array` or
    numpy, a memoryview. None for anything else.
    """
    try:
        view = memoryview(obj)
        if view.nbytes > LARGEST_BUFFER or "O" in view.format:
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
        if has_entry(type(obj), "n_sequence_fields"):  # a struct sequence of C: torch.return_types
            return type(obj)(values)
        return tuple.__new__(type(obj), values)
    except TypeError:  # one that cannot be made (sys.version_info): constants
        return obj


def keys_in_order(obj: Any) -> tuple[Any, ...]:
    """Those of a dict. What is written to an OrderedDict past its own methods is not in its order:
    C code refuses to iterate over such a one."""
    if not issubclass(type(obj), OrderedDict):
        return tuple(dict.keys(obj))
    try:
        keys = tuple(OrderedDict.keys(obj))
    except KeyError:
        keys = ()
    if len(keys) != dict.__len__(obj):
        raise broken("unknown-call", "an OrderedDict that was written past its own methods")
    return keys


def kind_of_entry(obj: dict[Any, Any]) -> str:
    """How guards read what lies in a dict: past a `__getitem__` of its class."""
    return "item" if class_entry(type(obj), "__getitem__") is dict.__getitem__ else "entry"


def _mirror_dict(read: Read, obj: Any) -> Any:
    keys = keys_in_order(obj)
    read(obj, "keys", None, keys)
    twin = _empty_dict_like(obj)
    step = kind_of_entry(obj)
    for key in keys:
        if not dict.__contains__(obj, key):
            raise broken("unknown-call", "a dict with a key whose hash has changed")
        value = read(obj, step, key, dict.__getitem__(obj, key))
        if issubclass(type(obj), OrderedDict):
            OrderedDict.__setitem__(twin, key, value)
        else:
            dict.__setitem__(twin, key, value)
    return twin


def _empty_dict_like(obj: Any) -> Any:
    base: Any = next(b for b in (defaultdict, OrderedDict, dict) if issubclass(type(obj), b))
    twin = base.__new__(type(obj))
    if base is defaultdict:
        factory: Any = vars(defaultdict)["default_factory"]
        factory.__set__(twin, factory.__get__(obj))
    return twin


def _mirror_set(read: Read, obj: Any) -> Any:
    """A set of its elements in its order, which what was removed from it may decide, too: the set
    itself where none can be made, which may then be read, and not written."""
    values = _in_order(obj)
    read(obj, "keys", None, values)
    merged: set[Any] = set()
    set.update(merged, obj)
    for elements in (values, merged):  # added one by one, or copied from another set
        twin = _set_like(obj, elements)
        if all(map(operator.is_, values, _in_order(twin))):
            return twin
    return obj


def require_growth_of(twin: Any, real: Any) -> None:
    """Breaks where a set has another table than the set it stands for: written, the two would come
    to have other orders. So does a bytearray from outside, which refuses to grow and to shrink
    while a view of it lives."""
    if issubclass(type(real), bytearray):
        raise broken("unknown-call", "what writes a bytearray from outside")
    if issubclass(type(real), set) and (
        twin is real or set.__sizeof__(twin) != set.__sizeof__(real)
    ):
        raise broken("unknown-call", "what writes a set whose order its elements do not tell")


def _in_order(obj: Any) -> tuple[Any, ...]:
    return tuple(set.__iter__(obj) if issubclass(type(obj), set) else frozenset.__iter__(obj))


def _set_like(obj: Any, elements: tuple[Any, ...] | set[Any]) -> Any:
    if issubclass(type(obj), frozenset):
        return frozenset.__new__(type(obj), elements)
    twin = set.__new__(type(obj))
    set.update(twin, elements)
    return twin


def _mirror_deque(read: Read, obj: Any) -> Any:
    read(obj, "count", None, deque.__len__(obj))
    if class_entry(type(obj), "maxlen") is not vars(deque)["maxlen"]:
        raise broken("unknown-call", f"a {bare_name(type(obj))} that hides its length")
    read(obj, "maxlen", None, MAXLEN(obj))
    values = enumerate(deque.__iter__(obj))
    twin = deque.__new__(type(obj))
    deque.__init__(twin, [read(obj, "item", i, value) for i, value in values], MAXLEN(obj))
    return twin


def _mirror_bytes(read: Read, obj: Any) -> Any:
    content = bytes(bytearray.__iter__(obj))
    read(obj, "keys", None, tuple(content))
    twin = bytearray.__new__(type(obj))
    bytearray.__init__(twin, content)
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


def dies_in_python(kind: type) -> bool:
    """Whether code of the program runs where an object of the class dies: a copy would be one."""
    return bool(flags_of(kind) & HEAP_TYPE) and class_entry(kind, "__del__") is not None


def copier_of(obj: Any) -> Copier | None:
    for kind, copier in _COPIERS:
        if issubclass(type(obj), kind):
            if dies_in_python(type(obj)):
                raise broken("unknown-call", f"{bare_name(type(obj))}.__del__, of a copy,")
            return copier
    return None
