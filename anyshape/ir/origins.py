"""Which node a size that only data decides comes from.

In: nodes, in their order. Out: each such symbol with the first node that has it, and where that is
made, as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anyshape.ir.graph import Node, TensorType
from anyshape.symbolic import Expr, Symbol


def origins(nodes: Iterable[Node]) -> Iterator[tuple[Symbol, Node]]:
    """The symbols that only data decides, each with the first node that has it."""
    seen: set[Symbol] = set()
    for node in nodes:
        for value in node.outputs:
            dims = value.type.shape if isinstance(value.type, TensorType) else (value.type.expr,)
            found = {s for dim in dims if isinstance(dim, Expr) for s in dim.symbols}
            for symbol in sorted(found - seen, key=lambda s: s.name):
                if symbol.knowledge == "midrun":
                    yield symbol, node
            seen |= found


def made_by(node: Node) -> str:
    """The operator and the user's line."""
    return node.op if node.location is None else f"{node.op} at {node.location}"
