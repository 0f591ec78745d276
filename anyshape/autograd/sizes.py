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


def cost_of_keeping(value: Value, graph: Graph, stored: Mapping[Value, int]) -> int:
    """What a cut pays for the value: what it holds and, unless it is ``stored`` whoever keeps it,
    that a kernel must store it. So of two that are as large the one is kept that lies in memory
    anyway: a normalisation's input rather than what was made of it."""
    size = size_bytes(value.tensor, graph)
    return size * (WRITE + 1) + 1 if value not in stored else size * WRITE + stored[value]


def stored_anyway(nodes: Iterable[Node], ops: Mapping[str, OpDef]) -> dict[Value, int]:
    """What the forward part stores whatever is kept: what a library gives and is handed, and what
    is read both before and behind some library's work, over which no kernel reaches: a sum that
    goes on to the next layer. This last counts 0 and not 1: to compute the sum again from
    what a library gave, all sums before it would be computed again."""
    stored: dict[Value, int] = {}
    behind: dict[Value, int] = {}  # so many libraries, one after the other
    read_behind: dict[Value, int] = {}
    between: set[Value] = set()
    for node in nodes:
        inputs = tuple(node.inputs())
        library = node.op not in ops or is_done_by_library(ops[node.op])
        count = max((behind.get(value, 0) for value in inputs), default=0)
        behind.update(dict.fromkeys(node.outputs, count + library))
        if library:
            stored.update(dict.fromkeys((*inputs, *node.outputs), 1))
        between.update(v for v in inputs if read_behind.setdefault(v, count) != count)
    return stored | dict.fromkeys(between, 0)
