"""Functions and classes of a module of C that a program has imported once more.

In: a function or a class. Out: the one of the module as it was imported first, which tables know.
Only modules that keep nothing, so that their copies do the same.
"""

from __future__ import annotations

import _bisect
import _heapq
import _json
import _operator
import _statistics  # type: ignore[import-not-found]
from types import BuiltinFunctionType, ModuleType
from typing import Any

from anyshape.capture.heap.quiet_classes import bare_name, class_module, mro_of, namespace_of

WITHOUT_STATE = (_bisect, _heapq, _json, _operator, _statistics)
FUNCTIONS = {
    (module.__name__, name): value
    for module in WITHOUT_STATE
    for name, value in vars(module).items()
    if type(value) is BuiltinFunctionType
}


def original(fn: Any) -> Any:
    """The function as tables have it, where this is a copy of it; None of any other."""
    if type(fn) is not BuiltinFunctionType or type(fn.__self__) is not ModuleType:
        return None
    known = FUNCTIONS.get((fn.__self__.__name__, fn.__name__))
    return None if known is fn else known


CLASSES = {cls.__name__: cls for cls in (_json.make_scanner, _json.make_encoder)}


def original_class(cls: type) -> Any:
    """The class as tables have it, where C has made this one of the same parts; None of any
    other."""
    known = CLASSES.get(bare_name(cls))
    if known is None or known is cls or class_module(cls) != known.__module__:
        return None
    return (
        known if len(mro_of(cls)) == len(mro_of(known)) and _parts(cls) == _parts(known) else None
    )


def _parts(cls: type) -> dict[str, type]:
    """What lies in the class, each by what it is: a method of C is one of C in its copy."""
    return {name: type(part) for name, part in namespace_of(cls).items()}
