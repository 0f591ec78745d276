"""What a program relies on without saying so: the code and the defaults of the functions it
enters, and the names it finds in torch and in the standard library.

In: each function that is entered, each default that a call leaves to it, each name that was found
or missed in a module or class that hardly ever changes. Out: guards. Those of the libraries are
made at the end only, one for each name, and told as one line.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anyshape.capture.guards import FunctionState, Guard, namespace_of
from anyshape.capture.reads import CONSTANTS, TRUSTED, is_simple
from anyshape.capture.sources import Sources

IMMUTABLE_TYPE, HEAP_TYPE = 1 << 8, 1 << 9  # flags of classes


@dataclass(slots=True, eq=False)
class Reliance:
    """Grows during one capture."""

    sources: Sources
    guards: list[Guard] = field(default_factory=list)
    _trusted: dict[str, bool] = field(default_factory=dict)
    _entered: set[int] = field(default_factory=set)
    _found: dict[tuple[int, Any], tuple[str, dict[Any, Any], Any]] = field(default_factory=dict)

    def is_library(self, obj: Any, kind: str) -> bool:
        """Does a read of this kind look into a module or class of a library?"""
        if kind in ("global", "unbound"):
            name = obj.get("__name__", "")
        elif isinstance(obj, (type, types.FunctionType)):
            name = obj.__module__ or ""
        elif isinstance(obj, types.ModuleType):
            name = obj.__name__
        else:
            return False
        known = self._trusted.get(name)
        if known is None:
            known = isinstance(name, str) and name.partition(".")[0] in TRUSTED
            self._trusted[name] = known
        return known

    def found(self, holder: Any, name: Any, value: Any) -> None:
        """A name of a library was found, or missed (`value` is not what lies there then)."""
        table = names_of(holder)
        if table is not None and (id(table), name) not in self._found:
            self._found[id(table), name] = _told(holder), table, value

    def is_fixed(self, fn: types.FunctionType) -> bool:
        """Is it the very object each time? Of others the code is relied on where they lie."""
        source = self.sources.of(fn)
        return source is None or source.is_pinned

    def entered(self, fn: types.FunctionType) -> None:
        """An outside function is interpreted: another code or other defaults are another one."""
        if id(fn) not in self._entered:
            self._entered.add(id(fn))
            source = self.sources.const(fn, fn.__qualname__)
            self.guards.append(Guard(source, "function", FunctionState.of(fn)))

    def default(self, fn: types.FunctionType, name: str, value: Any) -> None:
        """A call leaves a parameter to an outside function's default, which may be changed in
        place."""
        if type(value) not in CONSTANTS and not (type(value) is tuple and is_simple(value)):
            if self.sources.of(value) is None:
                self.sources.const(value, f"{name} of {fn.__qualname__}")

    def all_guards(self) -> Iterator[Guard]:
        """Everything relied on so far."""
        yield from self.guards
        child = self.sources.child
        for (_, name), (holder, table, value) in self._found.items():
            source = self.sources.const(table, holder)
            if name in table and table[name] is value:
                yield Guard(child(source, "item", name), "is", value, library=True)
            elif name not in table:
                yield Guard(source, "contains", (name, False), library=True)


def names_of(holder: Any) -> dict[Any, Any] | None:
    """The dictionary in which a module or a class keeps its names; None where none can change."""
    if type(holder) is dict:
        return holder
    if isinstance(holder, type):
        changes = holder.__flags__ & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE
        return namespace_of(holder) if changes else None
    return vars(holder) if isinstance(holder, types.ModuleType) else None


def _told(holder: Any) -> str:
    named = holder.get("__name__") if type(holder) is dict else getattr(holder, "__name__", None)
    return str(named or "names")
