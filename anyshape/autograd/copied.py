"""Copies of what eager's gradient formulas keep a copy of, of what the program can see.

    %y = matmul(%x, %w)            where %x is turned, or repeats its elements
    ->
    %c = clone(%x); %y = matmul(%c, %w)

Some operators begin with a copy of an argument that does not lie in rows, and their formulas keep
that. The formulas here would read the argument, and a later write to it would be refused, or read.

In: a captured graph, and a function that says whether eager's formula of a node refuses an argument
that was written since. Out: the same graph with such copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyshape.autograd.memory import roots
from anyshape.ir.graph import Graph, Node, TensorType, Value, map_values, row_major, values_in
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.gradients.backward import is_recorded, requires
from anyshape.ops.gradients.kept import MAY_COPY
from anyshape.ops.table import OpDef

Refuses = Callable[[Graph, Node, frozenset[Value]], bool]


def with_copies(graph: Graph, ops: Mapping[str, OpDef], refuses: Refuses) -> Graph:
    """See the module."""
    if not any(node.op in MAY_COPY and is_recorded(node) for node in graph.nodes):
        return graph
    owner = roots(graph, ops)
    seen = {entry.value for entry in graph.inputs}
    seen.update(owner.get(value, value) for value in values_in(graph.outputs))
    makers = {value: node for node in graph.nodes for value in node.outputs}
    builder = Builder(TypeContext(graph.space, graph.facts.fork(), graph.hints), ops)
    builder.reserve(graph)
    for node in graph.nodes:
        copied = [
            value
            for value in (_may_be_copied(node) if any(map(requires, node.read)) else ())
            if owner.get(value, value) in seen and not refuses(graph, node, frozenset({value}))
        ]
        if copied:
            builder.location, builder.modes = node.location, node.modes
            copies = {value: _copy(builder, makers, value) for value in dict.fromkeys(copied)}
            node = _reading(node, copies)
        builder.nodes.append(node)
    return replace(graph, nodes=tuple(builder.nodes))


def _may_be_copied(node: Node) -> tuple[Value, ...]:
    """Floats that do not lie in rows, by their types."""
    if node.op not in MAY_COPY or not is_recorded(node):
        return ()
    return tuple(
        value
        for value in dict.fromkeys(node.inputs())
        if isinstance(value.type, TensorType)
        and value.type.dtype.is_floating
        and value.type.strides != row_major(value.type.shape)
    )


def _copy(builder: Builder, makers: Mapping[Value, Node], value: Value) -> Value:
    """What is repeated is copied before it is."""
    maker = makers.get(value)
    made: Value
    if maker is None or maker.op != "expand":
        made = builder.call("clone", value)
    else:
        copy = _copy(builder, makers, maker.read[0])
        made = builder.call("expand", copy, *maker.args[1:], **maker.kwargs)
    made.type = replace(made.tensor, requires_grad=requires(value))
    return made


def _reading(node: Node, copies: Mapping[Value, Value]) -> Node:
    def read(value: Value) -> Value:
        return copies.get(value, value)

    return replace(
        node,
        args=tuple(map_values(arg, read) for arg in node.args),
        kwargs={name: map_values(arg, read) for name, arg in node.kwargs.items()},
    )
