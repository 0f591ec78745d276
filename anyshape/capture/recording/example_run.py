"""What has run once more at the example sizes, to learn how gradients are differentiated again, on
tensors without memory, or how eager lays them out, on zeros (``tensors/second_gradients.py``)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import torch

from anyshape.capture.guards.no_alias import storage_of
from anyshape.ir.graph import Node, Value
from anyshape.nouns import mutable


@mutable(eq=False)
class ExampleRun:
    """On a ``device``. ``found``: what stands for each value; ``nodes``: those that have run, of
    the first so many that were ``seen``; ``memory``: where what was found lies, on the host."""

    device: str
    found: dict[Value, Any] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)  # by id
    seen: Sequence[Node] = ()
    memory: set[int] = field(default_factory=set)

    def note(self, values: Iterable[Value]) -> None:
        """Notes where what was found for these lies."""
        if self.device == "cpu":
            found = (self.found[value] for value in values)
            self.memory.update(storage_of(each) for each in found if isinstance(each, torch.Tensor))

    def goes_on(self, nodes: Sequence[Node]) -> bool:
        """Whether a graph begins with what was seen: nothing was taken back since."""
        count = len(self.seen)
        return count <= len(nodes) and all(map(operator.is_, self.seen, nodes))
