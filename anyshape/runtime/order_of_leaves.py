"""In which order eager's backward adds to the `.grad` of leaves, where hooks of theirs may tell.

    w.register_hook(lambda g: g * v.grad.norm())        and one node of autograd for all of a graph

Autograd runs the node first that was made last, and a leaf gets its gradient as soon as that is
complete: behind the node that read it first. A compiled half hands all gradients out at once. So
where a leaf has hooks, the node reads aliases of the leaves, made the other way round: each of
these is a node in front of its leaf.

In: the captured graph, and the leaves that a call was handed. Out: what the node is to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from anyshape.ir.graph import Graph, Node, TensorType, Value
from anyshape.nouns import frozen
from anyshape.ops import OPS
from anyshape.ops.gradients.kept import TURNED_FIRST
from anyshape.runtime.eager_graph import EagerGraph
from anyshape.runtime.halves import Run


def have_hooks(leaves: Sequence[torch.Tensor]) -> bool:
    """Whether code of the program is called when one of them gets a gradient."""
    for x in leaves:
        after = x._post_accumulate_grad_hooks
        if x._backward_hooks or after:
            return True
    return False


@frozen(eq=False)
class Ordered:
    """The leaves of a graph, by their positions among its inputs, the first one first that eager's
    backward gives a gradient; ``eager`` runs the graph where nobody knows that."""

    order: tuple[int, ...]
    eager: Run | None = None

    @classmethod
    def of(
        cls, graph: Graph, constants: Mapping[str, torch.Tensor], leaves: Sequence[int]
    ) -> Ordered:
        """``leaves``: positions among the graph's inputs."""
        order = _order(graph, leaves)
        return cls((), EagerGraph(graph, constants).run) if order is None else cls(order)

    def aliases(self, inputs: Sequence[Any]) -> dict[int, torch.Tensor]:
        """Of these inputs, which autograd goes through in this order."""
        with torch.enable_grad():
            return {i: inputs[i].view_as(inputs[i]) for i in reversed(self.order)}


def _order(graph: Graph, positions: Sequence[int]) -> tuple[int, ...] | None:
    """One of autograd's nodes adds to a second leaf behind the first; with a third one it depends
    on all that is waiting then."""
    leaves = {graph.inputs[position].value: position for position in positions}
    rounds: list[list[int]] = []
    for node in filter(_is_recorded, graph.nodes):
        for read in _nodes_of(node):
            new = [leaves.pop(value) for value in dict.fromkeys(read) if value in leaves]
            if len(new) > 2:
                return None
            rounds.append(new)
    return tuple([position for some in reversed(rounds) for position in some])


def _is_recorded(node: Node) -> bool:
    modes = node.modes
    return modes is not None and modes.grad and any(map(_requires, node.outputs))


def _requires(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.requires_grad


def _nodes_of(node: Node) -> list[list[Value]]:
    """What each of autograd's nodes for the operator reads, the one that is made first first."""
    read = list(filter(_requires, node.inputs()))
    name = TURNED_FIRST.get(node.op)
    if name is None:
        return [read]
    given = {**dict(zip(OPS[node.op].signature.names, node.args, strict=False)), **node.kwargs}
    first = given.get(name)
    return [[v for v in read if v is first], [v for v in read if v is not first]]
