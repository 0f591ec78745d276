"""``backward()`` inside a graph, replaced by the nodes that compute its gradients.

    %y = mul(%x, %w); %gw = gradients((%y,), (%g,), (%w,))
    ->
    %y = mul(%x, %w); %gw = sum(mul(%g, %x), ...)

In: a functional graph. What is differentiated are the nodes in front of ``gradients`` that its
tensors are made by; what they are differentiated to are values like any other: a parameter that the
graph has written is the newest version of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anyshape.autograd.checkpoints import computed_again
from anyshape.autograd.differentiate import Activity, Backward, continued
from anyshape.autograd.memory import roots
from anyshape.autograd.outline import NotDifferentiable, owns, written_otherwise
from anyshape.autograd.own_backwards import without_own_backwards
from anyshape.ir.graph import Arg, Graph, Node, Value, map_values, values_in
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.gradients.backward import (
    AS_LEAF,
    GRADIENTS,
    LEAVES,
    gone_through,
    is_recorded,
    requires,
)
from anyshape.ops.table import OpDef


def refuse_uncovered(graph: Graph, ops: Mapping[str, OpDef]) -> tuple[int, ...]:
    """The positions of outputs that require gradients, all of which ``backward()`` has gone
    through, or what they are made of: there is nothing left to differentiate. Raises
    ``NotDifferentiable``."""
    _refuse_writes(graph, ops)
    spent = _spent(graph)
    found = []
    for position, output in enumerate(graph.outputs):
        left = [value for value in values_in(output) if requires(value)]
        if left and (not isinstance(output, Value) or output not in spent):
            raise NotDifferentiable("an output requires gradients that backward() has not taken")
        found += [position] * len(left)
    return tuple(found)


def _spent(graph: Graph) -> set[Value]:
    """What ``backward()`` has gone through, and what is made of nothing else that has gradients.
    Not known, and not among them, is what a recorded gradient has kept, which a second
    one goes through."""
    spent: set[Value] = set()
    for position, node in enumerate(graph.nodes):
        if node.op == GRADIENTS and not node.args[3]:
            of, _, wanted, *_ = node.args
            before = graph.nodes[:position]
            spent |= gone_through(before, set(values_in(of)), set(values_in(wanted)))
    for node in graph.nodes:
        if node.op == AS_LEAF:
            spent.difference_update(node.outputs)
        elif is_recorded(node):
            behind = [*filter(requires, node.inputs())]
            if behind and spent.issuperset(behind):
                spent.update(filter(requires, node.outputs))
    return spent


def differentiates_again(graph: Graph) -> bool:
    """Whether gradients are computed that other ones are computed of."""
    return any(map(_is_recorded_gradient, graph.nodes))


def _is_recorded_gradient(node: Node) -> bool:
    return node.op == GRADIENTS and node.args[5] is True


def inline_gradients(graph: Graph, ops: Mapping[str, OpDef], first: bool = False) -> Graph:
    """``first``: only those up to the first one of which others are computed. Raises
    ``NotDifferentiable``."""
    first &= differentiates_again(graph)
    builder = continued(replace(graph, nodes=()), ops)
    builder.reserve(graph)
    new: dict[Value, Arg] = {}
    done = False

    def current(value: Value) -> Arg:
        return new.get(value, value)

    for position, node in enumerate(graph.nodes):
        node = replace(
            node,
            args=tuple(map_values(arg, current) for arg in node.args),
            kwargs={name: map_values(arg, current) for name, arg in node.kwargs.items()},
        )
        if node.op != GRADIENTS or done:
            builder.nodes.append(node)
            continue
        done = first and _is_recorded_gradient(node)
        start = len(builder.nodes)
        made = _gradients(builder, graph, ops, node)
        new.update(zip(node.outputs, made, strict=True))
        later = (v for other in graph.nodes[position + 1 :] for v in other.inputs())
        read = (*graph.outputs, *later, *made)
        builder.nodes = computed_again(builder.nodes, start, read, ops, builder.fresh_name)
    outputs = tuple(map_values(output, current) for output in graph.outputs)
    return without_own_backwards(replace(graph, nodes=tuple(builder.nodes), outputs=outputs))


def _gradients(
    builder: Builder, graph: Graph, ops: Mapping[str, OpDef], call: Node
) -> Sequence[Value]:
    of, cotangents, wanted, *_ = call.args
    assert isinstance(of, tuple) and isinstance(cotangents, tuple) and isinstance(wanted, tuple)
    leaves = list(values_in(wanted))
    nodes = _makers(builder.nodes, values_in(of))
    active = Activity(replace(graph, nodes=tuple(nodes)), ops, leaves)
    assert call.modes is not None
    again = _is_recorded_gradient(call)
    modes = replace(call.modes, grad=again, backward=True)
    builder.location, builder.modes = call.location, modes
    backward = Backward(builder, ops, active.values, recorded=again)
    seeds = []
    for value, seed in zip(of, cotangents, strict=True):
        assert isinstance(value, Value)
        seeds.append(_seed(builder, value, seed))
        backward.add(value, seeds[-1])
    for node in reversed(nodes):
        if active.differentiates(node):
            backward.node(node)
    builder.location, builder.modes = call.location, modes
    made = backward.finished(leaves, seeds, roots(builder.finish(()), ops))
    if any(_is_gradient_gone_through(node, backward) for node in nodes):
        # eager was asked what gets one (capture/tensors/second_gradients.py): of a mask, zeros
        made = [_zeros(builder, out) if g is None else g for g, out in zip(made, call.outputs)]
    return [_laid_out(builder, g, out) for g, out in zip(made, call.outputs, strict=True)]


def _is_gradient_gone_through(node: Node, backward: Backward) -> bool:
    modes = node.modes
    recorded = modes is not None and modes.backward and modes.grad
    return recorded and any(value in backward.found for value in node.outputs)


def _zeros(builder: Builder, like: Value) -> Value:
    kind = like.tensor
    made: Value = builder.call("full", kind.shape, 0, kind.dtype, kind.device)
    return made


def _makers(nodes: Sequence[Node], of: Iterable[Value]) -> list[Node]:
    """The nodes that these values are made by, in order."""
    needed, found = set(of), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs())
            found.append(node)
    return found[::-1]


def _seed(builder: Builder, value: Value, seed: Any) -> Value:
    if isinstance(seed, Value):
        return seed
    kind = value.tensor
    made: Value = builder.call("full", kind.shape, 1, kind.dtype, kind.device)
    return made


def _laid_out(builder: Builder, gradient: Value | None, out: Value) -> Value:
    """In the layout that ``.grad`` has."""
    if gradient is None:
        raise NotDifferentiable("a tensor that requires gradients may get none")
    if all(map(builder.cx.same, gradient.tensor.strides, out.tensor.strides)):
        return gradient
    made: Value = builder.append("clone", (gradient,), {}, (out.type,))
    return made


def _refuse_writes(graph: Graph, ops: Mapping[str, OpDef]) -> None:
    """A write is a pure operator where it is recorded, in memory that the graph makes, and where
    it is not, in memory that was handed in: capture has seen that nothing was read from there
    before, by what is differentiated."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    owner = roots(graph, ops)
    inputs = {entry.value for entry in graph.inputs}
    differentiated = _since(graph, owner)
    for node, what in written_otherwise(graph, ops):
        raise NotDifferentiable(f"{node.op} {what}", node)
    for position, node in enumerate(graph.nodes):
        row = ops.get(node.op)
        if row is None or not row.mutates:
            continue
        target = next(node.inputs())
        root = owner.get(target, target)
        recorded = is_recorded(node) and any(map(requires, node.read))
        if position < differentiated.get(root, len(graph.nodes)) and not recorded:
            continue
        if is_recorded(node) and owns(node.args[0], makers, ops):
            continue
        if recorded or root not in inputs:
            raise NotDifferentiable(f"{node.op} writes in place what requires gradients", node)


def _since(graph: Graph, owner: Mapping[Value, Value]) -> dict[Value, int]:
    """The memory that holds what requires gradients, and the number of the node since which it
    does: the first one, but where a function of the program's own has made it, unrecorded, and
    given it (``function_result``), or it is made a leaf. Capture has seen that nobody writes it
    after that."""
    inputs = [entry.value for entry in graph.inputs]
    found = {owner.get(value, value): 0 for value in filter(requires, inputs)}
    for position, node in enumerate(graph.nodes):
        for value in filter(requires, node.outputs):
            start = position if node.op in LEAVES else 0
            found.setdefault(owner.get(value, value), start)
    return found
