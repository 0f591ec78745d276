"""Torch-level rows become core rows and externs.

    %y = softmax(%x, -1)   ->   %m = amax(%x, (1,), True); %e = exp(sub(%x, %m)); ...

A row with an expansion and no lowering is replaced by what it expands to, again and again. The
value that stands for a result keeps the type that the torch-level row gave it: its logical strides
are eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.table import OpDef
from anyshape.passes.rebuild import Rebuilding, rebuild


def decompose(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Expands rows until every node has a lowering or is left to a library."""
    cx = TypeContext(graph.space, graph.facts.fork(), graph.hints)
    builder = Builder(cx, ops)
    builder.reserve(value.name for node in graph.nodes for value in node.outputs)
    builder.reserve(entry.value.name for entry in graph.inputs)

    def expand(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        row = ops.get(node.op)
        if row is None or row.lower is not None or row.expand is None:
            return out.emit(node)
        start = len(builder.nodes)
        builder.location, builder.world = node.location, node.world
        if node.world is not None:
            cx.default_dtype, cx.default_device = (
                node.world.default_dtype,
                node.world.default_device,
            )
        made = row.expand(builder, *node.args, **node.kwargs)
        if made is NotImplemented:
            return out.emit(node)
        results = made if isinstance(made, tuple) else (made,)
        body = builder.nodes[start:]
        del builder.nodes[start:]
        return _inline(body, results, node, out, expand)

    return rebuild(graph, expand)


def _inline(
    body: list[Node],
    results: tuple[Arg, ...],
    node: Node,
    out: Rebuilding,
    expand: Callable[[Node, Rebuilding], tuple[Arg, ...]],
) -> tuple[Arg, ...]:
    """Writes the expansion, itself expanded; its results get the types of ``node``'s outputs."""
    start = len(out.nodes)
    for inner in body:
        for old, new in zip(inner.outputs, expand(out.with_new_inputs(inner), out), strict=True):
            if old is not new:
                out.substitutes[old] = new
    made = (out.rewrite(result) for result in results)
    return tuple(_typed(new, old, out, start) for new, old in zip(made, node.outputs, strict=True))


def _typed(new: Arg, old: Value, out: Rebuilding, start: int) -> Arg:
    """``new``, made after ``start``, with eager's strides where the expansion's differ."""
    if not isinstance(new, Value) or new.type == old.type:
        return new
    if not isinstance(new.type, TensorType) or not isinstance(old.type, TensorType):
        return new
    for index in range(len(out.nodes) - 1, start - 1, -1):
        inner = out.nodes[index]
        if new in inner.outputs:
            value = Value(new.name, replace(new.type, strides=old.type.strides))
            outputs = tuple(value if output is new else output for output in inner.outputs)
            out.nodes[index] = replace(inner, outputs=outputs)
            out.substitutes[new] = value
            return value
    return new
