"""Builtins that the program has replaced: capture would meet it, too.

In: the module of builtins. Out: whether one of those that the compiler calls is another one than
when it was loaded.
"""

from __future__ import annotations

import builtins
import operator
import types

from anyshape.known_builtins import RELIED_ON


def are_there(names: types.ModuleType = builtins) -> bool:
    """Whether a builtin that the compiler relies on has been replaced."""
    now = map(vars(names).get, RELIED_ON)
    return any(map(operator.is_not, now, RELIED_ON.values()))
