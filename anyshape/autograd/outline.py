"""What of a captured graph requires gradients, and whether they can be compiled.

In: the graph of capture, whose types say what eager's would require. Out: ``Outline``: the same
graph without those marks, the inputs that gradients are wanted of, and the outputs that have some;
or ``NotDifferentiable`` with the reason, and then eager torch runs the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from anyshape.autograd.memory import roots
from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value, map_values, values_in
from anyshape.nouns import frozen, replace
from anyshape.ops.context import TypeContext
from anyshape.ops.gradients.backward import (
    GRADIENTS,
    RECORDED_IN_PLACE,
    is_recorded,
    requires,
)
from anyshape.ops.table import OpDef


class NotDifferentiable(Exception):
    """The gradients of a graph are not compiled; ``node`` is what it is about, if it is one."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


WRITES_UNKNOWN = "writes memory that autograd takes for new"


@frozen(eq=False)
class Outline:
    """``graph`` makes nothing that requires gradients, by its types; ``marked`` is the graph whose
    types say so. ``wanted`` are positions of inputs, and ``differentiable`` of outputs, that
    require gradients in the program."""

    graph: Graph
    marked: Graph
    wanted: tuple[int, ...]
    differentiable: tuple[int, ...]


def outline(graph: Graph, ops: Mapping[str, OpDef]) -> Outline:
    """Raises ``NotDifferentiable``."""
    _refuse_writes(graph, ops)
    for output in graph.outputs:
        if isinstance(output, tuple) and any(map(requires, values_in(output))):
            raise NotDifferentiable("outputs that require gradients lie in containers")
    return Outline(
        without_marks(graph),
        graph,
        tuple(i for i, entry in enumerate(graph.inputs) if requires(entry.value)),
        tuple(i for i, out in enumerate(graph.outputs) if isinstance(out, Value) and requires(out)),
    )


def records_gradients(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    """Whether eager would record what somebody can see: for an output, or by writing; or would
    refuse views of what was written behind autograd."""
    if any(_records_whole_numbers(node) for node in graph.nodes):
        return True
    recorded = [
        node
        for node in graph.nodes
        if node.modes
        and node.modes.grad
        and any(map(requires, node.read))
        and (node.op not in ops or ops[node.op].differentiable)
    ]
    if not recorded:
        return False
    if any(map(requires, values_in(graph.outputs))):
        return True
    if any(node.op in ops and ops[node.op].mutates for node in recorded):
        return True
    return any(True for _ in written_behind_parts(graph, ops))


def _records_whole_numbers(node: Node) -> bool:
    """Does eager record a write to integers or truths, so that they require gradients?"""
    if node.op not in RECORDED_IN_PLACE or not is_recorded(node):
        return False
    written = next(node.inputs()).type
    if not isinstance(written, TensorType) or written.dtype.is_floating or written.dtype.is_complex:
        return False
    return any(map(requires, node.read[1:]))


def calls_backward(graph: Graph) -> bool:
    """Whether the program calls ``backward()`` itself."""
    return any(node.op == GRADIENTS for node in graph.nodes)


def _refuse_writes(graph: Graph, ops: Mapping[str, OpDef]) -> None:
    """Where gradients take part, a write is a pure operator only in memory that the graph makes,
    and where the program records it."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    owner = roots(graph, ops)
    differentiated = {owner.get(v, v) for v in _values(graph) if requires(v)}
    for node, what in written_otherwise(graph, ops):
        raise NotDifferentiable(f"{node.op} {what}", node)
    for node in graph.nodes:
        row = ops.get(node.op)
        if row is None or not row.mutates:
            continue
        if _records_whole_numbers(node):
            raise NotDifferentiable(f"{node.op} of whole numbers requires gradients", node)
        target = next(node.inputs())
        recorded = is_recorded(node) and any(map(requires, node.read))
        if owner.get(target, target) not in differentiated and not recorded:
            continue
        if not is_recorded(node) or not owns(node.args[0], makers, ops):
            raise NotDifferentiable(f"{node.op} writes in place what requires gradients", node)


def written_otherwise(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[tuple[Node, str]]:
    """Writes whose gradients, or refusals, are not those of pure operators, and what they do."""
    yield from ((node, "writes what was taken apart") for node in written_behind_parts(graph, ops))
    yield from ((node, WRITES_UNKNOWN) for node in written_unknown(graph, ops))
    yield from ((node, "writes truths") for node in written_with_truths(graph, ops))


def written_with_truths(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Node]:
    """Comparisons and logical operators that write what has gradients (``m.eq_(1)``): their pure
    operators make truths, which have none, and eager's gradients go on, as zeros or unchanged."""
    cx = TypeContext(graph.space, graph.facts.fork(), graph.hints)
    for node in graph.nodes:
        row = ops.get(node.op)
        pure = None if row is None or row.functional is None else ops.get(row.functional)
        if pure is None or pure.type is None or not is_recorded(node) or not requires(node.read[0]):
            continue
        made = pure.type(cx, *node.args, **node.kwargs)
        if isinstance(made, TensorType) and made.dtype is bool_:
            yield node


def written_unknown(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Node]:
    """Writes to memory that ``unsafe_split`` has divided and autograd knows, by any name: the
    pieces and what was split require gradients as if nothing had been written by another name, and
    formulas that keep one read what was written by another."""
    owner = roots(graph, ops)
    recorded = (node for node in graph.nodes if is_recorded(node) and any(map(requires, node.read)))
    known = {owner.get(value, value) for node in recorded for value in node.inputs()}
    divided: set[Value] = set()
    for node in graph.nodes:
        row = ops.get(node.op)
        if row is None or not node.read:
            continue
        root = owner.get(node.read[0], node.read[0])
        if node.op == "unsafe_alias":
            divided.add(root)
        if row.mutates and root in divided and root in known:
            yield node


def written_behind_parts(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Node]:
    """Writes to what an operator that makes several views (``split``, ``unbind``) has divided,
    with the gradients recorded, where one of these views is used after that, or is itself written:
    eager refuses to."""
    owner = roots(graph, ops)
    parts: dict[Value, set[Value]] = {}  # of each memory
    unwritable: set[Value] = set()  # these, and those of what requires no gradients yet
    stale: dict[Value, Node] = {}
    for node in graph.nodes:
        row = ops.get(node.op)
        yield from {stale[value]: None for value in node.inputs() if value in stale}
        if row is None or not node.read:
            continue
        source = node.read[0]
        root = owner.get(source, source)
        divided = parts.get(root, set())
        makes_parts = row.alias == "view" and row.counted and is_recorded(node)
        if makes_parts or (row.alias != "none" and source in unwritable):
            unwritable.update(node.outputs)
        if row.mutates and source in unwritable and any(map(requires, node.read)):
            yield node
        if (makes_parts and requires(source)) or source in divided:
            lying = [value for value in node.outputs if owner.get(value, value) is root]
            parts.setdefault(root, divided).update(lying)
        if row.mutates and root in parts:
            stale.update(dict.fromkeys(parts[root], node))
    yield from {stale[value]: None for value in values_in(graph.outputs) if value in stale}


def _values(graph: Graph) -> Iterator[Value]:
    yield from (entry.value for entry in graph.inputs)
    yield from (value for node in graph.nodes for value in node.outputs)


def owns(target: Arg, makers: Mapping[Value, Node], ops: Mapping[str, OpDef]) -> bool:
    """Whether the graph makes the memory of the target, and each view on the way is recorded."""
    while isinstance(target, Value):
        maker = makers.get(target)
        row = None if maker is None else ops.get(maker.op)
        if maker is None or row is None:
            return False
        if row.alias == "none" and not row.mutates:
            return True
        if not is_recorded(maker) or not row.differentiable:
            return False
        target = maker.args[0]
    return False


@frozen
class Group:
    """Positions of ``outputs``, and of the inputs ``wanted`` that autograd goes from them to."""

    outputs: tuple[int, ...]
    wanted: tuple[int, ...]


def independent(
    graph: Graph, ops: Mapping[str, OpDef], differentiable: Sequence[int]
) -> tuple[Group, ...]:
    """Those outputs in groups: autograd sees no node that lies in front of outputs of two. The
    group whose operators read last what others go to as well comes last: autograd has its gradients
    first."""
    owner = roots(graph, ops)
    given = {entry.value: position for position, entry in enumerate(graph.inputs)}
    behind: dict[Value, set[int]] = {}  # of what owns memory: the outputs that it lies in front of
    joined = {position: position for position in differentiable}

    def first(position: int) -> int:
        while joined[position] != position:
            position = joined[position]
        return position

    def owners(values: Iterable[Arg]) -> list[Value]:
        return [owner.get(v, v) for v in values if isinstance(v, Value) and requires(v)]

    for position in differentiable:
        for value in owners([graph.outputs[position]]):
            behind.setdefault(value, set()).add(position)
    for node in reversed(graph.nodes):
        row = ops.get(node.op)
        made = owners((*node.outputs, *(node.args[:1] if row is not None and row.mutates else ())))
        met = {p for value in made if value not in given for p in behind.get(value, ())}
        if not is_recorded(node) or not met:
            continue
        joined.update(dict.fromkeys(map(first, met), min(map(first, met))))
        for value in owners(node.inputs()):
            behind.setdefault(value, set()).update(met)
    read_at = _last_reads(graph, differentiable, first)
    found = [
        Group(
            tuple(p for p in differentiable if first(p) == start),
            tuple(
                position
                for value, position in given.items()
                if any(first(p) == start for p in behind.get(value, ()))
            ),
        )
        for start in differentiable
        if first(start) == start
    ]
    return tuple(sorted(found, key=lambda group: max(read_at[p] for p in group.outputs)))


def _last_reads(
    graph: Graph, differentiable: Sequence[int], group_of: Callable[[int], int]
) -> dict[int, tuple[int, int]]:
    """The number of the last node on the way to each of these outputs that reads an input which
    other groups go to as well, and of the last one that reads a view of one. Autograd adds their
    gradients there: through a shared view they come to the input when the view's turn is."""
    behind: dict[Value, set[int]] = {}
    for position in differentiable:
        output = graph.outputs[position]
        assert isinstance(output, Value)
        behind.setdefault(output, set()).add(position)
    met = [set[int]() for _ in graph.nodes]
    for number, node in reversed(list(enumerate(graph.nodes))):
        met[number] = {p for value in node.outputs for p in behind.get(value, ())}
        for value in filter(requires, node.inputs()):
            behind.setdefault(value, set()).update(met[number])
    inputs, views = {entry.value for entry in graph.inputs}, set[Value]()
    found = dict.fromkeys(differentiable, (-1, -1))
    for number, node in enumerate(graph.nodes):
        if len(set(map(group_of, met[number]))) > 1:
            views.update(node.outputs)
            continue
        read = set(filter(requires, node.inputs()))
        for position in met[number]:
            of_input, of_view = found[position]
            found[position] = (
                of_input if read.isdisjoint(inputs) else number,
                of_view if read.isdisjoint(views) else number,
            )
    return found


def without_marks(graph: Graph) -> Graph:
    """The same graph, in which what nodes make requires no gradients. Inputs keep their marks: what
    views one is handed out detached."""
    made: dict[Value, Value] = {}
    inputs = {entry.value for entry in graph.inputs}

    def plain(value: Value) -> Value:
        if value in inputs or not requires(value):
            return value
        if value not in made:
            assert isinstance(value.type, TensorType)
            made[value] = Value(value.name, replace(value.type, requires_grad=False))
        return made[value]

    nodes = tuple(
        replace(
            node,
            args=tuple(map_values(arg, plain) for arg in node.args),
            kwargs={name: map_values(arg, plain) for name, arg in node.kwargs.items()},
            outputs=tuple(map(plain, node.outputs)),
        )
        for node in graph.nodes
    )
    outputs = tuple(map_values(output, plain) for output in graph.outputs)
    return replace(graph, nodes=nodes, outputs=outputs)
