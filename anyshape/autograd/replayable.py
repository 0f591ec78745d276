"""The captured graph for eager torch to run again, where results on the way are cut out of it.

    %h = linear(%x, %w); div_(%h, %n); return %x, sin(%h)
    ->
    %h = linear(%x, %w); %k = div(%h, %n); return %x, sin(%k)

What is written has no one place behind which it can be cut: writes become pure operators, as they
are already in the functional graph. In: that graph, whose types say of nothing
that it requires gradients, and the captured graph. Out: the functional graph with marks.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.autograd.stages import reading
from anyshape.ir.graph import Graph, TensorType, Value, map_values
from anyshape.nouns import replace
from anyshape.ops.gradients.backward import is_recorded, requires
from anyshape.ops.table import OpDef


def writes_on_the_way(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    """Whether autograd sees writes of what has gradients."""
    return any(
        any(map(requires, (*node.read, *node.outputs)))
        for node in filter(is_recorded, graph.nodes)
        if node.op in ops and ops[node.op].mutates
    )


def with_marks(pure: Graph, captured: Graph, ops: Mapping[str, OpDef]) -> Graph | None:
    """``pure``, in which what autograd sees says that it requires gradients; what has no gradients
    in ``captured`` has none. None where an operator runs a graph."""
    plain = {v.name for node in captured.nodes for v in node.outputs if not requires(v)}
    made: dict[Value, Value] = {}
    nodes = []
    for node in pure.nodes:
        if node.regions:
            return None
        given = reading(node, made)
        row = ops.get(node.op)
        differentiates = is_recorded(node) and (row is None or row.differentiable)
        if differentiates and any(map(requires, given.inputs())):
            named = (v for v in node.outputs if v.name not in plain)
            made.update((value, _marked(value)) for value in named)
        nodes.append(replace(given, outputs=tuple(made.get(v, v) for v in node.outputs)))
    outputs = tuple(map_values(output, lambda v: made.get(v, v)) for output in pure.outputs)
    return replace(pure, nodes=tuple(nodes), outputs=outputs)


def _marked(value: Value) -> Value:
    kind = value.type
    if not isinstance(kind, TensorType) or not (kind.dtype.is_floating or kind.dtype.is_complex):
        return value
    return Value(value.name, replace(kind, requires_grad=True))
