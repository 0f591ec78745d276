"""Importing a module while recording.

In: a call of `__import__`. Out: the module, which is relied on. What is loaded runs now, and C
looks at what really lies in `sys.modules` and its like: an import breaks where the program has
written to these, or where code of its own would see what the segment has not written yet.
"""

from __future__ import annotations

import importlib.util
import sys
from types import FunctionType, ModuleType
from typing import Any

from anyshape.capture.heap import purity
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter import class_polyfills
from anyshape.capture.recording.domain import RecordingDomain

ASKED = ("modules", "path", "meta_path", "path_hooks", "path_importer_cache")
"""What importing reads, by name in `sys`."""


def import_now(domain: RecordingDomain, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`__import__(...)`."""
    heap = domain.machine.heap
    if _has_written_what_is_asked(heap):
        raise broken("unknown-call", "an import, after what it looks at was written,")
    name, names = _asked_for(*args, **kwargs)
    known = sys.modules.get(name)
    if type(known) is ModuleType and not purity.is_library(name):
        if heap.effects and _has_more_to_load(known, names):
            raise broken("unknown-call", _LOADING)
        if names and type(vars(known).get("__getattr__")) is FunctionType and not kwargs:
            domain.relied.found(sys.modules, name, known)
            return Call(class_polyfills.imported, (known, args))
    elif known is None and heap.effects and not purity.is_library(name):
        raise broken("unknown-call", _LOADING)
    module = __import__(*args, **kwargs)
    if sys.modules.get(module.__name__) is module:
        domain.relied.found(sys.modules, module.__name__, module)
    return module


_LOADING = "an import that loads a module, after other effects,"


def _has_written_what_is_asked(heap: Heap) -> bool:
    now = heap.mirror_of(vars(sys))
    return any(
        now.get(name) is not getattr(sys, name) or _is_written(heap, getattr(sys, name))
        for name in ASKED
    )


def _is_written(heap: Heap, container: Any) -> bool:
    known = heap.mirrors.get(id(container))
    return id(container) in heap.unread or (known is not None and known.written)


def _asked_for(
    name: str,
    globals: Any = None,
    locals: Any = None,
    fromlist: Any = (),
    level: int = 0,
) -> tuple[str, Any]:
    """The whole name of the module, and the names that are taken of it."""
    if level:
        package = (globals or {}).get("__package__")
        if type(package) is not str:  # C looks for it elsewhere, and may warn
            raise broken("unknown-call", "a relative import without a `__package__`")
        name = importlib.util.resolve_name("." * level + name, package)
    return name, fromlist or ()


def _has_more_to_load(module: ModuleType, names: Any) -> bool:
    """Whether names taken of a package may be modules that are not loaded yet."""
    own = vars(module)
    return "__path__" in own and any(name not in own for name in names)
