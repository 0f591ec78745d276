"""The attributes of objects whose class has no `__dict__` to ask for them: since 3.12 the
parameters of `typing`, and futures of C's `asyncio`; and those of partials and exceptions, which
have a dictionary once somebody has asked for it, and are told apart by that.

In: an object. Out: its dictionary, or None where it has none or its class shows it.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import types
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import class_entry
from anyshape.capture.heap.values import NULL

_generic_dict: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyObject_GenericGetDict", ctypes.pythonapi)
)
_offset = type.__dict__["__dictoffset__"].__get__
PARTIAL_FIELDS = {
    name: functools.partial.__dict__[name].__get__ for name in ("func", "args", "keywords")
}
"""What a partial holds, whatever its class says."""


_OF_C = (types.GetSetDescriptorType, types.MemberDescriptorType)


def hides(cls: type) -> bool:
    """Whether objects of a class have attributes of their own and no `__dict__`, or another than
    these: what a property of the program says."""
    return _offset(cls) != 0 and not _shows(cls)


def _shows(cls: type) -> bool:
    """Whether C code gives the `__dict__` of objects of a class."""
    return type(class_entry(cls, "__dict__")) in _OF_C


def hidden_dict(obj: Any) -> dict[str, Any] | None:
    """What `__dict__` would be."""
    found: dict[str, Any] | None = _generic_dict(obj, None) if hides(type(obj)) else None
    return found


def dict_of_partial(value: Any) -> dict[str, Any] | None:
    """The attributes of a `functools.partial`, if it has a dictionary of them already."""
    keywords = PARTIAL_FIELDS["keywords"](value)
    others = (found for found in gc.get_referents(value) if found is not keywords)
    return next((found for found in others if type(found) is dict), None)


def is_bare(obj: Any) -> bool:
    """Whether it is an exception that has no dictionary of attributes yet: asking for it makes one,
    which `__reduce__` tells."""
    kind = type(obj)
    if not issubclass(kind, BaseException):
        return False
    offset = _offset(kind)
    return offset > 0 and ctypes.c_void_p.from_address(id(obj) + offset).value is None


def lazy_dict(obj: Any) -> Any:
    """What lies in the dictionary of an object that gets one by being asked, without asking; NULL
    of any other."""
    if issubclass(type(obj), functools.partial):
        return dict_of_partial(obj)
    return {} if is_bare(obj) else NULL


def gets_a_dict(obj: Any) -> bool:
    """Whether asking for its `__dict__` changes the object."""
    return issubclass(type(obj), functools.partial) and dict_of_partial(obj) is None


def refuse_to_give(obj: Any, name: str, created: Mapping[int, Any]) -> None:
    """A partial from outside is not to be changed by asking for its `__dict__`."""
    if name == "__dict__" and id(obj) not in created and gets_a_dict(obj):
        raise broken("python-effect", "asking a partial for its __dict__")


def replace_namespace(
    namespaces: dict[int, Any], obj: Any, value: Any, created: Mapping[int, Any]
) -> Callable[[], None]:
    """An object of the trace has been given another `__dict__`: the one before is a dictionary as
    any. What puts back who owns which."""
    lazy = issubclass(type(obj), functools.partial)
    if not issubclass(type(value), dict) and (lazy or value is not NULL):
        return lambda: None  # C refuses
    old = dict_of_partial(obj) if lazy else object.__getattribute__(obj, "__dict__")
    owner = namespaces.get(id(old))
    known = namespaces.get(id(value))
    if owner is obj:
        del namespaces[id(old)]
    if type(value) is dict and id(value) in created and known is None:
        namespaces[id(value)] = obj

    def put_back() -> None:
        for key, found in ((id(value), known), (id(old), owner)):
            namespaces.pop(key, None)
            if found is not None:
                namespaces[key] = found

    return put_back


def names_of(obj: Any) -> Any:
    """`obj.__dict__`, None where it has none, or code of the program is asked for it."""
    return None if gets_a_dict(obj) or is_bare(obj) else shown_dict(obj)


def shown_dict(obj: Any) -> Any:
    """The same; an object may get it by being asked."""
    if not _shows(type(obj)):
        return None
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


def dict_as_it_lies(obj: Any) -> dict[Any, Any] | None:
    """The dictionary of an object's own attributes, if it is a plain one that is there already."""
    found = names_of(obj)
    return found if type(found) is dict else None
