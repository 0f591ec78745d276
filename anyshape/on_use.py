"""Modules that are loaded where something of theirs is first asked for.

In: a module's name. Out: what stands for it. The one idea: what many processes never need (the
compiler where nothing is compiled, gradients, a GPU's target) is no import of what they do need.
Names are given as text, in tables: a type checker and the contracts of layers see the same modules
under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import gc
import importlib
from types import ModuleType
from typing import Any


def loaded(name: str) -> ModuleType:
    """The module; imported without looking for garbage meanwhile, as hundreds of modules leave
    none: looking for it is a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if collecting:
            gc.enable()


class OnUse:
    """A module whose names are looked up when they are used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(loaded(self._name), name)
