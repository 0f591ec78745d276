"""What code of the program gave for attributes of outside objects: it is not asked again until
something outside is written.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.heap.shadow_heap import Heap
from anyshape.capture.heap.values import IMMUTABLE, NULL


def recalled(heap: Heap, obj: Any, name: str) -> Any:
    """What was given for `obj.name`, if nothing outside was written since; else `NULL`."""
    found = heap.answers.get((id(obj), name))
    if found is not None and found[0] == len(heap.effects):
        return found[2]
    if not heap.is_created(obj):
        heap.answers[id(obj), name] = (len(heap.effects), obj, NULL)
    return NULL


def remember(heap: Heap, obj: Any, name: str, value: Any) -> Any:
    """Keeps a constant that `recalled` asked for, if that wrote nothing outside."""
    found = heap.answers.get((id(obj), name))
    if found is not None:
        constant = type(value) in IMMUTABLE and found[0] == len(heap.effects)
        heap.answers[id(obj), name] = (found[0], obj, value if constant else NULL)
    return value
