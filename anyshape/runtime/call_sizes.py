"""The sizes of a call: those that arguments and results tell, and those that values inside have.

In: a graph, and a call of it. Out: what its symbols are; and which sizes inside are 0 and 1 though
no argument and no result has a size below 2, as the last part of a tensor that is split may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from anyshape.ir.graph import Graph, ScalarType, TensorType, Value, values_in
from anyshape.ir.known_sizes import symbol_given_by, symbol_value
from anyshape.symbolic import Dim, Expr, Symbol, evaluate, ge, substitute

UNKNOWN = -1
"""Instead of a size that neither an argument nor a result tells."""


def hidden_sizes(graph: Graph) -> tuple[Expr, ...]:
    """Those of values inside that may be below 2 where none of an argument or a result is."""
    given = [entry.value for entry in graph.inputs if entry.kind == "argument"]
    seen = dict.fromkeys(_sizes((*given, *values_in(graph.outputs))))
    inside = (v for node in graph.nodes for v in (*node.inputs(), *node.outputs))
    hidden = [dim for dim in dict.fromkeys(_sizes(inside)) if dim not in seen]
    if not hidden:
        return ()
    facts = graph.facts.supposing(ge(dim, 2) for dim in seen)
    return tuple([dim for dim in hidden if facts.known(ge(dim, 2)) is not True])


def _sizes(values: Iterable[Value]) -> Iterable[Expr]:
    for value in values:
        if isinstance(value.type, TensorType):
            yield from (dim for dim in value.type.shape if isinstance(dim, Expr))


def small_sizes(
    hidden: Sequence[Expr], graph: Graph, arguments: Sequence[Any], results: Sequence[torch.Size]
) -> tuple[int, ...]:
    """Which of the hidden sizes are 0 and 1 in a call with results of these shapes."""
    sizes = sizes_of_call(graph, arguments, results)
    return tuple(
        [min(evaluate(n, sizes), 2) if n.symbols <= sizes.keys() else UNKNOWN for n in hidden]
    )


def sizes_of_call(
    graph: Graph, arguments: Sequence[Any], results: Sequence[torch.Size] = ()
) -> dict[Symbol, int]:
    """What the arguments' sizes, strides and numbers tell, and the shapes of results."""
    sizes: dict[Symbol, int] = {}
    for dim, size in _sizes_of_arguments(graph, arguments):
        if isinstance(dim, Expr) and (symbol := symbol_given_by(dim)):
            sizes.setdefault(symbol, symbol_value(dim, int(size)))
    pairs = [
        (dim, size)
        for output, shape in zip(values_in(graph.outputs), results)
        for dim, size in zip(output.tensor.shape, shape, strict=True)
    ]
    while left := _learn(sizes, pairs):  # one size may tell another
        if len(left) == len(pairs):
            _suppose(sizes, left, graph)
            break
        pairs = left
    return sizes


def _suppose(sizes: dict[Symbol, int], pairs: Sequence[tuple[Dim, int]], graph: Graph) -> None:
    """Adds what a remainder or an extremum of a number of data gives as that number: 4 where
    ``u0 % 5`` is 4. Nothing is supposed of what is a size by itself."""
    values = (v for node in graph.nodes for v in (*node.inputs(), *node.outputs))
    alone = {symbol_given_by(dim) for dim in _sizes(values)}
    for dim, size in pairs:
        rest = substitute(dim, sizes)
        if isinstance(rest, Expr) and len(rest.symbols) == 1:
            (symbol,) = rest.symbols
            if symbol not in alone and evaluate(rest, {symbol: size}) == size:
                sizes[symbol] = size


def _sizes_of_arguments(graph: Graph, arguments: Sequence[Any]) -> Iterable[tuple[object, Any]]:
    """What types say, and what it is in the call. Behind the arguments that are given a graph may
    have others, which the program makes."""
    kinds = [entry.value.type for entry in graph.inputs if entry.kind == "argument"]
    for kind, argument in zip(kinds, arguments):
        if isinstance(kind, ScalarType):
            yield kind.expr, argument
        else:
            yield from zip((*kind.shape, *kind.strides), (*argument.shape, *argument.stride()))


def _learn(sizes: dict[Symbol, int], pairs: Sequence[tuple[Dim, int]]) -> list[tuple[Dim, int]]:
    """Adds the sizes that dimensions of these sizes tell; gives those that may tell more."""
    left: list[tuple[Dim, int]] = []
    for dim, size in pairs:
        rest = substitute(dim, sizes)
        if isinstance(rest, Expr):
            if symbol := symbol_given_by(rest):
                sizes[symbol] = symbol_value(rest, size)
            else:
                left.append((rest, size))
    return left
