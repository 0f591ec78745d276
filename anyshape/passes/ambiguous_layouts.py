"""Outputs whose strides depend on which sizes are 0 and 1, where types do not say how.

Types have strides as if every size were above 1 (``ops/layout.py``). They are eager's at all sizes
where only views of arguments and row-major tensors are met on the way to an output; elsewhere, in
``x.T + x.T``, TensorIterator tells dimensions of one element apart by its own rules, and a returned
tensor shows them. An argument that has a stride of its own in a dimension of one element decides
more of them: of ``x + x``, too. In: a captured graph. Out: the graph that makes those outputs, from
values whose strides are certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anyshape.ir.graph import (
    Graph,
    Input,
    Node,
    TensorType,
    Value,
    row_major,
    values_in,
)
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext, Undecided
from anyshape.ops.row_major_results import makes_rows
from anyshape.ops.table import OpDef

LIKE_WHERE_EMPTY = frozenset({"roll"})
"""Operators of which eager makes row-major results, but copies an empty tensor as it lies."""
DECIDED_BY_ONES = frozenset({"einsum"})
"""Operators that do other work where a size is 1, whose results lie otherwise then."""


@dataclass(frozen=True, slots=True, eq=False)
class AmbiguousLayouts:
    """``graph`` has the inputs of the program, then values that it makes, and some of its outputs.
    ``outputs`` are their positions."""

    graph: Graph
    outputs: tuple[int, ...]


def ambiguous_layouts(
    graph: Graph, ops: Mapping[str, OpDef], *, arguments_lie_as_typed: bool = True
) -> AmbiguousLayouts | None:
    """None where there are none, or where data or regions decide how they lie."""
    builder = Builder(TypeContext(graph.space, graph.facts.fork(), graph.hints), ops)
    given = {entry.value for entry in graph.inputs}
    certain = _certain(graph, builder, given if arguments_lie_as_typed else set())
    positions = tuple(
        position
        for position, output in enumerate(graph.outputs)
        if isinstance(output, Value)
        and isinstance(output.type, TensorType)
        and output.tensor.rank > 1
        and output not in certain
        and output not in given
    )
    if not positions:
        return None
    outputs = tuple(graph.outputs[position] for position in positions)
    wanted = set(values_in(outputs))
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        row = ops.get(node.op)
        is_view = row is not None and row.alias == "view"
        if wanted.isdisjoint(node.outputs) or (certain.issuperset(node.outputs) and not is_view):
            continue
        if row is None or row.guessed or node.regions:
            return None
        if not _as_its_row_says(builder, row, node):
            return None
        nodes.append(node)
        wanted.update(node.inputs())
    made = {value for node in nodes for value in node.outputs}
    cut = [Input(v, "argument", "") for v in sorted(wanted - given - made, key=_name)]
    inputs = (*graph.inputs, *cut)
    part = replace(graph, inputs=inputs, nodes=tuple(nodes[::-1]), outputs=outputs)
    return AmbiguousLayouts(part, positions)


def _name(value: Value) -> str:
    return value.name


def _certain(graph: Graph, builder: Builder, given: set[Value]) -> set[Value]:
    """The values whose strides are eager's at all sizes, if those that are ``given`` lie so."""
    found = set(given)
    for node in graph.nodes:
        row = builder.ops.get(node.op)
        read = [v for v in node.inputs() if isinstance(v.type, TensorType)]
        if row is None:
            continue
        if node.op in DECIDED_BY_ONES:
            continue
        if row.alias == "view" or row.mutates:
            if all(v in found for v in read[:1]):
                found.update(node.outputs)
            continue
        plain = all(v in found and _row_major(v) for v in read)
        copies = row.alias == "none" and node.op not in LIKE_WHERE_EMPTY
        for value in node.outputs:
            if not isinstance(value.type, TensorType) or (
                _row_major(value) and (plain or (copies and makes_rows(builder, row, node)))
            ):
                found.add(value)
    return found


def _row_major(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and kind.strides == row_major(kind.shape)


def _as_its_row_says(builder: Builder, row: OpDef, node: Node) -> bool:
    """Are the types those of the row? Capture gives what it spells out the strides of the whole."""
    try:
        types = builder.type_of(row, node.args, node.kwargs)
    except (OpError, Undecided, LookupError):
        return False
    made = types if isinstance(types, tuple) else (types,)
    pairs = zip(made, node.outputs, strict=True)
    return all(t.strides == v.tensor.strides for t, v in pairs if isinstance(t, TensorType))
