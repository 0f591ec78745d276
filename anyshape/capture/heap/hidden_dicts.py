"""The attributes of objects whose class has no `__dict__` to ask for them: since 3.12 the
parameters of `typing`, and futures of C's `asyncio`.

In: an object. Out: its dictionary, or None where it has none or its class shows it.
"""

from __future__ import annotations

import ctypes
from typing import Any

_generic_dict: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyObject_GenericGetDict", ctypes.pythonapi)
)
_offset = type.__dict__["__dictoffset__"].__get__
_mro = type.__dict__["__mro__"].__get__
_namespace = type.__dict__["__dict__"].__get__


def hides(cls: type) -> bool:
    """Whether objects of a class have attributes of their own and no `__dict__`."""
    if _offset(cls) == 0:
        return False
    for base in _mro(cls):  # no generator: it is asked for each attribute
        if "__dict__" in _namespace(base):
            return False
    return True


def hidden_dict(obj: Any) -> dict[str, Any] | None:
    """What `__dict__` would be."""
    found: dict[str, Any] | None = _generic_dict(obj, None) if hides(type(obj)) else None
    return found
