"""Memory against time: products and reductions computed again, so that less is saved.

A cut saves what is costly to compute. A budget below 1 is the share of those bytes, at the hints,
that may be saved: then costly nodes may be computed again too, those first that cost little work
for the bytes that they make, and as few of them as it takes. 0 is all that can be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isqrt
from typing import TypeVar

from anyshape.autograd.checkpoints import runs_once
from anyshape.autograd.sizes import size_bytes
from anyshape.ir.graph import Graph, Node, TensorType, Value
from anyshape.ops.gradients.decisions import decides
from anyshape.ops.table import OpDef, Pointwise, Structural, View, is_done_by_library

COMPUTE_BOUND_FROM = 1024
"""A reader that multiplies each of a tensor's bytes fewer times than this does little with it."""
T = TypeVar("T")
Allowed = frozenset[Node]


def within_budget(
    share: float, costly: Sequence[Node], cut: Callable[[Allowed], tuple[T, int]]
) -> T:
    """What ``cut`` chooses where it may compute so many of the ``costly`` nodes again that it saves
    at most this share of the bytes that it saves without them; where none is enough, all."""
    chosen, most = cut(frozenset())
    if share >= 1:
        return chosen
    low, high = 0, len(costly)
    while low < high:
        middle = (low + high) // 2
        if cut(frozenset(costly[:middle]))[1] <= share * most:
            high = middle
        else:
            low = middle + 1
    return cut(frozenset(costly[:high]))[0]


def is_cheap(node: Node, ops: Mapping[str, OpDef]) -> bool:
    """Elementwise work, views and constants."""
    row = ops.get(node.op)
    return row is not None and isinstance(row.lower, (Pointwise, View, Structural))


def costly_nodes(nodes: Iterable[Node], graph: Graph, ops: Mapping[str, OpDef]) -> list[Node]:
    """The nodes that may be computed again for a budget, those that cost least for their bytes
    first. What makes whole numbers of floats is not among them: its last bit may decide."""

    def work_by_byte(node: Node) -> float:
        made = sum(size_bytes(value.tensor, graph) for value in node.outputs)
        return _work(node, graph, made) / (1 + made)

    found = [n for n in nodes if not (is_cheap(n, ops) or runs_once(n, ops) or decides(n))]
    return sorted(filter(_makes_floats, found), key=work_by_byte)


def read_by_memory_bound_products(
    nodes: Iterable[Node], graph: Graph, ops: Mapping[str, OpDef]
) -> set[Value]:
    """What libraries read in the backward part and do little with: computed again, it is read and
    written once more, which takes long beside them. A gradient of a convolution of few channels is
    such a reader; a product with a large matrix is not."""
    found: set[Value] = set()
    for node in nodes:
        if node.op not in ops or is_done_by_library(ops[node.op]):
            made = sum(size_bytes(v.tensor, graph) for v in node.outputs if _is_tensor(v))
            work = _work(node, graph, made)
            read = [value for value in node.inputs() if _is_tensor(value)]
            found.update(v for v in read if work < COMPUTE_BOUND_FROM * size_bytes(v.tensor, graph))
    return found


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def _makes_floats(node: Node) -> bool:
    kinds = [value.type for value in node.outputs]
    return all(isinstance(kind, TensorType) and kind.dtype.is_floating for kind in kinds)


def _work(node: Node, graph: Graph, made: int) -> int:
    """Of a product of two matrices, the root of the product of the three sizes, which is as many
    multiplications; of others, what they read."""
    read = [
        size_bytes(value.tensor, graph)
        for value in node.inputs()
        if isinstance(value, Value) and isinstance(value.type, TensorType)
    ]
    largest = sorted(read)[-2:]
    if len(largest) == 2:
        return isqrt(largest[0] * largest[1] * made)
    return sum(read)
