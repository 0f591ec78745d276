"""Lists and dicts that the trace has made, written on a side of a branch that data decides.

    losses = {}
    if found.numel(): losses["kept"] = found.mean()
    else: losses["kept"] = x.sum() * 0

In: what the heap's journal undoes. Out: the containers, and what lies in them, to be merged like
locals. One that has another length, or other keys, on the other side is not merged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from anyshape.capture.heap.mirrors import Mirror
from anyshape.capture.heap.undo import container_of
from anyshape.capture.heap.unread_writes import Unread
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.sizes import sides
from anyshape.capture.sizes.merging import NotJoined, NotMerged
from anyshape.nouns import frozen

Containers = dict[int, "Written"]
"""By the id of the container."""


@frozen
class Written:
    """A container that a side has written, and a copy of what lay in it then."""

    container: Any
    content: Any


def written_in(
    machine: Interpreter,
    undone: Sequence[Callable[[], object]],
    fresh: Collection[int],
    copied: dict[int, Any],
) -> Containers:
    """What these entries of a journal undo, but for writes that the heap has a log of, or to what
    is ``fresh``."""
    found: Containers = {}
    for undo in undone:
        cells = [cell.cell_contents for cell in getattr(undo, "__closure__", None) or ()]
        if type(undo) is partial or any(_is_logged(machine, c, fresh) for c in cells):
            continue
        container = container_of(undo)
        if container is None:
            raise NotJoined("a side writes what was made before")
        found[id(container)] = Written(container, sides.snapshot(container, copied))
    return found


def _is_logged(machine: Interpreter, cell: Any, fresh: Collection[int]) -> bool:
    heap = machine.heap
    logged = cell is heap or type(cell) in (Unread, Mirror)
    return logged or id(cell) in heap.owners or id(cell) in fresh


def read(written: Containers, copied: dict[int, Any]) -> Containers:
    """The same containers, as they are now."""
    return {
        key: Written(each.container, sides.snapshot(each.container, copied))
        for key, each in written.items()
    }


def merge(
    machine: Interpreter, yes: Containers, no: Containers, value: Callable[[Any, Any], Any]
) -> None:
    """Leaves in each container what is merged of both sides; ``no`` is as it lies there."""
    for key, each in yes.items():
        a, b = each.content, no[key].container
        machine.heap.will_write(b)
        if type(b) is list:
            if len(a) != len(b):
                raise NotMerged("lists of different lengths")
            b[:] = [value(x, y) for x, y in zip(a, list(b))]
            continue
        if list(a) != list(b):
            raise NotMerged("dicts of different keys")
        for name in list(b):
            b[name] = value(a[name], b[name])
