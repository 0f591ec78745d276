"""A graph that eager torch runs and that fails, by a check or an operator that raises, has not
happened: what it wrote is put back.

In: the graph, and the tensors that it is given. Kernels need none of this: they write at their end,
when all has been checked. Eager torch writes in the program's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import torch

from anyshape.ir.graph import Graph, Node, TensorType
from anyshape.ir.nesting import with_nested
from anyshape.nouns import frozen
from anyshape.ops.shared_memory import written_in
from anyshape.ops.table import OPS, Pointwise, View
from anyshape.version_counters import version_of


@frozen
class Writes:
    """Which inputs the graph writes, by way of a view or not: ``before`` the last node where it
    may fail, and only ``behind`` it."""

    before: tuple[int, ...]
    behind: tuple[int, ...]


def written_inputs(graph: Graph) -> Writes:
    """What is at stake where the graph fails, and what is not."""
    last = -1
    for position, node in enumerate(graph.nodes):
        last = max(last, position) if any(map(_may_fail, with_nested(node))) else last
    before = _written(graph, graph.nodes[: last + 1])  # it may have begun to write
    every = _written(graph, graph.nodes)
    return Writes(before, tuple(n for n in every if n not in before))


def _may_fail(node: Node) -> bool:
    """May the operator raise for some data? By what its row says, or by integers that tell where
    to read or write; sizes have been tested before."""
    row = OPS.get(node.op)
    if row is None or row.resource == "errors" or node.op == "number":
        return True
    pure = row if row.functional is None else OPS[row.functional]
    read = [value.type for value in node.inputs() if isinstance(value.type, TensorType)]
    integers = any(not t.dtype.is_floating for t in read)
    if isinstance(pure.lower, (Pointwise, View)):
        return pure.raises and integers  # a division
    return integers or pure.raises or pure.refuses is not None


def _written(graph: Graph, nodes: Sequence[Node]) -> tuple[int, ...]:
    written = written_in(nodes, OPS)
    return tuple(i for i, entry in enumerate(graph.inputs) if entry.value in written)


@frozen
class Kept:
    """Tensors as they were, with their version counters; inference tensors have none."""

    tensors: tuple[torch.Tensor, ...]
    contents: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> Kept:
        return cls(
            tuple(tensors),
            tuple(tensor.detach().clone() for tensor in tensors),
            tuple(map(version_of, tensors)),
        )

    def put_back(self) -> None:
        """As if nobody had written."""
        for tensor, content in zip(self.tensors, self.contents, strict=True):
            tensor.detach().copy_(content)
        counted = [not tensor.is_inference() for tensor in self.tensors]
        tensors = tuple(compress(self.tensors, counted))
        versions = tuple(compress(self.versions, counted))
        torch._C._autograd._unsafe_set_version_counter(tensors, versions)
