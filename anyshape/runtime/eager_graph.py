"""A segment's graph that eager torch runs, as gradients are recorded or tensors lie off the CPU.

In: a graph and its constant tensors. Out: ``EagerGraph``, which runs as a compiled graph does.
Where a check fails or an operator raises, what was written is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch
from torch.autograd import _profiler_enabled as is_profiling

from anyshape.eager import CheckFailed
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Graph, Location, Node, ScalarType, TensorType
from anyshape.ir.step_labels import call_label
from anyshape.nouns import mutable
from anyshape.runtime.eager_function import eager_function
from anyshape.runtime.profile import recorded
from anyshape.runtime.rollback import Kept, Writes, written_inputs
from anyshape.version_counters import version_of


@mutable(eq=False)
class EagerGraph:
    """``run`` takes the graph's argument inputs in order and returns its outputs, flat. ``why`` no
    kernels do."""

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    why: str = ""  # eager torch runs it, and by which line
    location: Location | None = None
    label: str = "anyshape: a graph"  # what profiles call it
    linked: str = ""
    stages: tuple[tuple[str, Graph], ...] = ()
    kernel_names: frozenset[str] = frozenset()
    _function: Callable[..., Any] = field(init=False)
    _recorded: Callable[..., Any] | None = None  # its twin, which runs while a profiler records
    _writes: Writes = field(init=False)

    def __post_init__(self) -> None:
        self._function = eager_function(self.graph)
        self._writes = written_inputs(self.graph)

    def run(self, *arguments: Any) -> tuple[Any, ...]:
        """Raises ``CheckFailed``; then nothing has been written."""
        given = iter(arguments)
        inputs = [
            next(given) if entry.kind == "argument" else self.constants[entry.value.name]
            for entry in self.graph.inputs
        ]
        writes = self._writes
        kept = Kept.of([inputs[i] for i in writes.before]) if writes.before else None
        last = [(inputs[i], version_of(inputs[i])) for i in writes.behind]
        try:
            outputs: tuple[Any, ...] = (self._twin() if is_profiling() else self._function)(*inputs)
        except Exception as error:
            if any(version_of(tensor) != version or version < 0 for tensor, version in last):
                raise  # it was not to fail there: this cannot be put back
            if kept is not None:
                kept.put_back()
            if isinstance(error, CheckFailed) or is_interrupt(error):
                raise
            raise CheckFailed(str(error)) from error
        return outputs

    def _twin(self) -> Callable[..., Any]:
        if self._recorded is None:
            self._recorded = recorded(eager_function(self.graph, call_label), self.label)
        return self._recorded

    def count(self, kind: str) -> int:
        """All of it is eager; a ``sync`` waits for a number that another device makes."""
        if kind == "sync":
            return sum(map(_waits, self.graph.nodes))
        return len(self.graph.nodes) if kind == "eager" else 0


def _waits(node: Node) -> bool:
    """Whether the node makes a number of a tensor that lies off the CPU."""
    read = (value.type for value in node.inputs())
    makes_number = any(isinstance(value.type, ScalarType) for value in node.outputs)
    return makes_number and any(isinstance(t, TensorType) and t.device != "cpu" for t in read)
