"""Reads of objects that may be of other classes than capture saw, for explanations of failed
guards: what only code of the program could answer is not there.

A guard that holds has proven the classes on its way; one that is explained has not.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.hidden_dicts import hidden_dict, hides, names_of
from anyshape.capture.heap.quiet_classes import (
    class_entry,
    flags_of,
    is_of_code,
    is_slot_of_c,
    mro_of,
    namespace_of,
)
from anyshape.capture.heap.values import BOUND_IN_C, C_METHODS

SLOTS_ASKED: Mapping[str, tuple[str, ...]] = {
    "length": ("__len__",),
    "keys": ("__iter__", "__len__"),
    "contains": ("__contains__", "__getitem__", "__iter__"),
    "truth": ("__bool__", "__len__"),
    "unset": ("__getattribute__", "__getattr__"),
    "missing": ("__getattribute__",),
    "buffer": ("__getattribute__",),
    "attr": ("__getattribute__",),
    "len": ("__len__",),
    "item": ("__getitem__", "__missing__"),
    "entry": ("__getitem__", "__missing__"),
}
"""The special methods that a guard of a kind, or a step of a path, calls."""


def asks_the_program(obj: Any, kind: str) -> bool:
    """Whether a special method of the program's would answer."""
    names, cls = SLOTS_ASKED.get(kind), type(obj)
    if names is None or not flags_of(cls) & HEAP_TYPE:  # classes of C have none
        return False
    return any(is_of_code(cls, name) for name in names)


BY_KEY = frozenset({"contains", "item", "entry", "get"})
"""Guards and steps that look up a key."""
ASKING = BY_KEY.union(SLOTS_ASKED)
"""Guards and steps that may ask code of the program."""
_KEYED = (dict, set, frozenset)
_PLAIN = frozenset({str, int, bool, bytes, tuple, type(None)})
"""Classes of keys whose answers are C's, which nearly all keys are of."""


def asks_keys(obj: Any, kind: str) -> bool:
    """Whether to look up a key might call a `__hash__` or `__eq__` of the program's: of a key that
    lies in a dict or set."""
    if kind not in BY_KEY or not issubclass(type(obj), _KEYED):
        return False
    base: Any = next(c for c in _KEYED if issubclass(type(obj), c))
    unusual = {*map(type, base.__iter__(obj))} - _PLAIN
    return bool(unusual) and any(
        is_of_code(cls, name) for cls in unusual for name in ("__eq__", "__hash__")
    )


def kind_of_absence(obj: Any, kind: str) -> str:
    """The guard that says that an object has no such attribute (`missing`: of its own), without
    asking code of the program."""
    asked = issubclass(type(obj), type) and asks_the_program(obj, kind)
    lazy = hides(type(obj)) or issubclass(type(obj), BaseException)  # asked for, it is there
    if kind == "missing" and (asked or lazy):
        return "hidden"
    return "unset_in_c" if kind == "unset" and asks_the_program(obj, kind) else kind


def is_unset(obj: Any, name: str) -> bool:
    """Whether C code finds no such attribute, where a `__getattr__` or `__getattribute__` of the
    program might answer."""
    cls = type(obj)
    owners = (cls, obj) if issubclass(cls, type) else (cls,)
    if any(runs_a_function(class_entry(owner, name)) for owner in owners):
        return False
    try:
        _getattribute_in_c(cls)(obj, name)
    except AttributeError:
        return True
    return False


def _getattribute_in_c(cls: type) -> Any:
    """What a class would answer with, were it not for code of the program."""
    found = (namespace_of(base).get("__getattribute__") for base in mro_of(cls))
    return next(f for f in found if is_slot_of_c(cls, "__getattribute__", f))


def attribute(obj: Any, name: str) -> Any:
    """`obj.name` where C code gives it; AttributeError where code of the program would."""
    if asks_the_program(obj, "attr") or _names_ask(obj):
        raise AttributeError(name)
    if is_of_its_own(obj, name):
        return names_of(obj)[name]
    if issubclass(type(obj), type) and not issubclass(obj, type):
        return _found(obj, name)
    found = class_entry(type(obj), name)
    missing = found is None and is_of_code(type(obj), "__getattr__")
    if missing or runs_a_function(found):
        raise AttributeError(name)
    return _found(obj, name)


def member(obj: Any, name: str) -> Any:
    """What lies in a slot of that name; AttributeError where it is empty or no slot."""
    found = class_entry(type(obj), name)
    if type(found) is not types.MemberDescriptorType:
        raise AttributeError(name)
    return found.__get__(obj)


def quiet_getattr(fn: Any, name: str) -> Any:
    """What something that may be called says of itself; None if it says nothing, or by code of the
    program, which objects of C, nearly all that is asked, have none of."""
    if not flags_of(type(fn)) & HEAP_TYPE:
        return getattr(fn, name, None)
    try:
        return attribute(fn, name)
    except AttributeError:
        return None


def _found(obj: Any, name: str) -> Any:
    """`obj.name` without the `__getattr__` of its class, or of a module, which is asked for a slot
    that is not set, too."""
    if issubclass(type(obj), types.ModuleType):
        return object.__getattribute__(obj, name)
    return class_entry(type(obj), "__getattribute__")(obj, name)


def _names_ask(obj: Any) -> bool:
    """Whether a key among the object's own names is of a class of the program's."""
    names = None if issubclass(type(obj), type) else names_of(obj)
    return type(names) is dict and asks_keys(names, "item")


def is_of_its_own(obj: Any, name: Any) -> bool:
    """Whether the attribute is what the object's own dictionary holds, as it lies there: `__name__`
    of a metaclass is its own, that of the dictionary of `type` is for the classes made by it."""
    if not issubclass(type(obj), type):
        return name in (names_of(obj) or ())
    if name not in namespace_of(obj):
        return False
    if not issubclass(obj, type):
        return True
    return class_entry(type(class_entry(type(obj), name)), "__set__") is None


def own_names(obj: Any) -> Any:
    """What the object's own dictionary is, which no code of the program is asked for."""
    return namespace_of(obj) if issubclass(type(obj), type) else names_of(obj)


def hidden_names(obj: Any) -> Any:
    """The same where no `__dict__` of C shows them, or an exception has none yet; those of a class,
    which its metaclass might."""
    if issubclass(type(obj), type):
        return namespace_of(obj)
    return names_of(obj) or hidden_dict(obj) or ()


def runs_a_function(descriptor: Any) -> bool:
    """Whether code of the program, or what calls such, answers in place of a descriptor."""
    if type(descriptor) is property:
        return True
    return type(class_entry(type(descriptor), "__get__")) is types.FunctionType


_EXACTLY: dict[type, Callable[[Any], Any]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}
PLAIN_BASES = tuple(_EXACTLY)
"""What never changes of an object of a subclass, which C reads of it wherever it is used."""


def plain_of(value: Any) -> Any:
    """The number or text that an object of a subclass is, None for anything else; no code of its
    class is called."""
    found = (exactly for base, exactly in _EXACTLY.items() if issubclass(type(value), base))
    exactly = next(found, None)
    return None if exactly is None else exactly(value)


def descriptor_of(value: Any) -> Any:  # one of `C_METHODS`
    """The C method of a class that gives this one when it is bound to its object, as `super()` may
    have done; None for what is no such method."""
    if type(value) not in BOUND_IN_C:
        return None
    if issubclass(type(value.__self__), (types.ModuleType, type(None), type)):
        return None
    return method_behind(value)


def method_behind(value: Any) -> Any:  # one of `C_METHODS`
    """The same of a method of C that is bound to no class, whatever else it is bound to."""
    owner, name = value.__self__, value.__name__
    if type(value) is types.MethodWrapperType:
        found: Any = namespace_of(value.__objclass__).get(name)
        return found if type(found) in C_METHODS else None
    for base in mro_of(type(owner)):
        found = namespace_of(base).get(name)
        if type(found) in C_METHODS and found.__get__(owner, type(owner)) == value:
            return found
    return None
