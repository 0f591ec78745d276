"""Builtins that the program has put something else in the place of: this code would meet it, too.

In: the module of builtins. Out: whether one of those that the compiler calls is another one than
when it was loaded. What only talks to the user, or imports, may be replaced.
"""

from __future__ import annotations

import builtins
import operator
import types

_FUNCTIONS = (
    *("len", "isinstance", "issubclass", "hash", "id", "iter", "next", "getattr", "hasattr"),
    *("setattr", "callable", "repr", "vars", "min", "max", "sum", "sorted", "any", "all", "abs"),
    *("divmod", "pow", "round", "ord", "chr", "format", "exec", "compile"),
)
_RELIED_ON = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) or name in _FUNCTIONS
}


def are_there(names: types.ModuleType = builtins) -> bool:
    """Whether a builtin that the compiler relies on has been replaced."""
    now = map(vars(names).get, _RELIED_ON)
    return any(map(operator.is_not, now, _RELIED_ON.values()))
