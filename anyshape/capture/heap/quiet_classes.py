"""What `type` itself keeps of a class: to read it calls no `__getattribute__` and no property of a
metaclass, as `cls.__mro__` and its like do.

In: a class. Out: what CPython's own C code reads of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.purity import is_library

C_FUNCTIONS = frozenset(
    {
        type(list.append),
        type(object.__init__),
        type(vars(dict)["fromkeys"]),
        BuiltinFunctionType,
    }
)
"""The classes of what C code is called by, in the namespace of a class."""
_GETTERS = type.__dict__

flags_of: Callable[[Any], int] = _GETTERS["__flags__"].__get__
bare_name: Callable[[Any], str] = _GETTERS["__name__"].__get__
qualified_name: Callable[[Any], str] = _GETTERS["__qualname__"].__get__
weakref_offset: Callable[[Any], int] = _GETTERS["__weakrefoffset__"].__get__
_module: Callable[[Any], Any] = _GETTERS["__module__"].__get__
_mro: Callable[[Any], tuple[type, ...] | None] = _GETTERS["__mro__"].__get__
_namespace: Callable[[Any], Mapping[str, Any] | None] = _GETTERS["__dict__"].__get__


def mro_of(cls: type) -> tuple[type, ...]:
    """The classes in which names are looked up. C makes some of its own ready where the first
    attribute of them is read; these have no metaclass but `type`."""
    return _mro(cls) or cls.__mro__


def namespace_of(cls: type) -> Mapping[str, Any]:
    """What a class has under its own names, once C has made it ready."""
    found = _namespace(cls)
    return vars(cls) if found is None else found


def class_module(cls: Any) -> str:
    """Of a class whose body says something else than a text there, that one's text."""
    found = _module(cls)
    return found if type(found) is str else str(found)


def class_entry(cls: type, name: str) -> Any:
    """What the first class of the MRO has under a name; None where none has it."""
    for base in _mro(cls) or cls.__mro__:  # as `mro_of` and `namespace_of`, without their calls
        names = _namespace(base)
        if names is None:
            names = vars(base)
        if name in names:
            return names[name]
    return None


def is_slot_of_c(cls: type, name: str, attribute: Any) -> bool:
    """Whether what a class has under a special name is what C itself has there for the nearest of
    its classes of C that have the name, and no function of C that the program has put there:
    `__getitem__ = dict.pop` writes, and `__bool__ = dict.__len__` gives no bool."""
    if type(attribute) not in C_FUNCTIONS:
        return False
    if not flags_of(cls) & HEAP_TYPE:
        return True
    for base in mro_of(cls):
        found = namespace_of(base).get(name)
        if type(found) not in C_FUNCTIONS:
            continue
        if maker_of(found) is base:
            return found is attribute
        if found is attribute and is_library(class_module(base)):
            return True  # an `IntEnum` is shown as a number
    return False


def is_of_code(cls: type, name: str) -> bool:
    """Whether code of Python, or a function of C that is not C's own there, answers for a special
    method."""
    found = class_entry(cls, name)
    if type(found) is FunctionType:
        return True
    return type(found) in C_FUNCTIONS and not is_slot_of_c(cls, name, found)


def maker_of(function: Any) -> Any:
    """The class that C has made this function for."""
    return function.__self__ if type(function) is BuiltinFunctionType else function.__objclass__


def has_entry(cls: type, name: str) -> bool:
    """Whether a class, or one above it, has a name that `type` has not."""
    return hasattr(cls, name) if type(cls) is type else class_entry(cls, name) is not None
