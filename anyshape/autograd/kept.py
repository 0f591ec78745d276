"""What eager would keep for its own gradient formulas, of what the program can see.

In: the captured graph, whose types say what requires gradients, and a function that says whether
eager's formula of a node refuses what was written since. Out: positions of inputs and outputs. They
are saved though nothing here reads them: a later write to one is the error that it is in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from typing import Protocol

from anyshape.autograd.memory import roots, roots_at_some_sizes
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value, map_values, row_major, values_in
from anyshape.nouns import frozen
from anyshape.ops.gradients.kept import STATISTICS, UNCHECKED
from anyshape.ops.gradients.kept import Kept as Named
from anyshape.ops.shared_memory import written_in
from anyshape.ops.table import OpDef

NOTHING: frozenset[Value] = frozenset()


class Kept(Protocol):
    """Of what a node reads and makes, what eager's formulas keep ``themselves``, whatever data it
    is given, and what is ``checked``: a later write to it is refused."""

    @property
    def themselves(self) -> frozenset[Value]: ...

    @property
    def checked(self) -> frozenset[Value]: ...


Asked = Callable[[Graph, Node], Kept]


@frozen(eq=False)
class Formulas:
    """What eager's formulas keep; ``answers`` are those of nodes alike: the numbers, among what a
    node reads and makes, of what is kept itself, and of what is checked."""

    graph: Graph
    ops: Mapping[str, OpDef]
    asked: Asked
    answers: dict[str, tuple[frozenset[int], frozenset[int]]] = field(default_factory=dict)

    def themselves(self, node: Node) -> frozenset[Value]:
        return self._of(node, 0)

    def checked(self, node: Node) -> frozenset[Value]:
        return self._of(node, 1)

    def _of(self, node: Node, which: int) -> frozenset[Value]:
        """Of a view there is nothing; and what a region's node keeps, its own backward reads."""
        row = self.ops.get(node.op)
        is_view = row is not None and row.alias != "none" and not row.mutates
        if is_view or node.regions or not _requires_gradients(node.outputs):
            return NOTHING
        values = list(dict.fromkeys((*node.inputs(), *node.outputs)))
        key = _signature(node, values)
        if key not in self.answers:
            kept = self.asked(self.graph, node)
            numbers = {value: i for i, value in enumerate(values)}
            several = (kept.themselves, kept.checked)
            themselves, checked = (frozenset(numbers[v] for v in found) for found in several)
            self.answers[key] = themselves, checked
        return frozenset(values[i] for i in self.answers[key][which])


Positions = tuple[frozenset[int], frozenset[int]]
"""Of inputs, and of outputs."""


def kept_by_eager(formulas: Formulas) -> tuple[Positions, Positions]:
    """In whose memory it lies, and in whose it lies where sizes say so; but for inputs that the
    graph writes: ``kept_as_left``."""
    graph, ops = formulas.graph, formulas.ops
    memories = roots(graph, ops), roots_at_some_sizes(graph, ops)
    inputs = {entry.value for entry in graph.inputs}
    seen = [inputs | {r.get(v, v) for v in values_in(graph.outputs)} for r in memories]
    kept: list[set[Value]] = [set(), set()]
    for node in _leading_to_gradients(graph, memories[1]):
        read = [v for v in (*node.read, *node.outputs) if isinstance(v.type, TensorType)]
        if any(not s.isdisjoint(r.get(v, v) for v in read) for s, r in zip(seen, memories)):
            for found, r in zip(kept, memories):
                found.update(r.get(v, v) for v in formulas.checked(node))
    own = written_in(graph.nodes, ops) & inputs
    surely, perhaps = (_lying_in(graph, r, found - own) for r, found in zip(memories, kept))
    return surely, perhaps


def _written_in(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Value]:
    """What is written by an operator without gradients: the rules here read another value then."""
    for node in graph.nodes:
        if node.op in ops and ops[node.op].mutates and not _requires_gradients(node.outputs):
            yield from node.read[:1]


def _leading_to_gradients(graph: Graph, owner: Mapping[Value, Value]) -> list[Node]:
    """The nodes behind the outputs that require gradients: eager lets go of what others keep."""
    outputs = (v for v in values_in(graph.outputs) if _requires_gradients([v]))
    return _leading_to(graph, owner, outputs)


def _leading_to(
    graph: Graph, owner: Mapping[Value, Value], values: Iterable[Value], ends: Set[Value] = NOTHING
) -> list[Node]:
    """The nodes behind these values, the last one first, and none behind what ``ends`` names."""
    wanted = {owner.get(v, v) for v in values}
    passed = {owner.get(v, v) for v in ends} - wanted
    found = []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(owner.get(v, v) for v in node.outputs):
            found.append(node)
            wanted.update({owner.get(v, v) for v in node.inputs()} - passed)
    return found


def _lying_in(
    graph: Graph, owner: Mapping[Value, Value], memory: Set[Value]
) -> tuple[frozenset[int], frozenset[int]]:
    """The positions of the inputs and of the outputs in it."""
    inputs = (i for i, entry in enumerate(graph.inputs) if entry.value in memory)
    outputs = (
        i
        for i, output in enumerate(graph.outputs)
        if any(owner.get(v, v) in memory for v in values_in(output))
    )
    return frozenset(inputs), frozenset(outputs)


def kept_as_they_are(formulas: Formulas, values: Mapping[Value, int]) -> frozenset[int]:
    """The positions of those values that one of eager's formulas keeps themselves, and not as a
    view alone: it reads what ``x.data = new`` has put there."""
    graph = formulas.graph
    nodes = _leading_to_gradients(graph, roots(graph, formulas.ops))
    return _themselves(formulas, values, nodes)


def kept_by_each(
    formulas: Formulas,
    values: Mapping[Value, int],
    stages: Iterable[tuple[Sequence[Value], Set[Value]]],
) -> list[frozenset[int]]:
    """The same of the formulas between what each stage makes and what stages before hand it."""
    graph, owner = formulas.graph, roots(formulas.graph, formulas.ops)
    return [
        _themselves(formulas, values, _leading_to(graph, owner, made, before))
        for made, before in stages
    ]


def _themselves(
    formulas: Formulas, values: Mapping[Value, int], nodes: Iterable[Node]
) -> frozenset[int]:
    asked = (node for node in nodes if not values.keys().isdisjoint(node.inputs()))
    kept = (value for node in asked for value in formulas.themselves(node))
    return frozenset(values[value] for value in kept if value in values)


def _signature(node: Node, values: Sequence[Value]) -> str:
    """The operator, its arguments and results, and of tensors their ranks, dtypes, whether they lie
    in rows and whether they require gradients."""

    def described(value: Value) -> str:
        kind = value.type
        if not isinstance(kind, TensorType):
            return "a number"
        in_rows = kind.strides == row_major(kind.shape)
        form = f"{kind.rank} {kind.dtype.name} {in_rows} {kind.requires_grad}"
        return f"{form} {values.index(value)}"

    given = (*node.args, *node.kwargs.items(), node.outputs)
    return f"{node.op} {[map_values(arg, described) for arg in given]} {node.modes}"


def kept_as_left(formulas: Formulas) -> frozenset[int]:
    """The inputs that eager's formulas keep as the graph has left them: statistics, and what it
    writes before it reads them."""
    graph, ops = formulas.graph, formulas.ops
    owner = roots(graph, ops)
    nodes = _leading_to_gradients(graph, owner)
    statistics = {v for node in nodes for v in values_in(tuple(_kept(node, ops, STATISTICS)))}
    kept = {owner.get(v, v) for v in statistics}
    inputs = {entry.value for entry in graph.inputs}
    written = {owner.get(v, v) for v in _written_in(graph, ops)} & inputs
    for node in nodes if written else ():
        row = ops.get(node.op)
        if row is None or not row.mutates:
            read = (owner.get(v, v) for v in formulas.checked(node).intersection(node.inputs()))
            kept.update(root for root in read if root in written)
    return _lying_in(graph, owner, kept)[0]


def unchecked_by_eager(
    graph: Graph, ops: Mapping[str, OpDef]
) -> tuple[frozenset[int], frozenset[int]]:
    """(inputs, outputs) whose memory eager reads in such formulas alone that do not know of writes
    to it."""
    owner = roots(graph, ops)
    read: tuple[set[Value], set[Value]] = set(), set()
    for node in _leading_to_gradients(graph, owner):
        row = ops.get(node.op)
        if row is not None and row.alias != "none" and not row.mutates:
            continue
        if _requires_gradients(node.outputs):
            read[node.op in UNCHECKED].update(owner.get(v, v) for v in node.inputs())
    checked, unchecked = read
    return _lying_in(graph, owner, unchecked - checked)


def reads_unchecked(node: Node, written: Set[Value], ops: Mapping[str, OpDef]) -> bool:
    """Does eager's formula read what has been put there since, without a word? The graph without
    writes that is differentiated here has the value of before."""
    return not written.isdisjoint(values_in(tuple(_kept(node, ops, UNCHECKED))))


def _kept(node: Node, ops: Mapping[str, OpDef], table: Mapping[str, Named]) -> Iterator[Arg]:
    if node.op not in table or (node.modes is not None and not node.modes.grad):
        return
    given: dict[str, Arg] = dict(zip(ops[node.op].signature.names, node.args)) | dict(node.kwargs)
    given["result"] = node.outputs
    given |= {f"result {number}": value for number, value in enumerate(node.outputs)}
    for name, readers in table[node.op].items():
        if _requires_gradients(given.get(reader) for reader in readers or given):
            yield given.get(name)


def _requires_gradients(args: Iterable[Arg]) -> bool:
    tensors = (v.type for v in values_in(tuple(args)) if isinstance(v, Value))
    return any(isinstance(t, TensorType) and t.requires_grad for t in tensors)
