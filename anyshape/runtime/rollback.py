"""A graph that eager torch runs and that fails a check has not happened: what it wrote is put back.

In: the graph, and the tensors that it is given. Kernels need none of this: they write at their end,
when all has been checked. Eager torch writes in the program's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anyshape.ir.graph import Graph, Value
from anyshape.ops.table import OPS

CHECKING = frozenset({"check_false", "number"})
"""Operators that fail like a check."""


def written_inputs(graph: Graph) -> tuple[int, ...]:
    """Which inputs the graph writes, by way of a view or not; none where it checks nothing."""
    if not graph.checks and not any(node.op in CHECKING for node in graph.nodes):
        return ()
    bases: dict[Value, Value] = {}
    written: set[Value] = set()
    for node in graph.nodes:
        row, first = OPS.get(node.op), next(node.inputs(), None)
        if row is None or first is None:
            continue
        base = bases.get(first, first)
        if row.mutates:
            written.add(base)
        if row.mutates or row.alias != "none":
            bases.update(dict.fromkeys(node.outputs, base))
    return tuple(i for i, entry in enumerate(graph.inputs) if entry.value in written)


@dataclass(frozen=True, slots=True)
class Kept:
    """Tensors as they were, with their version counters."""

    tensors: tuple[torch.Tensor, ...]
    contents: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> Kept:
        return cls(
            tuple(tensors),
            tuple(tensor.detach().clone() for tensor in tensors),
            tuple(tensor._version for tensor in tensors),
        )

    def put_back(self) -> None:
        """As if nobody had written."""
        for tensor, content in zip(self.tensors, self.contents, strict=True):
            tensor.detach().copy_(content)
        torch._C._autograd._unsafe_set_version_counter(self.tensors, self.versions)
