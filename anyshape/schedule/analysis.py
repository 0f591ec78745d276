"""What the fuser asks of a graph: kinds of nodes, who reads what, weights, and the order in the
program.

In: a graph of core rows. Out: an ``Analysis``, whose order and readers the fuser changes as groups
form. Views are looked through: the readers of a value are the nodes that compute with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from fractions import Fraction
from typing import Literal, TypeAlias

from anyshape.ir.dtypes import float64
from anyshape.ir.established import Established, Last, binders_of, established, shown
from anyshape.ir.graph import CHECK, Graph, Node, ScalarType, TensorType, Value, values_in
from anyshape.ir.scalars import ScalarInput
from anyshape.nouns import mutable
from anyshape.ops.context import TypeContext
from anyshape.ops.table import Asserts, OpDef, Pointwise, Reduce, Structural, View
from anyshape.schedule.draft import Symbols
from anyshape.schedule.indices import Sizes
from anyshape.schedule.lower import is_supported, rule_of
from anyshape.schedule.scatter import write_mode
from anyshape.symbolic import Facts, Symbol

Kind = Literal["kernel", "view", "step", "scatter"]
Order: TypeAlias = int | Fraction
"""Where in the program: a position of the graph, or between two of them."""


@mutable(eq=False)
class Analysis:
    """What the fuser asks of a graph: kinds of nodes, who reads what, and their order."""

    graph: Graph
    ops: Mapping[str, OpDef]
    established: Established
    sizes: Sizes
    symbols: Symbols
    cx: TypeContext
    kinds: list[Kind] = field(default_factory=list)
    producer: dict[Value, int] = field(default_factory=dict)
    readers: dict[Value, set[int]] = field(default_factory=dict)
    sources: list[set[int]] = field(default_factory=list)
    order: list[Order] = field(default_factory=list)
    scheduled: list[bool] = field(default_factory=list)
    copies: set[int] = field(default_factory=set)
    weights: list[int] = field(default_factory=list)
    binders: Mapping[Symbol | ScalarInput, int] = field(default_factory=dict)
    bound: list[int] = field(default_factory=list)  # see `tested_at`
    over_reductions: list[bool] = field(default_factory=list)
    slow_numbers: list[bool] = field(default_factory=list)
    barriers: list[Order] = field(default_factory=list)
    checked: dict[int, int] = field(default_factory=dict)  # see `tested_at`
    looked: dict[Facts, tuple[Sizes, TypeContext]] = field(default_factory=dict)
    homes: Mapping[Value, Value] = field(default_factory=dict)
    backward: int = 0  # the position of the first node of gradients: the end where there is none

    def stand_at(self, position: int) -> None:
        """From here on sizes are what is known at this node: no later check has been made yet."""
        facts = self.established.at(position)
        if facts is not self.sizes.facts:
            if facts not in self.looked:
                cx = TypeContext(self.graph.space, facts, self.graph.hints)
                self.looked[facts] = Sizes(facts), cx
            self.sizes, self.cx = self.looked[facts]

    @property
    def nodes(self) -> Sequence[Node]:
        return self.graph.nodes

    @property
    def end(self) -> int:
        """The order of the caller, who reads the outputs."""
        return len(self.nodes)

    def order_of(self, reader: int) -> Order:
        """``~n`` stands for the second part of the scatter at ``n``, the end for the caller."""
        position = max(reader, ~reader)
        return self.order[position] if position < self.end else self.end

    def low_of(self, position: int) -> Order:
        """The order after which the node can run: its sources, the check of its own indices, what
        gives its sizes and numbers, and the checks of the facts that it was made under."""
        sources = (self.order[source] for source in self.sources[position])
        return max(self.barriers[position], self.tested_at(position), max(sources, default=-1))

    def tested_at(self, position: int) -> int:
        """The order from which on all the sizes and numbers of a node, and of the views that it
        looks through, have values that have been tested: of the last of the checks that stand
        behind what gives the last of them its value."""
        return self.checked[self.bound[position]]

    def is_view(self, value: Value) -> bool:
        """A view that has no memory of its own."""
        return self.kind_of(value) == "view" and self.producer[value] not in self.copies

    def views_below(self, value: Value) -> Iterator[Value]:
        """The view, the view that it is of, and so on down to its base."""
        while self.is_view(value):
            yield value
            value = next(self.nodes[self.producer[value]].inputs())

    def with_viewed_by_steps(self, outputs: Iterable[Value]) -> Iterator[Value]:
        """The results, and what they are views of by a step (``view_dtype``)."""
        waiting = list(outputs)
        for value in waiting:  # grows while it is read
            yield value
            base = value
            while self.is_view(base):
                base = next(self.nodes[self.producer[base]].inputs())
            node = self.nodes[self.producer[base]] if self.kind_of(base) == "step" else None
            if node is not None and node.op in self.ops and self.ops[node.op].alias == "view":
                waiting += node.read[:1]

    def sources_of(self, node: Node) -> set[int]:
        """The nodes whose results the node reads, views looked through."""
        sources: set[int] = set()
        for value in node.inputs():
            above = self.producer.get(value)
            if above is not None:
                sources |= self.sources[above] if self.kinds[above] == "view" else {above}
        return sources

    def link_sources(self) -> None:
        """Once it is known which views are steps of their own."""
        last = Last(self.binders)
        for position, node in enumerate(self.nodes):
            self.sources[position] = self.sources_of(node)
            if not self.binders:
                self.bound.append(-1)
                continue
            numbers = (v for v in node.inputs() if isinstance(v.type, ScalarType))
            named = tuple(map(shown, (*node.outputs, *numbers)))
            own = last.of((named, node.args, *node.kwargs.values()))
            views = (n for n in map(self.producer.get, node.inputs()) if n is not None)
            below = (self.bound[view] for view in views if self.kinds[view] == "view")
            self.bound.append(max((own, *below)))

    def memory_of(self, value: Value) -> Value:
        """Whose memory holds the value: its own, or an input's that it is written into."""
        return self.homes.get(value, value)

    def kind_of(self, value: Value) -> Kind | None:
        position = self.producer.get(value)
        return None if position is None else self.kinds[position]


def kind_of(node: Node, ops: Mapping[str, OpDef]) -> Kind:
    """Is the node a kernel's work, a view, a scatter, or a step of its own?"""
    row = ops.get(node.op)
    if len(node.outputs) != 1 or not isinstance(node.output.type, TensorType):
        return "step"
    if row is not None and write_mode(row, node) is not None and is_supported(node):
        return "scatter"
    if row is not None and isinstance(row.lower, View):
        return "view" if row.alias != "none" or is_supported(node) else "step"
    if rule_of(row) is None or not is_supported(node) or row is None or row.random:
        return "step"
    return "kernel"


def analyse(graph: Graph, ops: Mapping[str, OpDef], around: Set[Symbol] = frozenset()) -> Analysis:
    """Kinds, producers, sources, weights; readers are filled in by ``link_readers``."""
    known = established(graph, around)
    facts = known.at(0)
    cx = TypeContext(graph.space, facts, graph.hints)
    found = Analysis(graph, ops, known, Sizes(facts), Symbols(graph.space), cx)
    found.looked[facts] = found.sizes, cx
    found.checked = _last_checks(graph)
    found.binders = binders_of(graph, around)
    asserted = -1
    late = (n for n, node in enumerate(graph.nodes) if node.modes and node.modes.backward)
    found.backward = next(late, len(graph.nodes))
    for position, node in enumerate(graph.nodes):
        row = ops.get(node.op)
        if row is not None and isinstance(row.lower, Asserts) and not row.lower.deferred:
            asserted = position  # a deferred one is told later: what is read is there anyway
        at_data = row is not None and row.data_indices is not None  # that may be what was asserted
        tested = found.checked[known.tested_by(position)]
        found.barriers.append(max(tested, asserted) if at_data else tested)
        kind = kind_of(node, ops)
        found.kinds.append(kind)
        for output in node.outputs:
            found.producer[output] = position
        sources = found.sources_of(node)
        found.sources.append(sources)
        found.order.append(position)
        found.scheduled.append(False)
        found.weights.append(_weight(found, node, sources))
        found.over_reductions.append(kind == "kernel" and _over_reductions(found, node, sources))
        found.slow_numbers.append(kind == "kernel" and _is_slow_number(found, node, sources))
    return found


def _last_checks(graph: Graph) -> dict[int, int]:
    """By position, the position of the last check in a row behind it; -1 is before all nodes."""
    found = {}
    last = end = len(graph.nodes) - 1
    for position in range(end, -2, -1):
        if position < end and graph.nodes[position + 1].op != CHECK:
            last = position
        found[position] = last
    return found


def _over_reductions(found: Analysis, node: Node, sources: set[int]) -> bool:
    """Does a reduction lie below the node, reached through elementwise work only?"""
    lowering = found.ops[node.op].lower
    if isinstance(lowering, Reduce):
        return True
    return isinstance(lowering, Pointwise) and any(found.over_reductions[s] for s in sources)


def _is_slow_number(found: Analysis, node: Node, sources: set[int]) -> bool:
    """Is it one number that needs costly work in float64? Where each thread of a device would do it
    again, it is better read from memory."""
    row, made = found.ops[node.op], node.output
    if made.shape or not isinstance(row.lower, Pointwise):
        return False
    return (row.costly and made.dtype is float64) or any(found.slow_numbers[s] for s in sources)


def _weight(found: Analysis, node: Node, sources: set[int]) -> int:
    """How much it costs to compute the node again instead of keeping it; 100 and more is too
    much.
    """
    if found.kinds[len(found.kinds) - 1] != "kernel":
        return 0 if found.kinds[-1] == "view" else 100
    row = found.ops[node.op]
    if not isinstance(row.lower, Pointwise):
        made_of_numbers = isinstance(row.lower, Structural) and not row.lower.reads_memory
        return 0 if made_of_numbers else 100
    tensors = sum(found.producer.get(v) is None for v in set(node.inputs()))
    expensive = tensors + sum(found.weights[s] >= 100 for s in sources)
    if expensive > 1 or row.costly:
        return 100
    return 1 + sum(found.weights[s] for s in sources if found.weights[s] < 100)


def link_readers(found: Analysis) -> None:
    """Who reads each value, views looked through; the graph's outputs read at the end."""
    end = len(found.nodes)
    for value in found.producer:
        found.readers[value] = set()
    for output in _values(found.graph.outputs):
        if output in found.readers:
            found.readers[output].add(end)
    looks = {n for n in range(end) if found.kinds[n] in ("kernel", "scatter")}
    for position in range(end - 1, -1, -1):
        node = found.nodes[position]
        through: set[int] = set()
        for output in node.outputs:
            if found.kinds[position] == "view":
                through |= found.readers[output]
        if position in found.copies:  # libraries read the copy, kernels look through
            through = {r for r in through if max(r, ~r) in looks}
        if found.kinds[position] != "view" or position in found.copies:
            through.add(position)
        first = node.read
        if found.kinds[position] == "scatter":
            first = tuple(values_in(node.args[0]))
            for value in node.read[len(first) :]:
                if value in found.readers:
                    found.readers[value].add(~position)
        for value in first:
            if value in found.readers:
                found.readers[value] |= through


def _values(outputs: object) -> list[Value]:
    if isinstance(outputs, Value):
        return [outputs]
    if isinstance(outputs, tuple):
        return [value for item in outputs for value in _values(item)]
    return []
