"""How large tensors are taken to be where it is chosen what to keep: by hints of their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from anyshape.ir.graph import Graph, Node, TensorType, Value
from anyshape.ops.table import OpDef, is_done_by_library
from anyshape.symbolic import Dim, evaluate

GUESS = 64
"""A size without a hint."""
WRITE = 16
"""So many times the cost of writing a tensor is that of holding it until the backward part."""


def size_bytes(kind: TensorType, graph: Graph) -> int:
    """The bytes of a tensor of the graph at its hints. No result may depend on it."""
    return kind.dtype.size_bytes * prod(_hint(dim, graph) for dim in kind.shape)


def _hint(dim: Dim, graph: Graph) -> int:
    if isinstance(dim, int):
        return dim
    hints = {symbol: graph.hints.get(symbol, GUESS) for symbol in dim.symbols}
    try:
        return max(int(evaluate(dim, hints)), 0)
    except (ValueError, ZeroDivisionError):
        return GUESS  # guesses that no call has together: 7 and 64, broadcast


def cost_of_keeping(value: Value, graph: Graph, lies_there: bool) -> int:
    """What a cut pays for the value: what it holds and, unless it ``lies_there`` whoever keeps it,
    that a kernel must store it. So of two that are as large the one is kept that a library has
    made or reads: a normalisation's input rather than what was made of it."""
    size = size_bytes(value.tensor, graph)
    return 1 + size * (WRITE if lies_there else WRITE + 1)


def of_libraries(nodes: Iterable[Node], ops: Mapping[str, OpDef]) -> set[Value]:
    """What lies in memory for a library: what it gives and what it is handed."""
    theirs = [n for n in nodes if n.op not in ops or is_done_by_library(ops[n.op])]
    return {value for node in theirs for value in (*node.inputs(), *node.outputs)}
