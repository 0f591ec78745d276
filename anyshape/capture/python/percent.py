"""`text % values` where C code would ask a class of the program for a text.

In: a text and values, while recording. Out: a call that makes those texts first, one after the
other as C does, and leaves the rest to C; nothing where C asks nobody, or where it might refuse a
value before it asks for the next one's text.
"""

from __future__ import annotations

import operator
import re
from typing import Any

from anyshape.capture.heap.quiet_classes import has_entry
from anyshape.capture.heap.values import PROXIES, Call, ScalarValue, SizeValue
from anyshape.capture.interpreter import c_callbacks, polyfills, text_polyfills
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.interrupts import is_interrupt

SPECIFICATION = re.compile(r"%(\([^)]*\))?([#0\- +]*)(\*|\d*)(\.\*|\.\d*)?[hlL]?(.)", re.DOTALL)


def formatted(machine: Interpreter, text: str, given: Any) -> Call | None:
    if any(type(given) is kind for kind in PROXIES):
        return None
    if type(given) is not tuple and issubclass(type(given), tuple) and _is_made(machine, given):
        return Call(text_polyfills.percent_of, (text, tuple(tuple.__iter__(given))))
    values = given if type(given) is tuple else (given,)
    if not any(c_callbacks.defines(machine, value, c_callbacks.ANY) for value in values):
        return None
    if type(given) is not tuple and has_entry(type(given), "__getitem__"):
        return None
    parts = [part for part in SPECIFICATION.finditer(text) if part[5] != "%"]
    if len(parts) != len(values) or any(part[1] or "*" in part[0] for part in parts):
        return None
    written = tuple([_written(machine, part[5], value) for part, value in zip(parts, values)])
    asked = [_is_asked(machine, value) for value in written]
    if not any(asked) and all(map(operator.is_, values, written)):
        return None
    if not all(map(_takes, parts, written, asked)):
        return None
    kinds = [part[5] if ask else "" for part, ask in zip(parts, asked)]
    shown, end = "", 0
    for part, kind in zip(parts, kinds):
        shown += text[end : part.start(5)] + ("s" if kind else part[5])
        end = part.end()
    return Call(polyfills.percent, (shown + text[end:], written, tuple(kinds)))


def _written(machine: Interpreter, kind: str, value: Any) -> Any:
    """The value, or the plain integer that C writes for one of a subclass, of which it asks
    nothing."""
    if kind not in INTEGERS or type(value) in PROXIES or not issubclass(type(value), int):
        return value
    return machine.native(int.__int__, (value,), {})


INTEGERS = frozenset("diuxXo")


def _is_made(machine: Interpreter, value: Any) -> bool:
    return machine.recording and machine.heap.is_created(value)


def _is_asked(machine: Interpreter, value: Any) -> bool:
    return c_callbacks.defines(machine, value, c_callbacks.TEXT)


def _takes(part: re.Match[str], value: Any, asked: bool) -> bool:
    """Whether C takes the value there."""
    if asked:
        return part[5] in ("s", "r")
    if type(value) in PROXIES:
        return part[5] == "s" or (part[5] == "r" and type(value) in (SizeValue, ScalarValue))
    try:
        part[0] % (value,)
    except Exception as error:
        if is_interrupt(error):
            raise
        return False
    return True
