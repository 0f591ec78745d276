"""Whether the segments of a program with graph breaks save more than it costs to go from one to the
next.

In: what a call ran of segments and interpreted between them. Out: whether the original function is
called from now on, with tensors no larger than those; once in a while the decision is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from anyshape.costs import COSTS
from anyshape.nouns import mutable

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""Types whose methods are torch's own; a subclass may run the program's code in any of them."""


def largest(values: Iterable[Any]) -> int:
    """The number of elements of the largest plain tensor among some values."""
    return max((value.numel() for value in values if type(value) in PLAIN), default=0)


@mutable
class CallRecord:
    """One call: its segments and what was interpreted between them."""

    segments: int = 0
    nodes: int = 0
    instructions: int = 0
    elements: int = 0
    given: frozenset[int] = frozenset()  # the ids of its arguments, which live until it is done

    def segment(self, nodes: int, *values: Sequence[Any]) -> None:
        """A segment of so many operators ran; `values` went in and came out."""
        self.segments += 1
        self.nodes += nodes
        self.elements = max(self.elements, *map(largest, values))

    def is_loss(self) -> bool:
        """Whether eager torch would have been faster, as far as these numbers tell."""
        return COSTS.is_loss(self.segments, self.nodes, self.instructions, self.elements)


@mutable
class Profitability:
    """The calls that began with one segment."""

    lost: int = 0
    elements: int = 0  # of their arguments
    wait: int = COSTS.retry_calls  # calls that run natively until segments are tried again
    calls: int = 0  # that did

    def settle(self, call: CallRecord, elements: int) -> None:
        """A call is done; so large were its arguments."""
        tried_again = self.lost >= COSTS.patience
        self.lost = self.lost + 1 if call.is_loss() else 0
        self.wait = 2 * self.wait if tried_again and self.lost else COSTS.retry_calls
        self.calls = 0
        self.elements = max(self.elements, elements)

    def is_lost(self, slots: Sequence[Any]) -> bool:
        """Whether the original function is to be called instead."""
        if self.lost < COSTS.patience:
            return False
        self.calls += 1
        return self.calls < self.wait and largest(slots) <= COSTS.retry_growth * self.elements
