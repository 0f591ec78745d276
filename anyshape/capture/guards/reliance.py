"""What a program relies on without saying so: the code and the defaults of the functions it
enters, and the names it finds in torch and in the standard library.

In: each function that is entered, each default that a call leaves to it, each name that was found
or missed in a module or class that hardly ever changes. Out: guards. Those of the libraries are
made at the end only, one for each name, and printed as one line.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from anyshape.capture.guards.constant_kinds import CONSTANTS, is_simple
from anyshape.capture.guards.definitions import MRO, FunctionState
from anyshape.capture.guards.guard_code import Guard, own_dict, same_constant
from anyshape.capture.heap.class_attributes import may_change
from anyshape.capture.heap.purity import is_library
from anyshape.capture.heap.quiet_classes import (
    bare_name,
    class_module,
    namespace_of,
    qualified_name,
)
from anyshape.capture.heap.sources import Sources
from anyshape.nouns import mutable


@mutable(eq=False)
class Reliance:
    """Grows during one capture."""

    sources: Sources
    guards: list[Guard] = field(default_factory=list)
    _forget: dict[int, Any] = field(default_factory=dict)
    _inherited: dict[int, tuple[type, tuple[type, ...]]] = field(default_factory=dict)
    _entered: set[int] = field(default_factory=set)
    _answers: dict[Any, tuple[Any, tuple[Any, ...], Any]] = field(default_factory=dict)
    _found: dict[tuple[int, Any], tuple[str, dict[Any, Any], Any]] = field(default_factory=dict)

    def is_library(self, obj: Any, kind: str) -> bool:
        """Does a read of this kind look into a module or class of a library?"""
        if kind in ("global", "unbound"):
            name = obj.get("__name__", "")
        elif issubclass(type(obj), type):
            name = class_module(obj)
        elif isinstance(obj, types.FunctionType):
            name = obj.__module__ or ""
        elif isinstance(obj, types.ModuleType):
            name = obj.__name__
        else:
            return False
        return isinstance(name, str) and is_library(name)

    def found(self, holder: Any, name: Any, value: Any) -> None:
        """A name of a library was found, or missed (`value` is not what lies there then)."""
        table = _names_in(holder)
        if table is not None and (id(table), name) not in self._found:
            self._found[id(table), name] = holder_name(holder), table, value

    def has_found(self, names: dict[str, Any], name: Any) -> bool:
        """Whether the name in the names of a library's module is relied on already."""
        return (id(names), name) in self._found

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
        if type(answer) in CONSTANTS:
            self._answered(fn, args, answer)
        return answer

    def remembered(self, fn: Any, args: tuple[Any, ...], result: Any) -> None:
        """A function that remembers its results gave one; it may forget them, and give another."""
        if not args or not self._answered(fn, args, result):
            self._forget.setdefault(id(fn), fn)

    def inherits(self, cls: type) -> None:
        """A name was looked up along the MRO of a class, which other bases change; that of a class
        with no base but `object` is what it is, and those of libraries are left as they are."""
        mro = MRO(cls)
        if (
            may_change(cls)
            and len(mro) > 2
            and not is_library(str(namespace_of(cls).get("__module__")))
        ):
            self._inherited.setdefault(id(cls), (cls, mro))

    def not_a_subclass(self, sub: type, cls: type) -> None:
        """An abstract class may take the other in later, by `register`; those of libraries have
        done so."""
        if not (_is_of_library(sub) and _is_of_library(cls)):
            self._answered(issubclass, (sub, cls), False)

    def _answered(self, fn: Any, args: tuple[Any, ...], answer: Any) -> bool:
        """The same question is asked again before each call, if it can be."""
        can_be = all(type(arg) in CONSTANTS or isinstance(arg, type) for arg in args)
        if can_be:
            self._answers.setdefault((fn, *map(type, args), *args), (fn, args, answer))
        return can_be

    def all_guards(self) -> Iterator[Guard]:
        """Everything relied on so far."""
        yield from self.guards
        child, const = self.sources.child, self.sources.const
        for fn, args, answer in self._answers.values():
            now, plain = fn(*args), type(answer) in CONSTANTS
            if now is answer or (plain and same_constant(now, answer)):  # not by what it did
                kind = "equals" if plain else "is"
                yield Guard(child(const(fn, function_name(fn)), "call", args), kind, answer)
        for cls, mro in self._inherited.values():
            if MRO(cls) is mro:
                yield Guard(const(cls, holder_name(cls)), "mro", mro)
        for fn in self._forget.values():
            kept = fn.cache_info().currsize
            yield Guard(const(fn, function_name(fn)), "remembers", kept)
        for (_, name), (holder, table, value) in self._found.items():
            source = self.sources.const(table, holder)
            if name in table and table[name] is value:
                yield Guard(child(source, "item", name), "is", value, library=True)
            elif name not in table:
                yield Guard(source, "contains", (name, False), library=True)


def _names_in(holder: Any) -> dict[Any, Any] | None:
    """The dictionary in which a module or a class keeps its names; None where none can change."""
    if not may_change(holder):
        return None
    return holder if type(holder) is dict else own_dict(holder)


def _is_of_library(cls: Any) -> bool:
    """Of a class, or what `issubclass` takes for one: a union, an object with `__bases__`."""
    is_class = issubclass(type(cls), type)
    return is_library(class_module(cls) if is_class else str(getattr(cls, "__module__", "")))


def function_name(fn: Any) -> str:
    """The name of a callable."""
    if issubclass(type(fn), type):
        return qualified_name(fn)
    return str(getattr(fn, "__qualname__", None) or bare_name(type(fn)))


def holder_name(holder: Any) -> str:
    if issubclass(type(holder), type):
        return bare_name(holder)
    named = holder.get("__name__") if type(holder) is dict else getattr(holder, "__name__", None)
    return str(named or "names")
