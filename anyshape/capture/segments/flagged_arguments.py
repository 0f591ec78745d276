"""Leaves that were handed in and that a segment tells to require gradients before it reads them.

    x.requires_grad_(); model(x).sum().backward()

The flag is set before the graph runs, so that autograd finds the very tensor that the program
knows as a leaf, whatever part of the graph it records itself. Where the segment has not happened,
the flag is set back.

In: the tensors, and the sources of the graph's arguments. Out: what sets the flags, and a function
that runs the graph behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from anyshape.capture.heap.sources import Source
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import Value
from anyshape.nouns import frozen


@frozen
class Flagged:
    """A tensor that is to require gradients: the argument at this position, or one that is the same
    in each call."""

    position: int | None
    tensor: torch.Tensor | None

    def set(self, inputs: Sequence[Any], flag: bool) -> None:
        """Sets the tensor's flag."""
        x: Any = self.tensor if self.position is None else inputs[self.position]
        x.requires_grad_(flag)


def flagged_arguments(
    recorder: Recorder, flagged: Iterable[Value], inputs: Sequence[Source]
) -> tuple[Flagged, ...]:
    """What is set; ``inputs`` are the sources of the graph's arguments."""
    found = []
    for value in flagged:
        source = recorder.source_of(value)
        position = None if value.name in recorder.constants else inputs.index(source)
        found.append(Flagged(position, recorder.constants.get(value.name)))
    return tuple(found)


def with_flags(
    flagged: Sequence[Flagged], run: Callable[..., Any], failures: type[Exception]
) -> Callable[..., Any]:
    """``run``, before which the flags are set. ``failures``: after these it has not happened."""
    if not flagged:
        return run

    def running(*inputs: Any) -> Any:
        for one in flagged:
            one.set(inputs, True)
        try:
            return run(*inputs)
        except failures:
            for one in flagged:
                one.set(inputs, False)
            raise

    return running
