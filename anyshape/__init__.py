"""anyshape: compile PyTorch programs whose shapes are not known. Public names only.

They are looked up when they are first used, so that the torch-free layers (`anyshape.symbolic`,
`anyshape.ir`, ...) can be used and tested where torch is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyshape.on_use import loaded
from anyshape.options import installs
from anyshape.startup import after_import

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
    from anyshape.runtime.profile import profile

__all__ = (
    "check",
    "compile",
    "explain",
    "install",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "profile",
    "reset",
    "uninstall",
)
API = "anyshape.api"
MODULES = {
    "install": "anyshape.dynamo.install",
    "profile": "anyshape.runtime.profile",
    "uninstall": "anyshape.dynamo.install",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'anyshape' has no attribute {name!r}")
    value = globals()[name] = getattr(loaded(MODULES.get(name, API)), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _install() -> None:
    __getattr__("install")(everything=installs() == "everything")  # type: ignore[operator]


if installs():
    after_import("torch", _install)
