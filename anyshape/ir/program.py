"""What a segment's graph becomes: buffers and an ordered list of steps, all that the runtime needs.

Made by the scheduler, read by ``runtime.host`` (which prints it as one Python function) and by
``runtime.launch``. Buffers are named (``buffers.py``); a step (``steps.py``) refers to them by
``BufferRef``, to sizes by expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anyshape.ir.buffers import Buffer, StepArg
from anyshape.ir.loops import Kernel
from anyshape.ir.steps import Launch, LibraryCall, NativeRegion, Step
from anyshape.symbolic import Symbol


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in order. ``inputs`` name the graph's inputs in order: input and constant buffers, and
    numbers, which are none.

    ``outputs`` go with the graph's outputs; ``symbols`` are those that must be bound from the
    inputs' sizes (or handed in as scalars) before the first step.
    """

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[StepArg, ...]
    symbols: tuple[Symbol, ...]

    def kernels(self) -> tuple[Kernel, ...]:
        """The different kernels, in order of first launch."""
        launched = (step.kernel for step in self.flat_steps() if isinstance(step, Launch))
        return tuple(dict.fromkeys(launched))

    def flat_steps(self) -> Iterator[Step]:
        """Every step, those inside native regions one by one, library calls as what they are."""
        for step in self.steps:
            for inner in step.steps if isinstance(step, NativeRegion) else (step,):
                yield inner.call if isinstance(inner, LibraryCall) else inner
