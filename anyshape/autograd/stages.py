"""Outputs that lie in front of others: gradients of the others end at these, and go on from there.

    %h = tanh(x @ %w); %y = sin(%h @ %v); return %h, %y
    ->
    stage 0: from the gradient of %h to that of %w; stage 1: from that of %y to those of %h and %v

Whoever is handed %h may hook it, retain its gradient, ask for it or let gradients end there: all of
its gradient goes through it, as in eager torch. In: the functional graph, and outputs in groups
that no operator lies in front of two of. Out: the stages of each group, each after those that its
gradients go on to. What else an earlier stage makes and a later one reads (``hidden``) becomes an
output that nobody is handed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field

from anyshape.autograd.memory import roots
from anyshape.autograd.outline import Group, NotDifferentiable
from anyshape.ir.graph import Arg, Graph, Input, Node, TensorType, Value, map_values, values_in
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops.table import OpDef

BESIDE_WRITES = "an output lies in front of another one, beside what is written"


@frozen(eq=False)
class Stage:
    """Outputs whose gradients are computed at once: those of the graph's inputs ``wanted`` and of
    the outputs ``before``, which belong to earlier stages. ``nodes`` are those in between."""

    outputs: tuple[int, ...]
    wanted: tuple[int, ...]
    before: tuple[int, ...]
    nodes: tuple[Node, ...]


@frozen(eq=False)
class Staged:
    """``graph`` has what is hidden as its last outputs."""

    graph: Graph
    stages: tuple[Stage, ...]


def staged(
    graph: Graph,
    ops: Mapping[str, OpDef],
    active: Set[Value],
    nodes: Sequence[Node],
    groups: Sequence[Group],
) -> Staged | None:
    """None where no output lies in front of another one. ``nodes``: those that gradients go
    through, in order, and ``active`` the values. Raises ``NotDifferentiable``."""
    leading = _leading_to_each(graph, nodes, groups)
    found = [_Stages.of(graph, ops, active, *pair) for pair in zip(leading, groups)]
    if not any(each.is_chain for each in found):
        return None
    if _is_twice(graph, groups) or any(each.has_inputs() for each in found):
        raise NotDifferentiable("outputs that require gradients are one value, or an input")
    outputs = list(graph.outputs)
    stages = tuple(stage for each in found for stage in each.stages(outputs))
    return Staged(replace(graph, outputs=tuple(outputs)), stages)


def _leading_to_each(
    graph: Graph, nodes: Sequence[Node], groups: Sequence[Group]
) -> list[list[Node]]:
    """The nodes in front of the outputs of each group, in order: of two groups, views of inputs."""
    behind: dict[Value, set[int]] = {}
    for number, group in enumerate(groups):
        for value in values_in(tuple(graph.outputs[position] for position in group.outputs)):
            behind.setdefault(value, set()).add(number)
    found: list[list[Node]] = [[] for _ in groups]
    for node in reversed(nodes):
        met = {number for value in node.outputs for number in behind.get(value, ())}
        for number in met:
            found[number].append(node)
        for value in node.inputs() if met else ():
            behind.setdefault(value, set()).update(met)
    return [each[::-1] for each in found]


def _is_twice(graph: Graph, groups: Sequence[Group]) -> bool:
    outputs = [graph.outputs[position] for group in groups for position in group.outputs]
    return len({*outputs}) < len(outputs)


@mutable(eq=False)
class _Stages:
    """The stages of one group, by their numbers: ``level`` is that of a node, the least of those
    outputs that it leads to; an output's is that of its node."""

    graph: Graph
    ops: Mapping[str, OpDef]
    active: Set[Value]
    outputs: dict[Value, int]
    nodes: Sequence[Node]
    is_chain: bool = False
    free: dict[Value, Node] = field(default_factory=dict)
    """Views of inputs: each stage that reads one goes through it, as it keeps nothing."""
    level: dict[Node, int] = field(default_factory=dict)
    makers: dict[Value, Node] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: Graph,
        ops: Mapping[str, OpDef],
        active: Set[Value],
        nodes: Sequence[Node],
        group: Group,
    ) -> _Stages:
        outputs: dict[Value, int] = {}
        for position in group.outputs:
            output = graph.outputs[position]
            assert isinstance(output, Value)
            outputs[output] = position
        made = cls(graph, ops, active, outputs, nodes)
        made._count(made._depths())
        return made

    def has_inputs(self) -> bool:
        """Whether one of the outputs is no node's."""
        return not self.outputs.keys() <= self.makers.keys()

    def _read(self, node: Node) -> list[Value]:
        return [value for value in node.inputs() if value in self.active]

    def _depths(self) -> dict[Value, int]:
        """How many outputs lie, one in front of the other, in front of each output."""
        given = {entry.value for entry in self.graph.inputs}
        depths: dict[Value, int] = {}
        behind: dict[Value, int] = {}
        for node in self.nodes:
            self.makers.update(dict.fromkeys(node.outputs, node))
            read = self._read(node)
            depth = max([behind.get(value, 0) for value in read], default=0)
            for value in node.outputs:
                behind[value] = depth
                if value in self.outputs:
                    depths[value] = depth
                    behind[value] = depth + 1
            is_view = self.ops[node.op].alias == "view" and len(read) == 1
            if is_view and (read[0] in given or read[0] in self.free):
                if self.outputs.keys().isdisjoint(node.outputs):
                    self.free.update(dict.fromkeys(node.outputs, node))
        self.is_chain = any(depths.values())
        return depths

    def _count(self, depths: Mapping[Value, int]) -> None:
        needed: dict[Value, int] = {}
        for node in reversed(self.nodes):
            if not self.free.keys().isdisjoint(node.outputs):
                continue
            of_outputs = [depths[value] for value in node.outputs if value in depths]
            others = [value for value in node.outputs if value not in depths]
            met = [*of_outputs, *(needed[value] for value in others if value in needed)]
            if met:
                self.level[node] = min(met)
                for value in self._read(node):
                    needed[value] = min(needed.get(value, min(met)), min(met))

    def stages(self, outputs: list[Arg]) -> list[Stage]:
        """Adds what is hidden to the graph's ``outputs``."""
        known = dict(self.outputs)
        given = {entry.value: i for i, entry in enumerate(self.graph.inputs)}
        parts = {level: _Part() for level in sorted({*self.level.values()})}
        for value in self.outputs:
            parts[self.level[self.makers[value]]].outputs[value] = None
        for node in filter(self.level.__contains__, self.nodes):
            level = self.level[node]
            part = parts[level]
            links = part.nodes[node] = _Links()
            for value in self._read(node):
                while value in self.free:
                    links.free[self.free[value]] = None
                    (value,) = self._read(self.free[value])
                if value in given:
                    links.wanted.add(given[value])
                elif self.level[maker := self.makers[value]] == level:
                    links.makers.append(maker)
                else:
                    if value not in known:
                        known[value] = len(outputs)
                        outputs.append(value)
                        parts[self.level[maker]].outputs[value] = None
                    links.before.add(known[value])
        order = {node: number for number, node in enumerate(self.nodes)}
        return [
            stage for part in parts.values() for stage in part.finished(known, self.makers, order)
        ]


@mutable(eq=False)
class _Links:
    """What a node reads: made in its part by these nodes, inputs, and results of earlier parts;
    ``free`` are views of inputs on the way."""

    makers: list[Node] = field(default_factory=list)
    wanted: set[int] = field(default_factory=set)
    before: set[int] = field(default_factory=set)
    free: dict[Node, None] = field(default_factory=dict)


@mutable(eq=False)
class _Part:
    outputs: dict[Value, None] = field(default_factory=dict)
    nodes: dict[Node, _Links] = field(default_factory=dict)

    def finished(
        self, known: Mapping[Value, int], makers: Mapping[Value, Node], order: Mapping[Node, int]
    ) -> list[Stage]:
        """A stage for the outputs that share a node: each can be gone through once. The one whose
        operators come last is last."""
        joined = {node: node for node in self.nodes}

        def first(node: Node) -> Node:
            while joined[node] is not node:
                joined[node] = node = joined[joined[node]]
            return node

        for node, links in self.nodes.items():
            joined.update((first(maker), first(node)) for maker in links.makers)
        outputs: dict[Node, list[Value]] = {}
        for value in self.outputs:
            outputs.setdefault(first(makers[value]), []).append(value)
        nodes: dict[Node, list[Node]] = {start: [] for start in outputs}
        for node in self.nodes:
            nodes[first(node)].append(node)
        stages = [self._stage(outputs[n], nodes[n], known, order) for n in outputs]
        return sorted(stages, key=lambda stage: max(map(order.__getitem__, stage.nodes)))

    def _stage(
        self,
        values: Sequence[Value],
        nodes: Sequence[Node],
        known: Mapping[Value, int],
        order: Mapping[Node, int],
    ) -> Stage:
        links = [self.nodes[node] for node in nodes]
        free = (view for link in links for view in link.free)
        return Stage(
            tuple(sorted(known[value] for value in values)),
            tuple(sorted({i for link in links for i in link.wanted})),
            tuple(sorted({i for link in links for i in link.before})),
            tuple(sorted({*nodes, *free}, key=order.__getitem__)),
        )


def cut_in(captured: Graph, pure: Graph, stage: Stage, ops: Mapping[str, OpDef]) -> Graph | None:
    """The captured graph, where this stage reads views of what earlier ones hand it, which are the
    outputs in the places of that; None where none of it lies in front of the rest, so that one's
    gradient is no part of another's. Raises ``NotDifferentiable``."""
    before = {*values_in(tuple(pure.outputs[position] for position in stage.before))}
    if not _is_any_behind(before, pure.nodes):
        return None
    outputs = list(captured.outputs)
    made: dict[Value, Value] = {}
    for position in stage.before:
        (value,) = values_in(outputs[position])
        outputs[position] = made[value] = Value(f"{value.name}_here", value.type)
    here = _leading_to(captured, [captured.outputs[i] for i in stage.outputs], made.keys(), ops)
    nodes: list[Node] = []

    for node in captured.nodes:
        nodes.append(reading(node, made) if node in here else node)
        for value in filter(made.__contains__, node.outputs):
            view = Node("expand", (value, value.shape), {}, (made[value],))
            nodes.append(replace(view, location=node.location, modes=node.modes))
    return replace(captured, nodes=tuple(nodes), outputs=tuple(outputs))


def cut_at(graph: Graph, values: Sequence[Value], ops: Mapping[str, OpDef]) -> Graph:
    """The graph, where what is made of these values is made of arguments in their places, which
    come last: what is done behind the last write to one. Raises ``NotDifferentiable``."""
    owner, written = roots(graph, ops), _last_writes(graph, ops)
    given = {value: Value(f"{value.name}_given", value.type) for value in values}
    begins = {value: written.get(owner.get(value, value), -1) for value in given}
    behind: dict[Value, int] = {owner.get(v, v): n for v, n in begins.items() if n >= 0}
    views: set[Value] = set()  # of a result, from before it was written
    nodes: list[Node] = []
    for number, node in enumerate(graph.nodes):
        read = {value: given[value] for value in given if begins[value] < number}
        for value in node.inputs():
            if value in views and number > behind[owner.get(value, value)]:
                raise NotDifferentiable(BESIDE_WRITES, node)
        views.update(
            v for v in node.outputs if v not in given and number <= behind.get(owner.get(v, v), -1)
        )
        nodes.append(reading(node, read))
    inputs = (*graph.inputs, *(Input(value, "argument", "") for value in given.values()))
    return replace(graph, inputs=inputs, nodes=tuple(nodes))


def _last_writes(graph: Graph, ops: Mapping[str, OpDef]) -> dict[Value, int]:
    """Of what owns memory: the number of the last node that writes it."""
    owner = roots(graph, ops)
    found: dict[Value, int] = {}
    for number, node in enumerate(graph.nodes):
        row = ops.get(node.op)
        if row is not None and row.mutates:
            found.update((owner.get(v, v), number) for v in node.read[:1])
    return found


def reading(node: Node, instead: Mapping[Value, Value]) -> Node:
    """The node, which reads other values in the places of some."""

    def read(value: Value) -> Arg:
        return instead.get(value, value)

    args = tuple(map_values(arg, read) for arg in node.args)
    return replace(
        node, args=args, kwargs={name: map_values(arg, read) for name, arg in node.kwargs.items()}
    )


def _leading_to(
    graph: Graph, outputs: Sequence[Arg], ends: Set[Value], ops: Mapping[str, OpDef]
) -> set[Node]:
    """The nodes that these are made by, up to the values where it ``ends``. What is written and has
    no gradients (a draw) is the same for all who read it."""
    wanted = set(values_in(tuple(outputs)))
    found = set()
    owner = roots(graph, ops)
    for node in reversed(graph.nodes):
        row = ops.get(node.op)
        if row is not None and row.mutates and node.modes is not None and node.modes.grad:
            written = (*node.outputs, *(owner.get(v, v) for v in node.read[:1]))
            if any(isinstance(v.type, TensorType) and v.type.requires_grad for v in written):
                raise NotDifferentiable(BESIDE_WRITES, node)
        if not wanted.isdisjoint(node.outputs):
            found.add(node)
            wanted.update(value for value in node.inputs() if value not in ends)
    return found


def _is_any_behind(values: Set[Value], nodes: Iterable[Node]) -> bool:
    """Whether one of these is made of another."""
    behind: set[Value] = set()
    for node in nodes if len(values) > 1 else ():
        if any(value in values or value in behind for value in node.inputs()):
            behind.update(node.outputs)
    return not behind.isdisjoint(values)


def named_in(graph: Graph, hidden: Iterable[Value], ops: Mapping[str, OpDef]) -> tuple[Value, ...]:
    """The values of the captured graph that these are in the functional one: not those that are
    written. Raises ``NotDifferentiable``."""
    owner = roots(graph, ops)
    writers = (node for node in graph.nodes if node.op in ops and ops[node.op].mutates)
    written = {owner.get(value, value) for node in writers for value in node.read[:1]}
    made = {value.name: value for node in graph.nodes for value in node.outputs}
    found = []
    for value in hidden:
        captured = made.get(value.name)
        if captured is None or owner.get(captured, captured) in written:
            raise NotDifferentiable(BESIDE_WRITES)
        found.append(captured)
    return tuple(found)
