"""Would C code run code of the program? It does where it compares, sorts or prints objects whose
classes say in Python how, where it is handed a function, and so on; what that code reads would go
unseen.

In: a C callable and its arguments. Out: yes or no. Methods of torch's and the standard library's
own classes (an enum's text) do not count: they read what does not change.
"""

from __future__ import annotations

import builtins
import dis
import functools
import heapq
import operator
import re
from collections import deque
from types import CodeType, FunctionType, MethodType
from typing import Any

from anyshape.capture.heap import purity
from anyshape.capture.heap.nested_containers import values_of
from anyshape.capture.heap.values import NULL, PROXIES, contents
from anyshape.capture.interpreter.domain import Interpreter

EQUALITY = ("__eq__",)
ORDER = ("__lt__", "__gt__", "__le__", "__ge__", "__eq__")
NUMBER = ("__index__", "__int__", "__float__", "__complex__", "__trunc__", "__round__")
_HEAP_TYPE = 1 << 9
TEXT = ("__repr__", "__str__", "__format__")
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None), type, FunctionType})

_ITEMS = ("__setitem__", "__delitem__")
_PRINTERS = frozenset(
    [
        *[str, repr, format, ascii, list.__repr__, tuple.__repr__, dict.__repr__, set.__repr__],
        *[str.format, str.format_map, str.__mod__, operator.mod],
    ]
)
_SORTERS = frozenset(
    [*[sorted, min, max, list.sort], *[f for f in vars(heapq).values() if callable(f)]]
)
_COMPARERS = purity.SEARCHERS | frozenset(
    [
        *[vars(cls)[name] for cls in (list, tuple, dict, deque) for name in ("__eq__", "__ne__")],
        *[list.remove, deque.remove, operator.countOf, operator.indexOf, operator.contains],
        *[operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge],
    ]
)
_INDEXERS = frozenset(
    [
        *[vars(cls)[name] for cls in (list, bytearray, deque) for name in ("insert", "pop")],
        *[vars(cls)[name] for cls in (list, bytearray, deque) for name in _ITEMS],
        *[operator.setitem, operator.delitem, deque.rotate, enumerate],
    ]
)
_SETS = (
    *("union", "update", "intersection", "intersection_update", "difference", "difference_update"),
    *("symmetric_difference", "symmetric_difference_update", "issubset", "issuperset"),
    *("isdisjoint", "__or__", "__and__", "__sub__", "__xor__", "__ior__", "__iand__", "__isub__"),
)
_HASHERS = frozenset(
    [
        *[vars(cls)[name] for cls in (set, frozenset) for name in _SETS if name in vars(cls)],
        *[set, frozenset, hash, operator.or_, operator.and_, operator.sub, operator.xor],
        *[operator.ior, operator.iand, operator.isub, operator.ixor, dict.update, dict.fromkeys],
    ]
)
SUBSTITUTIONS = frozenset({"sub", "subn"})


def runs_program_code(machine: Interpreter, fn: Any, args: tuple[Any, ...]) -> bool:
    """Does this call compare, order or print what a class of the program compares, orders or
    prints in Python, or call back a function of the program?"""
    owner = getattr(fn, "__self__", None)
    if type(owner) is re.Pattern and fn.__name__ in SUBSTITUTIONS:
        return bool(args) and issubclass(type(args[0]), (FunctionType, MethodType))
    if fn is getattr(operator, "call", None):
        return True
    if fn in _INDEXERS:
        return any(_is_index(machine, arg) for arg in args[1:])
    if fn in _HASHERS:
        return any(_hashes_elements(machine, arg) for arg in args)
    if any(defines_number(machine, arg) for arg in args):
        return type(fn) not in purity.CALLABLE_TYPES or fn not in purity.UNLOOKING
    if fn in _PRINTERS:
        methods: tuple[str, ...] = TEXT
    elif fn in _SORTERS:
        methods = ORDER
    elif fn in _COMPARERS:
        methods = EQUALITY
    else:
        return False
    return any(defines(machine, arg, methods) for arg in args)


def defines(machine: Interpreter, value: Any, methods: tuple[str, ...], depth: int = 3) -> bool:
    """Does the class of the value, or of what lies in it, define one of the methods in Python?"""
    kind = type(value)
    if kind in PLAIN or kind in PROXIES:
        return False
    if issubclass(kind, functools.partial):
        value = (value.func, value.args, value.keywords, (*value.keywords,))
    if issubclass(type(value), CONTAINERS):
        if depth == 0:
            return False
        return any(defines(machine, item, methods, depth - 1) for item in values_of(value))
    return any(_is_of_the_program(machine.lookup(kind, name)) for name in methods)


def defines_number(machine: Interpreter, value: Any) -> bool:
    """Does the class of the value say in Python which number it is?"""
    kind = type(value)
    if kind in PLAIN or kind in PROXIES or not kind.__flags__ & _HEAP_TYPE:
        return False
    return any(_is_of_the_program(machine.lookup(kind, name)) for name in NUMBER)


def _is_index(machine: Interpreter, value: Any) -> bool:
    parts = (value.start, value.stop, value.step) if type(value) is slice else (value,)
    return any(_is_of_the_program(machine.lookup(type(part), "__index__")) for part in parts)


def _hashes_elements(machine: Interpreter, value: Any) -> bool:
    elements = value if issubclass(type(value), CONTAINERS) else (value,)
    return any(hashes_outside(machine, element) for element in elements)


def hashes_outside(machine: Interpreter, value: Any, depth: int = 3) -> bool:
    """Would C code that hashes the value run a `__hash__` of the program on an outside object, and
    so read what no guard covers?"""
    kind = type(value)
    if kind in PLAIN or kind in PROXIES or depth == 0:
        return False
    if issubclass(kind, (tuple, frozenset)):
        return any(hashes_outside(machine, item, depth - 1) for item in values_of(value))
    methods = [machine.lookup(kind, name) for name in ("__hash__", "__eq__")]
    if not machine.heap.is_created(value):
        return any(map(_is_of_the_program, methods[:1]))
    return any(_is_of_the_program(method) and not reads_itself(method) for method in methods)


def reads_itself(method: FunctionType) -> bool:
    """Whether all that a `__hash__` or `__eq__` does is to read attributes of its arguments."""
    names = _names_read(method.__code__)
    if names is None:
        return False
    read = [contents(cell) for cell in method.__closure__ or ()]
    read += [method.__globals__.get(name, vars(builtins).get(name)) for name in names]
    return all(
        issubclass(type(value), type) or any(value is asked for asked in _ASKED_IN_C)
        for value in read
    )


@functools.lru_cache(1024)
def _names_read(code: CodeType) -> frozenset[str] | None:
    """The globals that the code reads, if it does nothing beside reading."""
    instructions = list(dis.get_instructions(code))
    if any(instruction.opname.startswith(_MORE) for instruction in instructions):
        return None
    return frozenset(i.argval for i in instructions if i.opname == "LOAD_GLOBAL")


_ASKED_IN_C = (hash, isinstance, issubclass, len, NotImplemented)
_STORES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF", "STORE_NAME")
_MORE = (*_STORES, "LOAD_NAME", "DELETE_", "RAISE", "YIELD", "IMPORT", "MAKE_")


def _is_of_the_program(method: Any) -> bool:
    if method is NULL or type(method) is not FunctionType:
        return False
    return not purity.is_library(method.__module__ or "")
