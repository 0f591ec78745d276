"""Texts about objects for guards, reasons and errors; no code of the program is called for them.

In: any object. Out: text. `repr`, attributes and truth of an object are its class's to answer,
which may be the program's; so only what C code answers is asked.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.capture.heap.class_flags import HEAP_TYPE, IMMUTABLE_TYPE
from anyshape.capture.heap.quiet_classes import (
    bare_name,
    class_module,
    flags_of,
    mro_of,
    namespace_of,
    qualified_name,
)

MOST_CHARACTERS = 80
MOST_ITEMS = 12
DEEPEST = 4

_AS_WRITTEN = frozenset(
    {
        *(int, float, complex, bool, str, bytes, bytearray, range, type(None), type(Ellipsis)),
        *(type(NotImplemented), re.Pattern, types.CodeType),
    }
)
_BRACKETS: Mapping[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_BY_NAME = (types.FunctionType, types.BuiltinFunctionType, type(list.append), type(object.__init__))
_OF_PYBIND = "pybind11_builtins"
"""The module of what its functions are bound to, which names nothing."""
_OF_TORCH = frozenset({"dtype", "device", "layout", "memory_format", "Size"})


def short(value: Any) -> str:
    """A value on one line of at most 80 characters."""
    text = _text(value, 0).replace("\n", " ")
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."


def name_of(fn: Any) -> str:
    """What a function, method or class is called; an object by its class."""
    if type(fn) in _BY_NAME:
        of_pybind = (
            namespace_of(type(getattr(fn, "__self__", None))).get("__module__") == _OF_PYBIND
        )
        return str(fn.__name__ if of_pybind else fn.__qualname__)
    if type(fn) is types.MethodType:
        return name_of(fn.__func__)
    own_name = namespace_of(type(fn)).get("__qualname__")
    if type(own_name) is types.GetSetDescriptorType:  # a function of Cython
        return str(own_name.__get__(fn))
    return qualified_name(fn if issubclass(type(fn), type) else type(fn))


def class_name(cls: type) -> str:
    """What errors of C call a class: with its module, if C made it."""
    flags, name = flags_of(cls), bare_name(cls)
    made_in_c = not flags & HEAP_TYPE or flags & IMMUTABLE_TYPE
    if made_in_c and (module := class_module(cls)) != "builtins":
        return f"{module}.{name}"
    return name


def text_of_absence(obj: Any, name: str) -> str:
    """What C says of an instance without an attribute."""
    return f"{class_name(type(obj))!r} object has no attribute {name!r}"


def _text(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is int and abs(value) >> 64:
        return hex(value)  # the digits that `repr` may write are limited
    if kind in _AS_WRITTEN or _is_known(kind):
        return repr(value)
    if kind in _BY_NAME or issubclass(kind, type):
        return name_of(value)
    if kind is types.ModuleType:  # its `repr` asks its `__getattr__` for a file
        return f"<module {_text(vars(value).get('__name__'), depth)}>"
    if depth < DEEPEST and kind in _BRACKETS:
        first, last = _BRACKETS[kind]
        comma = "," if kind is tuple and len(value) == 1 else ""
        return f"{first}{_items(value, depth, _text)}{comma}{last}"
    if depth < DEEPEST and kind is dict:
        return f"{{{_items(value.items(), depth, _pair)}}}"
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        return f"slice({', '.join(_text(part, depth + 1) for part in parts)})"
    return f"<{qualified_name(kind)}>"


def _pair(item: tuple[Any, Any], depth: int) -> str:
    return f"{_text(item[0], depth)}: {_text(item[1], depth)}"


def _is_known(kind: type) -> bool:
    """Whether the class is ours, or one of torch's or numpy's whose values are plain."""
    module = str(namespace_of(kind).get("__module__", ""))
    if module.partition(".")[0] == "anyshape":
        return True
    if module == "torch":
        return bare_name(kind) in _OF_TORCH
    return module == "numpy" and any(bare_name(base) == "generic" for base in mro_of(kind))


def _items(values: Any, depth: int, text: Callable[[Any, int], str]) -> str:
    shown = [text(item, depth + 1) for _, item in zip(range(MOST_ITEMS), values)]
    return ", ".join([*shown, *(["..."] if len(values) > MOST_ITEMS else [])])
