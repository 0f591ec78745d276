"""`text.format(...)`, `print` and texts of containers where C code would ask a class of the program
for one.

In: a text and values, while recording. Out: a call that asks for one text after the other, as C
does; nothing where C asks nobody, or might refuse something.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from types import FunctionType
from typing import Any

from anyshape.capture.heap import purity
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.nested_containers import elements_of
from anyshape.capture.heap.quiet_classes import bare_name, is_of_code
from anyshape.capture.heap.values import PROXIES, Call
from anyshape.capture.interpreter import c_callbacks, polyfills, protocol, text_polyfills
from anyshape.capture.interpreter.domain import Interpreter

REPRS: dict[type, tuple[Callable[..., Any], str]] = {
    list: (text_polyfills.repr_of_list, "[...]"),
    tuple: (text_polyfills.repr_of_tuple, "(...)"),
    dict: (text_polyfills.repr_of_dict, "{...}"),
    set: (text_polyfills.repr_of_set, "set(...)"),
    frozenset: (text_polyfills.repr_of_frozenset, "frozenset(...)"),
}
"""How a container is shown, and one that lies in itself."""
CONVERSIONS = (None, "r", "s")
Field = tuple[str, Any, str | None, str]
"""The text before it, the value, how it is converted (None: there is no field), and the rest."""


def shown(machine: Interpreter, value: Any) -> Call | None:
    """`repr` of a container of C in which something of the program lies."""
    known = REPRS.get(type(value))
    if known is None or not c_callbacks.runs_program_code(machine, repr, (value,)):
        return None
    if protocol.holds_proxy(machine.heap.mirror(value)):
        return None
    polyfill, again = known
    code = polyfill.__code__
    lies_in_itself = any(f.code.code is code and f.locals[0] is value for f in machine.frames())
    return Call(polyfills.given, (again,)) if lies_in_itself else Call(polyfill, (value,))


def format_text(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The handler of `str.format`."""
    given = (*args[1:], *kwargs.values())
    asks = machine.recording and any(type(value) not in protocol.PLAIN for value in given)
    if asks and type(args[0]) is str and not any(type(value) in PROXIES for value in given):
        fields = _fields(args[0], args[1:], kwargs)
        if fields is not None:
            return Call(text_polyfills.format_fields, (fields,))
    return machine.native(str.format, args, kwargs)


def _fields(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Field, ...] | None:
    """None for fields with attributes, items, or fields in what they say of the form."""
    fields: list[Field] = []
    names: list[str] = []
    try:
        for literal, name, spec, conversion in string.Formatter().parse(text):
            if name is None:
                fields.append((literal, None, None, ""))
                continue
            if conversion not in CONVERSIONS or "{" in (spec or ""):
                return None
            key = name or str(len(names))
            value = args[int(key)] if key.isdecimal() else kwargs[key]
            fields.append((literal, value, conversion or "", spec or ""))
            names.append(name)
    except (ValueError, LookupError):  # as C says in words of its own
        return None
    counted = {name == "" for name in names if not name or name.isdecimal()}
    if len(counted) > 1 or (True in counted and not all(n == "" for n in names)):
        return None
    return tuple(fields)


def print_values(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The handler of `print`: what code of the program does to make a text, it does there, and not
    where the text is shown."""
    asked = [machine.recording and _asks_for_its_text(machine, value) for value in args]
    if not any(asked):
        return machine.native(print, args, kwargs)
    separator, end = kwargs.get("sep"), kwargs.get("end")
    if kwargs.keys() - SEPARATORS or not {type(separator), type(end)} <= {str, type(None)}:
        kind = bare_name(type(args[asked.index(True)]))
        raise broken("python-effect", f"printing an object of class {kind}")
    separator, end = (" " if separator is None else separator), ("\n" if end is None else end)
    return Call(text_polyfills.show_one_by_one, (print, args, asked, separator, end))


SEPARATORS = {"sep", "end"}


def _asks_for_its_text(
    machine: Interpreter, value: Any, name: str = "__str__", depth: int = 4
) -> bool:
    """Whether a method of the program, or one of C with another meaning, gives the text of it."""
    kind = type(value)
    if kind in PROXIES or issubclass(kind, type):
        return False
    if kind in REPRS:
        lying = machine.heap.mirror_of(value)
        parts = (*elements_of(lying), *(dict.values(lying) if kind is dict else ()))
        return depth > 0 and any(
            _asks_for_its_text(machine, part, "__repr__", depth - 1) for part in parts
        )
    method = machine.lookup(kind, name)
    if method is object.__str__:
        name, method = "__repr__", machine.lookup(kind, "__repr__")
    if type(method) is FunctionType:
        return not purity.is_library(method.__module__ or "")
    return is_of_code(kind, name)
