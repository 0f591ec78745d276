"""What calls of `torch.utils.checkpoint` leave to be computed again.

    %a = sin(%x); %m = rand(...); %y = mul(%a, %m)      all of one checkpoint, %y read behind it
    ->
    again: %a; given: %y; read: %x. %m, which is drawn, may be saved

In: nodes that say which call they belong to (`Modes.checkpoint`). Random numbers are drawn once:
what is made of draws alone is saved, and so is what the last bit decides (`decisions.py`). What has
effects, or gives numbers, runs once too. Where forward and backward are one graph, the backward
nodes read copies of the nodes (`computed_again`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from anyshape.autograd.decisions import in_front_of_decisions
from anyshape.ir.graph import Arg, Modes, Node, ScalarType, TensorType, Value, map_values, values_in
from anyshape.nouns import frozen, replace
from anyshape.ops.gradients.decisions import decides
from anyshape.ops.table import OpDef


@frozen(eq=False)
class Checkpoints:
    """``again``: what may not be saved. ``given``: what is read behind the checkpoint that made it,
    and may not be computed again. ``read``: what checkpoints read that others made."""

    again: frozenset[Value]
    given: frozenset[Value]
    read: frozenset[Value]

    @classmethod
    def of(
        cls, nodes: Sequence[Node], outputs: Sequence[Arg], ops: Mapping[str, OpDef]
    ) -> Checkpoints:
        """``outputs``: what is read behind the nodes, whatever reads it."""
        makers = {value: node for node in nodes for value in node.outputs}
        given = set(values_in(tuple(outputs)))
        read: set[Value] = set()
        drawn: set[Value] = set()
        for node in nodes:
            tensors = [v for v in node.inputs() if isinstance(v.type, TensorType)]
            crossing = [v for v in tensors if call_of(makers.get(v)) != call_of(node)]
            given.update(crossing)
            if is_checkpointed(node):
                read.update(crossing)
                once = runs_once(node, ops) or decides(node)
                if once or (tensors and drawn.issuperset(tensors)):
                    drawn.update(node.outputs)
        inside = {value for node in nodes if is_checkpointed(node) for value in node.outputs}
        return cls(frozenset(inside - given - drawn), frozenset(inside & given), frozenset(read))


def call_of(node: Node | None) -> int:
    """The checkpoint that a node belongs to; 0 for none."""
    return 0 if node is None or node.modes is None else node.modes.checkpoint


def is_checkpointed(node: Node) -> bool:
    """Whether a checkpoint computes it."""
    return call_of(node) > 0


def runs_once(node: Node, ops: Mapping[str, OpDef]) -> bool:
    """Whether the node does something besides its results, or its results are numbers."""
    row = ops.get(node.op)
    return (
        row is None
        or row.resource is not None
        or any(isinstance(value.type, ScalarType) for value in node.outputs)
    )


# ---- in one graph --------------------------------------------------------------------------------
def computed_again(
    nodes: Sequence[Node],
    start: int,
    outputs: Sequence[Arg],
    ops: Mapping[str, OpDef],
    fresh_name: Callable[[str], str],
) -> list[Node]:
    """The nodes, of which those from ``start`` on read copies of what checkpoints in front of them
    compute. Each copy stands where it is first read; its checkpoint has a negative number, so that
    it is not merged with what it copies. ``outputs``: what is read elsewhere."""
    forward, backward = nodes[:start], nodes[start:]
    again = Checkpoints.of(forward, outputs, ops).again
    if not again:
        return list(nodes)
    copier = Copier(again, forward, -start, fresh_name)
    made = list(forward)
    compared = in_front_of_decisions(backward)
    for node in backward:
        if node in compared:
            made.append(node)
            continue
        made += copier.missing(node.inputs())
        made.append(copier.reading_copies(_numbered(node, -start)))
    return made


class Copier:
    """Copies of the nodes that make the values ``again``, numbered as one checkpoint, below 0."""

    def __init__(
        self,
        again: frozenset[Value],
        nodes: Sequence[Node],
        number: int,
        fresh_name: Callable[[str], str],
    ) -> None:
        self.again, self.number, self.fresh_name = again, number, fresh_name
        self.positions = {v: position for position, node in enumerate(nodes) for v in node.outputs}
        self.nodes = nodes
        self.copies: dict[Value, Value] = {}

    def missing(self, wanted: Iterable[Value]) -> list[Node]:
        """Copies of what these are made by, in order, where there are none yet."""
        positions: set[int] = set()
        waiting = [value for value in wanted if value in self.again]
        while waiting:
            value = waiting.pop()
            position = self.positions[value]
            if value in self.copies or position in positions:
                continue
            positions.add(position)
            waiting.extend(v for v in self.nodes[position].inputs() if v in self.again)
        return [self._copy(self.nodes[position]) for position in sorted(positions)]

    def _copy(self, node: Node) -> Node:
        read = self.reading_copies(node)
        made = tuple(Value(self.fresh_name(v.name), v.type) for v in node.outputs)
        self.copies.update(zip(node.outputs, made))
        modes = replace(node.modes or Modes(), checkpoint=self.number)
        return replace(read, outputs=made, modes=modes)

    def reading_copies(self, node: Node) -> Node:
        """The node, on copies where there are some."""

        def copy(value: Value) -> Value:
            return self.copies.get(value, value)

        return replace(
            node,
            args=tuple(map_values(arg, copy) for arg in node.args),
            kwargs={name: map_values(arg, copy) for name, arg in node.kwargs.items()},
        )


def _numbered(node: Node, number: int) -> Node:
    if not is_checkpointed(node) or node.modes is None:
        return node
    return replace(node, modes=replace(node.modes, checkpoint=number))
