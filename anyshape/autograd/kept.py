"""What eager would keep for its own gradient formulas, of what the program can see.

In: the captured graph, whose types say what requires gradients, and a function that says whether
eager's formula of a node refuses what was written since. Out: positions of inputs and outputs. They
are saved though nothing here reads them: a later write to one is the error that it is in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field

from anyshape.autograd.memory import roots
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value, map_values, values_in
from anyshape.nouns import frozen
from anyshape.ops.gradients.kept import KEPT, STATISTICS, UNCHECKED, Given, Kept
from anyshape.ops.table import OpDef

Refuses = Callable[[Graph, Node, frozenset[Value]], bool]
NOTHING: frozenset[Value] = frozenset()


def kept_by_eager(
    graph: Graph, ops: Mapping[str, OpDef], refuses: Refuses, recorded: Set[str] = frozenset()
) -> tuple[frozenset[int], frozenset[int]]:
    """(inputs, outputs) in whose memory it lies. ``recorded``: names of results that autograd
    records the operator of, though its row has a rule."""
    owner = roots(graph, ops)
    nodes = _leading_to_gradients(graph, owner)
    kept = {owner.get(v, v) for node in nodes for v in values_in(kept_by_row(node, ops))}
    inputs = {entry.value for entry in graph.inputs}
    handed_out = {owner.get(v, v) for v in values_in(graph.outputs)} - inputs
    for node in nodes:
        for value in _left_to_eager(node, ops, recorded):
            root = owner.get(value, value)
            if root in handed_out - kept and refuses(graph, node, frozenset({value})):
                kept.add(root)
    return _lying_in(graph, owner, kept)


def _written_in(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Value]:
    """What is written by an operator without gradients: the rules here read another value then."""
    for node in graph.nodes:
        if node.op in ops and ops[node.op].mutates and not _requires_gradients(node.outputs):
            yield from node.read[:1]


def _read_by_formula(node: Node, ops: Mapping[str, OpDef]) -> Iterator[Value]:
    row = ops.get(node.op)
    is_pure = row is None or not (row.mutates or row.alias != "none")
    if is_pure and _requires_gradients(node.outputs):
        yield from (v for v in dict.fromkeys(node.inputs()) if isinstance(v.type, TensorType))


def _left_to_eager(node: Node, ops: Mapping[str, OpDef], recorded: Set[str]) -> tuple[Value, ...]:
    """What a node reads and makes of whose formula no row tells: autograd records it or what it
    expands to, or it writes in place."""
    row = ops.get(node.op)
    if row is None or node.modes is None or not node.modes.grad:
        return ()
    has_rule = isinstance(row.vjp, Mapping) or row.vjp == "region" or row.alias != "none"
    if has_rule and not row.mutates and recorded.isdisjoint(v.name for v in node.outputs):
        return ()
    tensors = (*node.inputs(), *node.outputs) if _requires_gradients(node.outputs) else ()
    return tuple(v for v in tensors if isinstance(v.type, TensorType))


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


def kept_as_they_are(
    graph: Graph, ops: Mapping[str, OpDef], kept_themselves: Asked, values: Mapping[Value, int]
) -> frozenset[int]:
    """The positions of those values that one of eager's formulas keeps themselves, and not as a
    view alone: it reads what ``x.data = new`` has put there."""
    asked = _AsTheyAre(graph, ops, kept_themselves, values)
    return asked.kept_by(_leading_to_gradients(graph, roots(graph, ops)))


def kept_by_each(
    graph: Graph,
    ops: Mapping[str, OpDef],
    kept_themselves: Asked,
    values: Mapping[Value, int],
    stages: Iterable[tuple[Sequence[Value], Set[Value]]],
) -> list[frozenset[int]]:
    """The same of the formulas between what each stage makes and what stages before hand it."""
    asked, owner = _AsTheyAre(graph, ops, kept_themselves, values), roots(graph, ops)
    return [asked.kept_by(_leading_to(graph, owner, made, before)) for made, before in stages]


@frozen(eq=False)
class _AsTheyAre:
    """Which of some ``values`` formulas keep themselves; ``answers`` are those of nodes alike."""

    graph: Graph
    ops: Mapping[str, OpDef]
    asked: Asked
    values: Mapping[Value, int]
    answers: dict[str, frozenset[int]] = field(default_factory=dict)

    def kept_by(self, nodes: Iterable[Node]) -> frozenset[int]:
        return frozenset(position for node in nodes for position in self._kept(node))

    def _kept(self, node: Node) -> Iterator[int]:
        row, read = self.ops.get(node.op), list(dict.fromkeys(node.inputs()))
        if self.values.keys().isdisjoint(read):
            return
        if row is not None and row.alias != "none" and not row.mutates:
            return
        key = _signature(node, read)
        if key not in self.answers:
            kept = self.asked(self.graph, node)
            self.answers[key] = frozenset(i for i, value in enumerate(read) if value in kept)
        yield from (self.values[read[i]] for i in self.answers[key] if read[i] in self.values)


Asked = Callable[[Graph, Node], frozenset[Value]]


def _signature(node: Node, read: Sequence[Value]) -> str:
    """The operator, its arguments, and of tensors their ranks, dtypes and whether they require
    gradients."""

    def described(value: Value) -> str:
        kind = value.type
        if not isinstance(kind, TensorType):
            return "a number"
        return f"{kind.rank} {kind.dtype.name} {kind.requires_grad} {read.index(value)}"

    given = (*node.args, *node.kwargs.items())
    return f"{node.op} {[map_values(arg, described) for arg in given]} {node.modes}"


def kept_as_left(graph: Graph, ops: Mapping[str, OpDef], refuses: Refuses) -> frozenset[int]:
    """The inputs that eager's formulas keep as the graph has left them: statistics, and what it
    writes before it reads them."""
    owner = roots(graph, ops)
    nodes = _leading_to_gradients(graph, owner)
    statistics = {v for node in nodes for v in values_in(tuple(_kept(node, ops, STATISTICS)))}
    kept = {owner.get(v, v) for v in statistics}
    inputs = {entry.value for entry in graph.inputs}
    written = {owner.get(v, v) for v in _written_in(graph, ops)} & inputs
    for node in nodes if written else ():
        for value in _read_by_formula(node, ops):
            root = owner.get(value, value)
            if root in written - kept and refuses(graph, node, frozenset({value})):
                kept.add(root)
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


def kept_by_row(node: Node, ops: Mapping[str, OpDef]) -> tuple[Arg, ...]:
    """What eager's formula keeps of the node's arguments and results, and the rule here does not
    read."""
    return tuple(_kept(node, ops, KEPT))


def _kept(
    node: Node, ops: Mapping[str, OpDef], table: Mapping[str, Kept | Callable[[Given], Kept]]
) -> Iterator[Arg]:
    if node.op not in table or (node.modes is not None and not node.modes.grad):
        return
    given: dict[str, Arg] = dict(zip(ops[node.op].signature.names, node.args)) | dict(node.kwargs)
    given["result"] = node.outputs
    given |= {f"result {number}": value for number, value in enumerate(node.outputs)}
    kept = table[node.op]
    for name, readers in (kept(given) if callable(kept) else kept).items():
        if _requires_gradients(given.get(reader) for reader in readers or given):
            yield given.get(name)


def _requires_gradients(args: Iterable[Arg]) -> bool:
    tensors = (v.type for v in values_in(tuple(args)) if isinstance(v, Value))
    return any(isinstance(t, TensorType) and t.requires_grad for t in tensors)
