"""Objects of C made here whose work is done by objects of Python that are interpreted, as a pickler
of C by the one of the standard library.

In: the object as the program has it, and its twin. Out: the twin where the program calls a method.
What else C would tell of such an object, or be told, ends the segment: it has done nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name

WORK = "(the twin)"
"""In place of an attribute's name."""


def twin_of(slots: Mapping[tuple[int, str], tuple[Any, Any]], obj: Any) -> Any:
    """None if it does its work itself."""
    found = slots.get((id(obj), WORK))
    return None if found is None else found[1]


def refuse(slots: Mapping[tuple[int, str], tuple[Any, Any]], obj: Any, name: str) -> None:
    """An attribute is read or set."""
    if (id(obj), WORK) in slots and name != "__class__":
        raise broken("unknown-call", f"{bare_name(type(obj))}.{name}")
