"""The own backward of an `autograd.Function`, in a joint graph.

    %r = applied_function((%x,), (%y,), (%k,)) { (%c, %k) -> (mul(%c, %k),) }; ... %g is that of %r
    ->
    ...; %gx = mul(%g, %k)        and %y in place of %r

In: a node and the gradients of its results. Out: the gradients of its arguments, by copies of the
nodes of its region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anyshape.ir.graph import Arg, Graph, Node, Value, map_values, row_major, values_in
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.gradients.backward import APPLIED


def gradients_of_arguments(
    builder: Builder, node: Node, given: Sequence[Value | None]
) -> Iterator[tuple[Value, Value]]:
    """Each argument that gets a gradient, with it. The builder's modes are those of backward."""
    (region,) = node.regions
    arguments, results, captured = node.args
    seeds = [
        _seed(builder, value, gradient)
        for value, gradient in zip(values_in(results), given, strict=True)
    ]
    new: dict[Value, Value] = dict(
        zip((entry.value for entry in region.inputs), (*seeds, *values_in(captured)), strict=True)
    )

    def current(value: Value) -> Value:
        return new.get(value, value)

    for inner in region.nodes:
        made = tuple(Value(builder.fresh_name(v.name), v.type) for v in inner.outputs)
        copy = replace(
            inner,
            args=tuple(map_values(arg, current) for arg in inner.args),
            kwargs={name: map_values(arg, current) for name, arg in inner.kwargs.items()},
            outputs=made,
            modes=builder.modes,
        )
        builder.nodes.append(copy)
        builder.makers.update(dict.fromkeys(made, copy))
        new.update(zip(inner.outputs, made, strict=True))
    for argument, output in zip(values_in(arguments), region.outputs, strict=True):
        if isinstance(output, Value):
            yield argument, current(output)


def _seed(builder: Builder, result: Value, gradient: Value | None) -> Value:
    """Row by row, as the region reads it; zeros where there is none."""
    kind = result.tensor
    made: Value
    if gradient is None:
        made = builder.call("full", kind.shape, 0, kind.dtype, kind.device)
        return made
    strides = row_major(kind.shape)
    if all(map(builder.cx.same, gradient.tensor.strides, strides)):
        return gradient
    wanted = replace(gradient.tensor, strides=strides)
    made = builder.append("clone", (gradient,), {"memory_format": "contiguous_format"}, (wanted,))
    return made


def without_own_backwards(graph: Graph) -> Graph:
    """The graph after it was differentiated: results are what `forward` has made."""
    if all(node.op != APPLIED for node in graph.nodes):
        return graph
    raw: dict[Value, Value] = {}
    nodes: list[Node] = []

    def read(value: Value) -> Arg:
        return raw.get(value, value)

    for node in graph.nodes:
        node = replace(
            node,
            args=tuple(map_values(arg, read) for arg in node.args),
            kwargs={name: map_values(arg, read) for name, arg in node.kwargs.items()},
        )
        if node.op == APPLIED:
            raw.update(zip(node.outputs, values_in(node.args[1]), strict=True))
        else:
            nodes.append(node)
    outputs = tuple(map_values(output, read) for output in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs)
