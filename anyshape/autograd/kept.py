"""What eager would keep for its own gradient formulas, of what the program can see.

In: the captured graph. Out: positions of inputs and outputs. They are saved though nothing here
reads them: a later write to one is the error that it is in eager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anyshape.autograd.memory import roots
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value, values_in
from anyshape.ops.gradients.kept import KEPT
from anyshape.ops.table import OpDef


def kept_by_eager(graph: Graph, ops: Mapping[str, OpDef]) -> tuple[frozenset[int], frozenset[int]]:
    """(inputs, outputs) in whose memory it lies."""
    owner = roots(graph, ops)
    kept = {owner.get(v, v) for node in graph.nodes for v in values_in(tuple(_kept(node, ops)))}
    inputs = (i for i, entry in enumerate(graph.inputs) if entry.value in kept)
    outputs = (
        i
        for i, output in enumerate(graph.outputs)
        if any(owner.get(v, v) in kept for v in values_in(output))
    )
    return frozenset(inputs), frozenset(outputs)


def _kept(node: Node, ops: Mapping[str, OpDef]) -> Iterator[Arg]:
    if node.op not in KEPT or (node.modes is not None and not node.modes.grad):
        return
    given: dict[str, Arg] = dict(zip(ops[node.op].signature.names, node.args)) | dict(node.kwargs)
    given["result"] = node.outputs
    for name, readers in KEPT[node.op].items():
        if _requires_gradients(given.get(reader) for reader in readers or given):
            yield given.get(name)


def _requires_gradients(args: Iterable[Arg]) -> bool:
    tensors = (v.type for v in values_in(tuple(args)) if isinstance(v, Value))
    return any(isinstance(t, TensorType) and t.requires_grad for t in tensors)
