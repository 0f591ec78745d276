"""Python's builtins as they were when the compiler was loaded: a program may put its own functions
in their place, which our code is not to call.

Out: `generated`, for functions whose text we write; and names that our modules have as their own
(`keep`), so that they are found there first.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

BUILTINS = dict(vars(builtins))

FUNCTIONS = (
    *("len", "isinstance", "issubclass", "hash", "id", "iter", "next", "getattr", "hasattr"),
    *("setattr", "callable", "repr", "vars", "min", "max", "sum", "sorted", "any", "all", "abs"),
    *("divmod", "pow", "round", "ord", "chr", "format", "exec", "compile"),
)
RELIED_ON = {
    name: value for name, value in BUILTINS.items() if isinstance(value, type) or name in FUNCTIONS
}
"""What the compiler calls. What only talks to the user, or imports, may be replaced."""


def keep(*packages: str) -> None:
    """Gives these names to the modules of packages that run while a program does."""
    for name, module in sys.modules.copy().items():
        if name.startswith(packages):
            names = vars(module)
            names.update({**RELIED_ON, **names})


def generated(text: str, file: str, scope: dict[str, Any], name: str) -> Any:
    """The function of this name that the text defines, with what it calls in `scope`."""
    scope["__builtins__"] = BUILTINS
    exec(compile(text, file, "exec"), scope)
    return scope.pop(name)  # no cycle: what it holds dies with it
