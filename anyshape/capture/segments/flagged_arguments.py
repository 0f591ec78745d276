"""Flags of what was handed in that a segment sets before anything reads it.

    x.requires_grad_(); model(x).sum().backward()

The flag is set before the graph runs, so that autograd finds the very tensor that the program
knows as a leaf, whatever part of the graph it records itself. Where the segment has not happened,
the flag is set back.

In: the tensors and their flags, and the sources of the graph's arguments. Out: a function that sets
them, and one that runs the graph behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.heap.sources import Source
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import Value
from anyshape.nouns import frozen


@frozen
class Flagged:
    """A tensor that is to require gradients, or not: the argument at this position, or one that is
    the same in each call."""

    position: int | None
    tensor: torch.Tensor | None
    flag: bool

    def set(self, inputs: Sequence[Any], flag: bool) -> None:
        """Sets the tensor's flag."""
        x: Any = self.tensor if self.position is None else inputs[self.position]
        x.requires_grad_(flag)


def flagged_arguments(
    recorder: Recorder, flags: Mapping[Value, bool], inputs: Sequence[Source]
) -> tuple[Flagged, ...]:
    """What is set; ``inputs`` are the sources of the graph's arguments."""
    found = []
    for value, flag in flags.items():
        source = recorder.source_of(value)
        position = None if value.name in recorder.constants else inputs.index(source)
        found.append(Flagged(position, recorder.constants.get(value.name), flag))
    return tuple(found)


def with_flags(
    flagged: Sequence[Flagged], run: Callable[..., Any], failures: type[Exception]
) -> Callable[..., Any]:
    """``run``, before which the flags are set. ``failures``: after these it has not happened."""
    if not flagged:
        return run

    def running(*inputs: Any) -> Any:
        for one in flagged:
            one.set(inputs, one.flag)
        try:
            return run(*inputs)
        except failures:
            for one in flagged:
                one.set(inputs, not one.flag)
            raise

    return running
