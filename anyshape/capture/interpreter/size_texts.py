"""Texts with sizes in them: `f"{x.shape} after {n} steps"` for a warning, a print or a key.

It is formed in each call: `TextValue` says of what. It can be joined to other texts, padded, put
into a format, shown by a deferred effect, and returned; whatever looks into it ends the segment.
Where that is so, capture begins anew, and a text of sizes that were known at entry is a constant,
guarded by those sizes, as everything that native code looks into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from anyshape.capture.heap.nested_containers import values_of
from anyshape.capture.heap.quiet_classes import class_entry, class_module
from anyshape.capture.heap.values import Formed, OpaqueValue, ScalarValue, SizeValue, TextValue
from anyshape.capture.interpreter.domain import Interpreter

PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})


def are_texts(*values: Any) -> bool:
    """Whether all are texts, plain ones or such as are formed in each call."""
    return all(type(value) is str or is_text(value) for value in values)


def is_text(value: Any) -> bool:
    kind = type(value)
    return kind is TextValue or (kind is OpaqueValue and value.kind is str)


def joined(texts: Sequence[Any]) -> TextValue:
    """One text of several."""
    parts: list[Any] = []
    for text in texts:
        if type(text) is OpaqueValue:
            parts.append(Formed(str, (text,)))
        else:
            parts += text.parts if type(text) is TextValue else (text,)
    return TextValue(tuple(part for part in parts if part != ""))


def is_shown_later(machine: Interpreter, value: Any) -> bool:
    """Whether it is a container with sizes in it, which native code may not look into."""
    shows = class_entry(type(value), "__repr__")
    if not machine.recording or not any(shows is known for known in SHOWN_BY_C):
        return False
    return any(True for _ in numbers_in(value)) and is_shown(machine, value)


SHOWN_BY_C = (tuple.__repr__, list.__repr__, dict.__repr__)
"""Compared by identity: a class may have any object as its `__repr__`, one without a hash too."""


def is_shown(machine: Interpreter, value: Any, outer: tuple[Any, ...] = ()) -> bool:
    """Only constants, symbolic numbers and texts, all the way down: the text is CPython's."""
    kind = type(value)
    if any(value is container for container in outer):
        return False
    outer = (*outer, value)
    if kind in PLAIN or kind in (SizeValue, ScalarValue) or is_text(value):
        return True
    if kind in (list, dict) and not machine.heap.is_created(value):
        return False
    if kind is dict:
        plain = all(type(key) in PLAIN for key in value)
        return plain and all(is_shown(machine, item, outer) for item in value.values())
    if kind is list or (issubclass(type(value), tuple) and kind.__repr__ is tuple.__repr__):
        return all(is_shown(machine, item, outer) for item in values_of(value))
    return class_module(kind) == "torch" and issubclass(
        type(value), tuple
    )  # a size without symbols


def numbers_in(value: Any) -> Iterator[Any]:
    """The symbolic numbers and texts in it."""
    pending, seen = [value], {id(value)}
    while pending:
        found = pending.pop()
        if type(found) in (SizeValue, ScalarValue) or is_text(found):
            yield found
        elif issubclass(type(found), (tuple, list, dict)):
            inside = list(values_of(found))
            pending += [item for item in inside if id(item) not in seen]
            seen.update(map(id, inside))
