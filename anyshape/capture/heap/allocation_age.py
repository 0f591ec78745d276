"""Which objects came to be while capturing: the garbage collector's youngest generation tells.

C code makes containers and iterators that nobody registered. One that lay about before the capture
is the same in every call; one that the capture made must be made anew in each.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage collection while capturing, which makes many objects at once and drops few; what
    there is before does not count."""
    enabled = gc.isenabled()
    gc.disable()
    gc.collect(0)
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def objects_made_since() -> frozenset[int]:
    """The ids of all objects made since, of those that the collector knows of."""
    return frozenset(map(id, gc.get_objects(generation=0)))


def may_be_made_since(value: Any, since: frozenset[int]) -> bool:
    """Whether it is one of them, or a dict too simple for the collector to know of it."""
    return id(value) in since or not gc.is_tracked(value)
