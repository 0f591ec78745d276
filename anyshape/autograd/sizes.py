"""How large tensors are taken to be where it is chosen what to keep: by hints of their sizes."""

from __future__ import annotations

from math import prod

from anyshape.ir.graph import Graph, TensorType
from anyshape.symbolic import Dim, evaluate

GUESS = 64
"""A size without a hint."""


def size_bytes(kind: TensorType, graph: Graph) -> int:
    """The bytes of a tensor of the graph at its hints. No result may depend on it."""
    return kind.dtype.size_bytes * prod(_hint(dim, graph) for dim in kind.shape)


def _hint(dim: Dim, graph: Graph) -> int:
    if isinstance(dim, int):
        return dim
    hints = {symbol: graph.hints.get(symbol, GUESS) for symbol in dim.symbols}
    try:
        return max(int(evaluate(dim, hints)), 0)
    except (
        ValueError,
        ZeroDivisionError,
    ):  # guesses that no call has together: 7 and 64, broadcast
        return GUESS
