"""Whether the segments of a program with graph breaks save more than it costs to go from one to the
next.

In: what a call ran of segments and interpreted between them. Out: whether the original function is
called from now on, with tensors no larger than those; once in a while the books are opened again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

SEGMENT_US = 60.0  # to flatten frames, test guards, and make the frames that go on
INSTRUCTION_US = 1.0  # interpreted between segments
NODE_US = 2.0  # what an operator of a compiled graph saves
ELEMENT_US = 0.0002  # and for each element of the largest tensor
LOST_CALLS = 3  # one after the other, before a function is called natively
AGAIN = 32  # calls after which it is tried once more, and then after twice as many
ROOM = 4  # how much larger than in the calls that were lost an argument may be


def largest(values: Iterable[Any]) -> int:
    """The number of elements of the largest tensor among some values."""
    known = (v for v in values if isinstance(v, torch.Tensor) and not is_lazy(v))
    return max((v.numel() for v in known), default=0)


@dataclass(slots=True)
class Costs:
    """One call: its segments and what was interpreted between them."""

    segments: int = 0
    nodes: int = 0
    instructions: int = 0
    elements: int = 0

    def segment(self, nodes: int, *values: Sequence[Any]) -> None:
        """A segment of so many operators ran; `values` went in and came out."""
        self.segments += 1
        self.nodes += nodes
        self.elements = max(self.elements, *map(largest, values))

    def is_loss(self) -> bool:
        """Whether eager torch would have been faster, as far as these numbers tell."""
        spent = self.segments * SEGMENT_US + self.instructions * INSTRUCTION_US
        return spent > self.nodes * (NODE_US + self.elements * ELEMENT_US)


@dataclass(slots=True)
class Ledger:
    """The calls that began with one segment."""

    lost: int = 0
    elements: int = 0  # of their arguments
    wait: int = AGAIN  # calls that run natively until segments are tried again
    calls: int = 0  # that did

    def settle(self, costs: Costs, elements: int) -> None:
        """A call is done; so large were its arguments."""
        tried_again = self.lost >= LOST_CALLS
        self.lost = self.lost + 1 if costs.is_loss() else 0
        self.wait = 2 * self.wait if tried_again and self.lost else AGAIN
        self.calls = 0
        self.elements = max(self.elements, elements)

    def is_lost(self, slots: Sequence[Any]) -> bool:
        """Whether the original function is to be called instead."""
        if self.lost < LOST_CALLS:
            return False
        self.calls += 1
        return self.calls < self.wait and largest(slots) <= ROOM * self.elements
