"""Attention of keys whose heads a model repeats takes them as they are before, off the host.

    %s = unsqueeze(%k, 2); %e = expand(%s, (b, h, r, n, w)); %K = reshape(%e, (b, h * r, n, w))
    %y, %l = flash_attention(%q, %K, %V, ...)
    ->
    %y, %l = flash_attention(%q, %k, %v, ...)

The kernels that eager takes there read a head of the keys for several of the query, and give its
gradient as one: nothing is repeated, and nothing summed. Not where the program can see the memory
of what is not repeated: eager keeps the repeated one, and lets it be written.

In: a functional graph before it is differentiated. Out: the same, where nothing is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.autograd.memory import roots
from anyshape.ir.graph import HOST, Graph, Node, Value, values_in
from anyshape.nouns import replace
from anyshape.ops.context import TypeContext
from anyshape.ops.table import OpDef

ATTENTION = "flash_attention"


def without_repeated_heads(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """See the module."""
    if not any(map(_is_off_the_host, graph.nodes)):
        return graph
    makers = {value: node for node in graph.nodes for value in node.outputs}
    owner = roots(graph, ops)
    seen = {entry.value for entry in graph.inputs}
    seen.update(owner.get(value, value) for value in values_in(graph.outputs))
    cx = TypeContext(graph.space, graph.facts.fork(), graph.hints)

    def shared(node: Node) -> Node:
        if not _is_off_the_host(node):
            return node
        query, *repeated = node.args[:3]
        made = [_unrepeated(cx, makers, value) for value in repeated]
        if any(value is None or owner.get(value, value) in seen for value in made):
            return node
        keys, values = made
        assert isinstance(query, Value) and keys is not None and values is not None
        if not cx.same(keys.shape[1], values.shape[1]):
            return node
        return replace(node, args=(query, keys, values, *node.args[3:]))

    return replace(graph, nodes=tuple(map(shared, graph.nodes)))


def _is_off_the_host(node: Node) -> bool:
    return node.op == ATTENTION and node.outputs[0].tensor.device != HOST


def _made_by(op: str, makers: Mapping[Value, Node], value: object) -> Node | None:
    """The node of this operator that makes the value."""
    node = makers.get(value) if isinstance(value, Value) else None
    return node if node is not None and node.op == op else None


def _unrepeated(cx: TypeContext, makers: Mapping[Value, Node], value: object) -> Value | None:
    """What the heads are repeated of; None where they are not."""
    last = _made_by("reshape", makers, value)
    middle = last and _made_by("expand", makers, last.args[0])
    first = middle and _made_by("unsqueeze", makers, middle.args[0])
    if last is None or middle is None or first is None:
        return None
    joined, repeated, split = (node.outputs[0].shape for node in (last, middle, first))
    value = first.args[0]
    assert isinstance(value, Value)
    if (len(value.shape), len(split), len(joined)) != (4, 5, 4):
        return None
    batch, heads, length, width = value.shape
    times = repeated[2]
    wanted = (
        *(batch, heads * times, length, width),
        *(batch, heads, times, length, width),
        *(batch, heads, 1, length, width),
    )
    return value if all(map(cx.same, (*joined, *repeated, *split), wanted)) else None
