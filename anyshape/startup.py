"""What is to be done once torch has been imported, by whom and when ever that is.

In: a function. Out: it is called at once where torch is there, else at the end of torch's import;
until then nothing of torch is imported.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def after_import(name: str, then: Callable[[], object]) -> None:
    """Calls `then` once the module of this name has been imported."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Following(name, then))


class _Following(MetaPathFinder):
    """Has the module's own loader call `then` behind it, and takes itself out."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            loader.exec_module = self._followed(loader)
        return spec

    def _followed(self, loader: Any) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # from here on it is as it was
            loader.exec_module(module)
            self.then()

        return exec_module
