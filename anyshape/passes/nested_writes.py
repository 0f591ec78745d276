"""Writes of regions become values that their nodes give, and that are written behind them.

    loop(n, (), (x,), body: ...; assign(%x, %x1); return ())
    ->
    %y, = loop(n, (x,), (), body: ...; return (%x1,)); x is written with %y

In: a node whose regions are functional but for the assignments at their ends, to what they capture.
So where a turn fails, nothing has been written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value
from anyshape.ir.nesting import handed
from anyshape.nouns import replace
from anyshape.ops.table import OPS, assignment
from anyshape.ops.write_back import WrittenThrough


def assigns_inside(node: Node) -> bool:
    """Do regions of the node write to what they are handed?"""
    return any(map(_assigned, node.regions))


def commit_behind(
    node: Node, fresh_name: Callable[[str], str]
) -> tuple[Node, tuple[tuple[Value, Value], ...]]:
    """The node with pure regions; what is to be written behind it, each with its new contents."""
    inside = [dict(handed(node, region)) for region in node.regions]
    written = dict.fromkeys(
        handed_in[target]
        for region, handed_in in zip(node.regions, inside, strict=True)
        for target in _assigned(region)
    )
    regions = tuple(
        _giving(region, [_inside(handed_in, value) for value in written], node)
        for region, handed_in in zip(node.regions, inside, strict=True)
    )
    contents = tuple(
        Value(fresh_name("written"), replace(value.tensor, requires_grad=False))
        for value in written
    )
    at = _tensors(node.outputs)
    outputs = (*node.outputs[:at], *contents, *node.outputs[at:])
    made = replace(node, args=_carrying(node, written), outputs=outputs, regions=regions)
    return made, tuple(zip(written, contents, strict=True))


def _assigned(region: Graph) -> Mapping[Value, Value]:
    """By target, what is assigned to it at the end of the region."""
    found: dict[Value, Value] = {}
    for node in region.nodes:
        how = assignment(OPS.get(node.op))
        if how is None:
            continue
        if not how.counted:
            raise WrittenThrough("a region writes through `.data`")
        target, value = node.read
        found[target] = value
    return found


def _inside(handed_in: Mapping[Value, Value], value: Value) -> Value:
    return next(inner for inner, outer in handed_in.items() if outer is value)


def _tensors(values: Sequence[Arg]) -> int:
    """How many there are: they come before the numbers."""
    return sum(isinstance(v, Value) and isinstance(v.type, TensorType) for v in values)


def _carrying(node: Node, written: Mapping[Value, object]) -> tuple[Arg, ...]:
    """A loop carries what it writes; a branch captures it, as before."""
    if node.op != "loop":
        return node.args
    trips, carried, captured = node.args
    assert isinstance(carried, tuple) and isinstance(captured, tuple)
    at = _tensors(carried)
    rest = tuple(value for value in captured if value not in written)
    return trips, (*carried[:at], *written, *carried[at:]), rest


def _giving(region: Graph, targets: Sequence[Value], node: Node) -> Graph:
    """The region, which gives the new contents of its targets instead of assigning them."""
    assigned = _assigned(region)
    nodes = [n for n in region.nodes if assignment(OPS.get(n.op)) is None]
    contents = [_as_laid(assigned.get(target, target), target, nodes) for target in targets]
    at = _tensors(region.outputs)
    outputs = (*region.outputs[:at], *contents, *region.outputs[at:])
    inputs = region.inputs
    if node.op == "loop":  # what is written is handed over behind the tensors carried until now
        moved = [entry for entry in inputs if entry.value in targets]
        moved.sort(key=lambda entry: targets.index(entry.value))
        rest = [entry for entry in inputs if entry.value not in targets]
        first = 1 + at  # behind the number of the turn
        inputs = (*rest[:first], *moved, *rest[first:])
    return replace(region, inputs=tuple(inputs), nodes=tuple(nodes), outputs=outputs)


def _as_laid(value: Value, target: Value, nodes: list[Node]) -> Value:
    """The value with the strides of the target."""
    if value.tensor.strides == target.tensor.strides:
        return value
    laid = Value(f"{target.name}_written", target.type)
    nodes.append(Node("clone", (value,), {}, (laid,)))
    return laid
