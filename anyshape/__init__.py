"""anyshape: compile PyTorch programs whose shapes are not known. Public names only.

They are looked up when they are first used, so that the torch-free layers (`anyshape.symbolic`,
`anyshape.ir`, ...) can be used and tested where torch is not installed.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING

from anyshape.options import installs

if TYPE_CHECKING:
    from anyshape.api import (
        check,
        compile,
        explain,
        is_compiling,
        mark_dynamic,
        mark_static,
        mark_unbacked,
        reset,
    )
    from anyshape.dynamo.install import install, uninstall

__all__ = (
    "check",
    "compile",
    "explain",
    "install",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "reset",
    "uninstall",
)
API = "anyshape.api"
MODULES = {"install": "anyshape.dynamo.install", "uninstall": "anyshape.dynamo.install"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'anyshape' has no attribute {name!r}")
    collecting = gc.isenabled()
    gc.disable()  # 200 modules leave no garbage; looking for it is a third of the time
    try:
        value = globals()[name] = getattr(importlib.import_module(MODULES.get(name, API)), name)
    finally:
        if collecting:
            gc.enable()
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if asked := installs():
    __getattr__("install")(everything=asked == "everything")  # type: ignore[operator]
