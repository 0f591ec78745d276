"""Python functions of torch without their warnings.

    quiet(F.softmax)(x)    # without dim: no warning

In: a function. Out: whether its code can reach ``warnings.warn``, and a copy that does the same and
warns of nothing: what a compiled function calls has been warned of where the program called it.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Iterator
from typing import Any

DEEPEST = 4
"""How many calls lie between a function and its warning, at most."""
ASKED = ("torch", "anyshape.eager")
"""Modules whose functions are looked into, by how their names begin."""
DISPATCHES = "torch.overrides"
"""Hands a call on to a class of tensors that has a say in it."""


@functools.lru_cache(maxsize=4096)
def may_warn(fn: Any, depth: int = DEEPEST) -> bool:
    """Whether a Python function of torch can reach `warnings.warn`."""
    if not _is_function(fn) or not str(fn.__module__).startswith(ASKED):
        return False
    if fn.__module__ == DISPATCHES:
        return False
    if _warns(fn):
        return True
    called = (*(found for _, found in _globals_of(fn)), *_inside(fn))
    return depth > 0 and any(may_warn(part, depth - 1) for part in called if part is not fn)


def quiet(fn: Any) -> Any:
    """The function, or what does the same and warns of nothing."""
    return _quiet(fn, DEEPEST) if _is_function(fn) and may_warn(fn) else fn


@functools.lru_cache(maxsize=4096)
def _quiet(fn: types.FunctionType, depth: int) -> types.FunctionType:
    names = _Names(fn.__globals__)
    if _warns(fn):
        names["warnings"] = SILENT
    for name, found in _globals_of(fn):
        if depth and "." not in name and found is not fn and may_warn(found, depth - 1):
            names[name] = _quiet(found, depth - 1)
    modules = {name.partition(".")[0] for name, found in _globals_of(fn) if "." in name}
    for name in modules if depth else ():
        names[name] = _with_quiet_functions(fn, name, depth)
    cells = tuple([_quiet_cell(cell, depth) for cell in fn.__closure__ or ()]) or None
    made = types.FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__, cells)
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


class _Names(dict[str, Any]):
    """Globals of a copy: its own, and those of the function as they are now."""

    def __init__(self, names: dict[str, Any]) -> None:
        kept = "__builtins__", "__name__", "__package__", "__spec__"
        super().__init__({name: names[name] for name in kept if name in names})
        self.live = names

    def __missing__(self, name: str) -> Any:
        return self.live[name]


class _Module:
    """A module with some functions of it replaced."""

    def __init__(self, module: types.ModuleType, replaced: dict[str, Any]) -> None:
        vars(self).update(replaced)
        self.__module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__module, name)


SILENT = _Module(warnings, {"warn": lambda *args, **kwargs: None})


def _with_quiet_functions(fn: types.FunctionType, name: str, depth: int) -> Any:
    module = fn.__globals__[name]
    found = {part: vars(module).get(part) for part in fn.__code__.co_names}
    functions = {k: f for k, f in found.items() if f is not fn and may_warn(f, depth - 1)}
    replaced = {part: _quiet(f, depth - 1) for part, f in functions.items() if _is_function(f)}
    return _Module(module, replaced) if replaced else module


def _quiet_cell(cell: types.CellType, depth: int) -> types.CellType:
    found = _contents(cell)
    if depth and _is_function(found) and may_warn(found, depth - 1):
        return types.CellType(_quiet(found, depth - 1))
    return cell


def _is_function(found: Any) -> bool:
    return isinstance(found, types.FunctionType)


def _warns(fn: types.FunctionType) -> bool:
    return "warn" in fn.__code__.co_names and fn.__globals__.get("warnings") is warnings


def _globals_of(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The functions that its global names may mean, those of modules with a dot in the name."""
    for name in fn.__code__.co_names:
        found = fn.__globals__.get(name)
        if _is_function(found):
            yield name, found
        elif isinstance(found, types.ModuleType) and found is not warnings:
            parts = ((part, vars(found).get(part)) for part in fn.__code__.co_names)
            yield from ((f"{name}.{part}", f) for part, f in parts if _is_function(f))


def _inside(fn: types.FunctionType) -> Iterator[Any]:
    return (found for found in map(_contents, fn.__closure__ or ()) if _is_function(found))


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
