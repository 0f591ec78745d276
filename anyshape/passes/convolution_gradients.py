"""Both gradients of a convolution are one call of the library.

    %gx = conv2d_input_gradient(%g, %w, shape of %x, ...)
    %gw = conv2d_weight_gradient(%g, %x, shape of %w, ...)
    ->
    %gx, %gw = conv2d_gradients(%g, %x, %w, ...)

They are apart until forward and backward are cut: each reads what its own formula reads, and one
that nobody wants is not there. The library chooses its way by image and weight, and reads the
cotangent's layout once.
"""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.ir.graph import Arg, Graph, Node, Value
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import replace
from anyshape.ops.table import OpDef
from anyshape.passes.rebuild import Rebuilding, rebuild

PARTS: Mapping[str, str] = {
    f"conv{n}d_{part}_gradient": f"conv{n}d_gradients"
    for n in (1, 2, 3)
    for part in ("input", "weight")
}


def _has_gradients(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    return sum(node.op in PARTS for node in graph.nodes) > 1


@only_where(_has_gradients)
def join_convolution_gradients(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The later one of two gradients that fit computes both, unless the earlier one is read
    before."""
    partners = _partners(graph)
    earlier = {node.output for node in partners.values()}

    def visit(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        if not earlier.isdisjoint(node.outputs):
            return node.outputs
        partner = partners.get(node.outputs[0]) if node.op in PARTS else None
        if partner is None:
            return out.emit(node)
        out.emit(_both(node, out.with_new_inputs(partner)))
        return node.outputs

    return rebuild(graph, visit)


def _partners(graph: Graph) -> dict[Value, Node]:
    """What a gradient of a convolution can be computed with: one that stands before it."""
    waiting: dict[Value, Node] = {}
    partners: dict[Value, Node] = {}
    for node in graph.nodes:
        for value in node.inputs():
            waiting.pop(value, None)
        if node.op not in PARTS:
            continue
        partner = next((other for other in waiting.values() if _fit(node, other)), None)
        if partner is None:
            waiting[node.output] = node
        else:
            partners[node.output] = waiting.pop(partner.output)
    return partners


def _fit(node: Node, other: Node) -> bool:
    """Are they the two gradients of one convolution, by the shapes that each is told of the other?

    Of two convolutions of equal shapes and one cotangent, either image fits either weight.
    """
    if node.op == other.op or PARTS[node.op] != PARTS[other.op]:
        return False
    (g, mine, shape, *options), (same, theirs, wanted, *others) = node.args, other.args
    assert isinstance(mine, Value) and isinstance(theirs, Value)
    return g is same and options == others and (theirs.shape, mine.shape) == (shape, wanted)


def _both(node: Node, other: Node) -> Node:
    of_input, of_weight = sorted((node, other), key=lambda one: "_weight_" in one.op)
    g, weight, _, *options = of_input.args
    return replace(
        node,
        op=PARTS[node.op],
        args=(g, of_weight.args[1], weight, *options),
        outputs=(of_input.output, of_weight.output),
    )
