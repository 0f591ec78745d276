"""Functions of a module of C that a program has imported once more.

In: a function. Out: the one of the module as it was imported first, which tables know. Only modules
that keep nothing, so that their copies do the same.
"""

from __future__ import annotations

import _bisect
import _heapq
import _json
import _statistics  # type: ignore[import-not-found]
from types import BuiltinFunctionType, ModuleType
from typing import Any

WITHOUT_STATE = (_bisect, _heapq, _json, _statistics)
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
