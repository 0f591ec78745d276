"""Sizes inside a program that are 0 or 1 in some calls, though no argument and no result has a size
below 2: the last part of a tensor that is split is one.

In: a graph, and a call of it. Out: which sizes these are, and which are 0 and 1 in the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from anyshape.ir.graph import Graph, ScalarType, TensorType, Value, values_in
from anyshape.ir.known_sizes import symbol_given_by, symbol_value
from anyshape.symbolic import Expr, Symbol, evaluate, ge

UNKNOWN = -1
"""In the place of a size that neither an argument nor a result tells."""


def hidden_sizes(graph: Graph) -> tuple[Expr, ...]:
    """Those of values inside that may be below 2 where none of an argument or a result is."""
    given = [entry.value for entry in graph.inputs if entry.kind == "argument"]
    seen = dict.fromkeys(_sizes((*given, *values_in(graph.outputs))))
    inside = (v for node in graph.nodes for v in (*node.inputs(), *node.outputs))
    hidden = [dim for dim in dict.fromkeys(_sizes(inside)) if dim not in seen]
    if not hidden:
        return ()
    facts = graph.facts.fork()
    for dim in seen:
        if facts.known(ge(dim, 2)) is None:
            facts.assume(ge(dim, 2))
    return tuple([dim for dim in hidden if facts.known(ge(dim, 2)) is not True])


def _sizes(values: Iterable[Value]) -> Iterable[Expr]:
    for value in values:
        if isinstance(value.type, TensorType):
            yield from (dim for dim in value.type.shape if isinstance(dim, Expr))


def small_sizes(
    hidden: Sequence[Expr], graph: Graph, arguments: Sequence[Any], results: Sequence[torch.Size]
) -> tuple[int, ...]:
    """Which of the hidden sizes are 0 and 1 in a call with results of these shapes."""
    sizes: dict[Symbol, int] = {}
    for dim, size in _told(graph, arguments, results):
        if isinstance(dim, Expr) and (symbol := symbol_given_by(dim)):
            sizes.setdefault(symbol, symbol_value(dim, int(size)))
    known = [dim.symbols <= sizes.keys() for dim in hidden]
    return tuple(
        [
            min(evaluate(dim, sizes), 2) if is_known else UNKNOWN
            for dim, is_known in zip(hidden, known, strict=True)
        ]
    )


def _told(
    graph: Graph, arguments: Sequence[Any], results: Sequence[torch.Size]
) -> Iterable[tuple[object, Any]]:
    """The sizes and strides that arguments and results have, by what their types call them."""
    given = [entry.value.type for entry in graph.inputs if entry.kind == "argument"]
    for kind, argument in zip(given, arguments):
        if isinstance(kind, ScalarType):
            yield kind.expr, argument
        else:
            yield from zip((*kind.shape, *kind.strides), (*argument.shape, *argument.stride()))
    for output, shape in zip(values_in(graph.outputs), results):
        yield from zip(output.tensor.shape, shape, strict=True)
