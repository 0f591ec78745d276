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
from anyshape.capture.purity import TRUSTED
from anyshape.capture.reads import CONSTANTS, is_simple
from anyshape.capture.sources import Sources

IMMUTABLE_TYPE, HEAP_TYPE = 1 << 8, 1 << 9  # flags of classes


@dataclass(slots=True, eq=False)
class Reliance:
    """Grows during one capture."""

    sources: Sources
    guards: list[Guard] = field(default_factory=list)
    _trusted: dict[str, bool] = field(default_factory=dict)
    _forget: dict[int, Any] = field(default_factory=dict)
    _remembered: dict[Any, tuple[Any, tuple[Any, ...], Any]] = field(default_factory=dict)
    _entered: set[int] = field(default_factory=set)
    _asked: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...], Any]] = field(default_factory=dict)
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

    def asked(self, fn: Any, args: tuple[Any, ...]) -> Any:
        """A C function was asked about the process (how many threads, ...): its answer."""
        answer = fn(*args)
        if type(answer) in CONSTANTS and all(type(arg) in CONSTANTS for arg in args):
            self._asked.setdefault((fn, *args), (fn, args, answer))
        return answer

    def remembered(self, fn: Any, args: tuple[Any, ...], result: Any) -> None:
        """A function that remembers its results gave one; it may forget them, and give another."""
        if args and all(type(arg) in CONSTANTS for arg in args):
            self._remembered.setdefault((id(fn), *args), (fn, args, result))
        else:
            self._forget.setdefault(id(fn), fn)

    def all_guards(self) -> Iterator[Guard]:
        """Everything relied on so far."""
        yield from self.guards
        child, const = self.sources.child, self.sources.const
        for fn, args, answer in self._asked.values():
            if fn(*args) == answer:  # before the program, too, and not by what it did
                yield Guard(child(const(fn, fn.__name__), "call", args), "equals", answer)
        for fn, args, result in self._remembered.values():
            kind = "equals" if type(result) in CONSTANTS else "is"
            yield Guard(child(const(fn, told(fn)), "call", args), kind, result)
        for fn in self._forget.values():
            kept = fn.cache_info().currsize
            yield Guard(const(fn, told(fn)), "remembers", kept)
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


def told(fn: Any) -> str:
    """The name of a callable."""
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__)


def _told(holder: Any) -> str:
    named = holder.get("__name__") if type(holder) is dict else getattr(holder, "__name__", None)
    return str(named or "names")
