"""What the two halves of a graph read and give, by positions: ``runtime/boundary.py`` runs them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from anyshape.nouns import frozen
from anyshape.runtime.saved_values import SavedValue

Run = Callable[..., tuple[Any, ...]]


def made_by(position: int) -> int:
    """How the output at a position is named among what a later part wants gradients of."""
    return -1 - position


@frozen(eq=False)
class Part:
    """Outputs, and the inputs and outputs of earlier parts (``made_by``) that autograd goes from
    them to: one node of its graph, which saves some of the ``residuals``, by their numbers.
    ``kept_results``: outputs of earlier parts that eager's formulas of this one keep themselves."""

    outputs: tuple[int, ...]
    wanted: tuple[int, ...]
    residuals: tuple[int, ...]
    kept_results: tuple[int, ...] = ()


@frozen
class Layout:
    """Positions: ``wanted`` among the inputs, or what ``made_by`` gives, one part's after the
    other's, so that an input may stand there several times; ``differentiable`` among
    the ``outputs``, the last of which are ``hidden`` from the program. ``residuals`` are read by
    the backward half, ``watched`` are saved for their versions alone; ``numbers`` is where the
    numbers begin in what the forward half returns. ``parts``: no operator keeps something for two
    of them, so that each can be gone through once. ``kept_inputs``: inputs that eager's
    formulas keep themselves, so that they find what ``x.data = new`` has put there.
    ``is_repeatable``: they keep nothing at all, so that eager's graph can be gone through again.
    ``shared``: outputs that are views of one memory, which nobody may write to. ``sources``: for
    each residual, the inputs that it is made of; None where a number that data decides is read."""

    outputs: int
    wanted: tuple[int, ...]
    differentiable: tuple[int, ...]
    residuals: tuple[SavedValue, ...]
    watched: tuple[SavedValue, ...]
    numbers: int
    parts: tuple[Part, ...]
    hidden: int = 0
    kept_inputs: tuple[int, ...] = ()
    is_repeatable: bool = False
    shared: tuple[int, ...] = ()
    sources: tuple[frozenset[int], ...] | None = None

    def earlier_results(self) -> dict[Part, tuple[int, ...]]:
        """For each part, the results on the way that belong to parts before it."""
        on_the_way = {made_by(i) for part in self.parts for i in part.wanted if i < 0}
        shown = {p for p in on_the_way if p < self.outputs - self.hidden}
        before = accumulate((part.outputs for part in self.parts), initial=())
        return {
            part: tuple(sorted(shown.intersection(outputs)))
            for part, outputs in zip(self.parts, before)
        }


@frozen(eq=False)
class Half:
    """A backward half for some cotangents: what runs, of which of the layout's ``wanted`` it gives
    gradients, and which residuals it reads, as its part numbers those that it saves."""

    run: Run
    given: tuple[int, ...]
    read: frozenset[int]
