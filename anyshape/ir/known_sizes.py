"""Which values of a running graph tell the sizes that its types name.

In: a graph. Out: the values whose shape, strides or number give a symbol that no earlier value
gave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyshape.ir.graph import Graph, ScalarType, Value
from anyshape.symbolic import Expr, Symbol


def symbol_given_by(dim: Any) -> Symbol | None:
    """The symbol that the value of this size gives, and nothing else is needed for it."""
    if not isinstance(dim, Expr) or len(dim.terms) != 1:
        return None
    (factors,) = dim.terms
    return factors[0] if len(factors) == 1 and isinstance(factors[0], Symbol) else None


def symbol_value(dim: Expr, size: int) -> int:
    """Solves ``scale * symbol + offset == size`` for the symbol of ``symbol_given_by``."""
    (scale,) = dim.terms.values()
    return (size - dim.constant) // scale


def size_defining_values(graph: Graph) -> frozenset[Value]:
    """The values whose sizes, strides or numbers give something that no earlier value gave."""
    found: set[Value] = set()
    known: set[Symbol] = set()
    made = (value for node in graph.nodes for value in node.outputs)
    for value in (*(entry.value for entry in graph.inputs), *made):
        kind = value.type
        if isinstance(kind, ScalarType):
            found.add(value)
            continue
        dims = (*kind.shape, *kind.strides)
        given = {symbol for dim in dims if (symbol := symbol_given_by(dim))}
        if not given <= known:
            found.add(value)
            known |= given
    return frozenset(found)


def sizes_of(value: Value) -> Iterator[Symbol]:
    """The symbols in a value's sizes, strides or number."""
    kind = value.type
    dims = (kind.expr,) if isinstance(kind, ScalarType) else (*kind.shape, *kind.strides)
    for dim in dims:
        if isinstance(dim, Expr):
            yield from dim.symbols
