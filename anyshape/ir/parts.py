"""Some nodes of a graph as a graph of their own.

    %n = item(%x); %y = mul(%x, 2); %z = slice(%y, 0, 0, u0)
    ->  %x, %y, u0 : %z = slice(%y, 0, 0, u0)

What other nodes make is handed in, sizes and numbers that they read from data too: a part of a
graph is a graph, of which everything is known that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anyshape.ir.established import midrun_numbers
from anyshape.ir.graph import Arg, Graph, Input, Node, ScalarType, Value, values_in
from anyshape.ir.known_sizes import symbol_given_by
from anyshape.ir.scalars import ScalarInput
from anyshape.nouns import replace
from anyshape.symbolic import Symbol


def part_of(graph: Graph, nodes: Sequence[Node], outputs: Sequence[Arg]) -> Graph:
    """The graph of these nodes without regions. Its inputs are those of the whole graph,
    then values that other nodes make, then sizes and numbers that only those give."""
    known = {entry.value for entry in graph.inputs}
    known.update(value for node in nodes for value in node.outputs)
    read = [*(value for node in nodes for value in node.read), *values_in(tuple(outputs))]
    others = sorted(set(read) - known, key=lambda value: value.name)
    inputs = (*graph.inputs, *(Input(value, "argument", "") for value in others))
    numbers = (Input(_value_of(n), "argument", "") for n in _numbers_of_others(inputs, nodes))
    return replace(graph, inputs=(*inputs, *numbers), nodes=tuple(nodes), outputs=tuple(outputs))


def _numbers_of_others(
    inputs: Iterable[Input], nodes: Sequence[Node]
) -> Iterator[Symbol | ScalarInput]:
    """What data decides, is read by one of the nodes, and given by no input and no node before."""
    read = [midrun_numbers((node.args, tuple(node.kwargs.values()))) for node in nodes]
    if not any(read):
        return
    known = {number for entry in inputs for number in _given_by(entry.value)}
    for node, numbers in zip(nodes, read, strict=True):
        for number in numbers:
            if number not in known:
                known.add(number)
                yield number
        known.update(number for value in node.outputs for number in _given_by(value))


def _given_by(value: Value) -> Iterator[Symbol | ScalarInput]:
    kind = value.type
    if isinstance(kind, ScalarType) and isinstance(kind.expr, ScalarInput):
        yield kind.expr
        return
    dims = (kind.expr,) if isinstance(kind, ScalarType) else (*kind.shape, *kind.strides)
    yield from filter(None, map(symbol_given_by, dims))


def _value_of(number: Symbol | ScalarInput) -> Value:
    if isinstance(number, Symbol):
        return Value(f"number {number.name}", ScalarType("int", number.expr))
    return Value(f"number {number.name}", ScalarType(number.kind, number))
