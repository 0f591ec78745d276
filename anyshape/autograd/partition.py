"""The joint graph cut in two: what the forward half saves, what the backward half computes again.

    %s = sigmoid(%x); %y = mul(%x, %s); ...; %gx = <of %g, %x, %s>; return %y, %gx
    ->
    forward(%x): %s = sigmoid(%x); %y = mul(%x, %s); return %y            saves %x
    backward(%x, %g): %s = sigmoid(%x); %gx = <of %g, %x, %s>; return %gx

What is saved is a minimum cut: each value costs its bytes at the hints, and what is costly to
compute (products, reductions, writes by index) or is drawn at random is not computed twice. What
the program can see is saved only where eager's own formulas read it (``Joint.saved_*``), so that a
later write to it raises where eager raises. Sizes and numbers are handed on beside the tensors.
Of what a checkpoint computes only what it draws is saved (``autograd/checkpoints.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anyshape.autograd.budget import (
    Allowed,
    costly_nodes,
    is_cheap,
    read_by_memory_bound_products,
    within_budget,
)
from anyshape.autograd.checkpoints import Checkpoints, is_checkpointed, runs_once
from anyshape.autograd.differentiate import Joint
from anyshape.autograd.memory import roots
from anyshape.autograd.minimum_cut import UNBOUNDED, NoCut, minimum_cut
from anyshape.autograd.outline import NotDifferentiable
from anyshape.autograd.sizes import cost_of_keeping, size_bytes, stored_anyway
from anyshape.autograd.stages import Stage
from anyshape.autograd.structure import Structure
from anyshape.ir.established import midrun_numbers, shown
from anyshape.ir.graph import (
    Arg,
    Graph,
    Input,
    Node,
    ScalarType,
    TensorType,
    Value,
    values_in,
)
from anyshape.ir.scalars import Operand, Scalar, ScalarInput, names_of
from anyshape.nouns import frozen, replace
from anyshape.ops.gradients.decisions import decides
from anyshape.ops.table import OPS, OpDef, assignment, is_done_by_library
from anyshape.symbolic import AllOf, AnyOf, Expr, Facts, Relation, Symbol


@frozen
class Residual:
    """A tensor that is saved: an input or an output of the program, or another output of the
    forward half, by its position among those. ``checked``: a write to it since is refused."""

    kind: str  # "input", "output" or "extra"
    position: int
    checked: bool = True


@frozen(eq=False)
class BackwardHalf:
    """Its graph, which gradients it gives, and which residuals it takes, by their numbers: all,
    where some of its cotangents may be absent, as it is another half then."""

    graph: Graph
    given: tuple[int, ...]
    residuals: tuple[int, ...]


@frozen(eq=False)
class Halves:
    """``forward`` returns the program's outputs, then ``extra`` tensors, then the numbers.
    ``backward`` takes the residuals, the numbers and the cotangents, and returns the gradients that
    are not None (``given`` are their positions among those wanted). ``watched`` are what eager
    saves of what the program can see, read here or not.
    """

    forward: Graph
    backward: Graph
    residuals: tuple[Residual, ...]
    watched: tuple[Residual, ...]
    extra: int
    given: tuple[int, ...]

    def whole(self) -> BackwardHalf:
        """The backward half of all cotangents."""
        return BackwardHalf(self.backward, self.given, tuple(range(len(self.residuals))))


def residuals_read(backward: Graph, count: int) -> frozenset[int]:
    """Which of its first so many inputs, the residuals, a backward half reads."""
    read = {value for node in backward.nodes for value in node.inputs()}
    read.update(values_in(backward.outputs))
    return frozenset(i for i, e in enumerate(backward.inputs[:count]) if e.value in read)


def sources_of_residuals(halves: Halves) -> tuple[frozenset[int], ...] | None:
    """For each residual, the positions of the inputs that it is made of; None where a number that
    data decides is made, by which anything may be."""
    forward = halves.forward
    bits = {entry.value: 1 << position for position, entry in enumerate(forward.inputs)}
    for node in forward.nodes:
        if any(True for v in node.outputs for _ in midrun_numbers(shown(v))):
            return None
        behind = 0
        for value in node.inputs():
            behind |= bits.get(value, 0)
        bits.update(dict.fromkeys(node.outputs, behind))
    count = len(halves.residuals)
    saved = [bits.get(entry.value, -1) for entry in halves.backward.inputs[:count]]
    positions = range(len(forward.inputs))
    return tuple(frozenset(p for p in positions if found >> p & 1) for found in saved)


def partition(joint: Joint, ops: Mapping[str, OpDef], budget: float = 1.0) -> Halves:
    """``budget``: see ``autograd/budget.py``. Raises ``NotDifferentiable`` where something must be
    saved that eager does not save."""
    return _Partition(joint, ops).cut(budget)


def backward_over(joint: Joint, whole: Joint, ops: Mapping[str, OpDef], halves: Halves) -> Graph:
    """The backward half of a joint graph of fewer cotangents, from what is saved for all of them
    (``whole``)."""
    structure = Structure(ops)
    made, other = _Partition(joint, ops), _Partition(whole, ops)
    kept = [entry.value for entry in halves.backward.inputs[: len(halves.residuals)]]
    numbers = structure.of(other.inputs, other.early_nodes)
    by_number = {n: v for v, n in structure.of(made.inputs, made.early_nodes).items()}
    saved = [by_number.get(numbers[value], value) for value in kept]
    return made.backward(saved, halves.backward.inputs)


@frozen(eq=False)
class _Late:
    """What a backward half computes: its nodes that depend on cotangents, in order."""

    nodes: Sequence[Node]
    gradients: Sequence[Value]
    cotangents: Sequence[Value]


class StageHalves:
    """The backward halves of the stages of a joint graph (``stages.py``), which has gradients of
    one stage after the other: each is what depends on the cotangents of its outputs."""

    def __init__(
        self, whole: Joint, ops: Mapping[str, OpDef], halves: Halves, stages: Sequence[Stage]
    ) -> None:
        self.halves, self.partition = halves, _Partition(whole, ops)
        self.saved = [e.value for e in halves.backward.inputs[: len(halves.residuals)]]
        seeds = dict(zip(whole.differentiable, whole.cotangents))
        number = {seeds[p]: i for i, stage in enumerate(stages) for p in stage.outputs}
        nodes: list[list[Node]] = [[] for _ in stages]
        for node in self.partition.late_nodes:
            own, *others = {number[value] for value in node.inputs() if value in number}
            if others:
                raise NotDifferentiable("one node computes gradients of two stages", node)
            nodes[own].append(node)
            number.update(dict.fromkeys(node.outputs, own))
        self.made: dict[tuple[int, ...], BackwardHalf] = {}
        first = 0
        for stage, late in zip(stages, nodes):
            last = first + len(stage.wanted) + len(stage.before)
            given = [i for i in range(first, last) if whole.gradients[i] is not None]
            gradients = [*values_in(tuple(whole.gradients[i] for i in given))]
            cotangents = [seeds[position] for position in stage.outputs]
            half = self._half(_Late(late, gradients, cotangents), len(stage.outputs) == 1)
            self.made[stage.outputs] = replace(half, given=tuple(given))
            first = last

    def _half(self, late: _Late, is_whole: bool) -> BackwardHalf:
        graph = self.partition.backward(self.saved, self.halves.backward.inputs, late)
        count = len(self.saved)
        if not is_whole:
            return BackwardHalf(graph, (), tuple(range(count)))
        residuals = tuple(sorted(residuals_read(graph, count)))
        inputs = [graph.inputs[i] for i in residuals]
        graph = replace(graph, inputs=(*inputs, *graph.inputs[count:]))
        return BackwardHalf(graph, (), residuals)


class _Partition:
    """What depends on cotangents is late; ``needed`` of the rest is what the late nodes read."""

    def __init__(self, joint: Joint, ops: Mapping[str, OpDef]) -> None:
        self.joint, self.ops, self.graph = joint, ops, joint.graph
        self.late: set[Value] = set(joint.cotangents)
        self.makers: dict[Value, Node] = {}
        self.early_nodes: list[Node] = []
        self.late_nodes: list[Node] = []
        for node in self.graph.nodes:
            late = any(value in self.late for value in node.inputs())
            (self.late_nodes if late else self.early_nodes).append(node)
            self.makers.update(dict.fromkeys(node.outputs, node))
            if late:
                self.late.update(node.outputs)
        self.inputs = [e.value for e in self.graph.inputs if e.value not in self.late]
        self.gradients = [v for v in joint.gradients if isinstance(v, Value)]
        self.required = self._required()
        self.checkpoints = Checkpoints.of(self.early_nodes, self.graph.outputs, ops)

    def tensors(self) -> Iterator[Value]:
        yield from (v for v in self.inputs if isinstance(v.type, TensorType))
        for node in self.graph.nodes:
            yield from (v for v in node.outputs if isinstance(v.type, TensorType))

    def _required(self) -> set[Node]:
        """The nodes that the forward half runs whatever is saved."""
        found: set[Node] = set()
        wanted = [v for out in self.graph.outputs[: self.joint.outputs] for v in values_in(out)]
        kept = self._kept()
        wanted += [value for node in kept for value in node.inputs()]
        found.update(kept)
        while wanted:
            node = self.makers.get(wanted.pop())
            if node is not None and node not in found:
                found.add(node)
                wanted.extend(node.inputs())
        return found

    def _kept(self) -> list[Node]:
        """Early nodes that do something besides their results, decide a size, or may refuse their
        arguments though nobody reads them."""
        read = self._read()
        seen: set[Symbol | ScalarInput] = set()
        kept = []
        for node in self.early_nodes:
            sizes = {s for v in node.outputs for s in midrun_numbers(shown(v))}
            unread = node.outputs and read.isdisjoint(node.outputs)
            if runs_once(node, self.ops) or sizes - seen or (unread and self._refuses(node)):
                kept.append(node)
            seen |= sizes
        return kept

    def _read(self) -> set[Value]:
        """What outputs and gradients are made of, however far back."""
        read = set(values_in(self.graph.outputs))
        for node in reversed(self.graph.nodes):
            if not read.isdisjoint(node.outputs):
                read.update(node.inputs())
        return read

    def _refuses(self, node: Node) -> bool:
        row = self.ops.get(node.op)
        return row is None or row.raises or is_done_by_library(row)

    # ---- what to save ----------------------------------------------------------------------------
    def cut(self, budget: float) -> Halves:
        costly = costly_nodes(self.early_nodes, self.graph, self.ops)
        saved = within_budget(budget, costly, self._saved)
        positions = self._positions()
        extra = [value for value in saved if value not in positions]
        residuals = [
            positions.get(v) or Residual("extra", self.joint.outputs + extra.index(v))
            for v in saved
        ]
        backward = self.backward(saved)
        numbers = [entry.value for entry in backward.inputs if _is_number(entry.value)]
        forward = self._forward(extra, [_number(value) for value in numbers])
        given = tuple(i for i, g in enumerate(self.joint.gradients) if g is not None)
        return Halves(
            forward, backward, tuple(residuals), self._watched(residuals), len(extra), given
        )

    def _positions(self) -> dict[Value, Residual]:
        """Where the program's own inputs and outputs are."""
        found = {
            out: Residual("output", i)
            for i, out in enumerate(self.graph.outputs[: self.joint.outputs])
            if isinstance(out, Value)
        }
        unchecked = self.joint.unchecked_inputs
        given = {v: Residual("input", i, i not in unchecked) for i, v in enumerate(self.inputs)}
        return found | given

    def _watched(self, residuals: Sequence[Residual]) -> tuple[Residual, ...]:
        """What eager saves of what the program can see, and the backward half does not read."""
        checked = self.joint.saved_inputs - self.joint.unchecked_inputs | self.joint.left_inputs
        seen = [Residual("input", i) for i in sorted(checked)]
        outputs = self.joint.saved_outputs | self.joint.left_outputs
        seen += [Residual("output", i) for i in sorted(outputs)]
        return tuple(one for one in seen if one not in residuals)

    def _saved(self, allowed: Allowed) -> tuple[list[Value], int]:
        """What is saved where the nodes that are allowed may be computed again, and its bytes."""
        needed = self._needed()
        capacities: dict[Value, int] = {}
        edges: list[tuple[Value, Value]] = []
        fed: list[Value] = []
        costs = _Costs(self)
        stay = set(self.checkpoints.given) | (
            set() if allowed else self._read_by_memory_bound(costs)
        )
        waiting = list(needed)
        while waiting:
            value = waiting.pop()
            if value in capacities:
                continue
            capacities[value] = costs.of(value)
            maker = self.makers.get(value)
            if maker is None or value in stay or not self._again(maker, allowed):
                fed.append(value)
                continue
            sources = [v for v in maker.inputs() if isinstance(v.type, TensorType)]
            edges.extend((source, value) for source in sources)
            waiting.extend(sources)
        try:
            chosen = minimum_cut(capacities, edges, fed, needed)
        except NoCut:
            raise NotDifferentiable(
                "the gradients read what the program can see and eager does not save"
            ) from None
        saved = [value for value in self.tensors() if value in chosen]
        return saved, sum(size_bytes(v.tensor, self.graph) for v in saved if capacities[v])

    def _read_by_memory_bound(self, costs: _Costs) -> set[Value]:
        """What lies there and is better saved, if it may be, than written once more."""
        read = read_by_memory_bound_products(self.late_nodes, self.graph, self.ops)
        return {v for v in read & costs.stored.keys() if costs.of(v) < UNBOUNDED}

    def _needed(self) -> list[Value]:
        read = (value for node in self.late_nodes for value in node.inputs())
        wanted = dict.fromkeys((*read, *self.gradients))
        return [v for v in wanted if v not in self.late and isinstance(v.type, TensorType)]

    def _again(self, node: Node, allowed: Allowed) -> bool:
        """Whether the backward half may run the node: it is cheap, or runs nowhere else."""
        if decides(node):
            return False
        if node in self.required and not is_checkpointed(node):
            return node in allowed or is_cheap(node, self.ops)
        return not runs_once(node, self.ops)

    # ---- the halves ------------------------------------------------------------------------------
    def _forward(self, extra: Sequence[Value], numbers: Sequence[Operand]) -> Graph:
        wanted = set(self.required)
        waiting = list(extra)
        while waiting:
            node = self.makers.get(waiting.pop())
            if node is not None and node not in wanted:
                wanted.add(node)
                waiting.extend(node.inputs())
        late = set(self.late_nodes)
        nodes = [n for n in self.graph.nodes if n in wanted and n not in late]
        nodes.sort(key=_assigns)  # what is saved may read the old contents
        outputs = (*self.graph.outputs[: self.joint.outputs], *extra, *numbers)
        inputs = tuple(e for e in self.graph.inputs if e.value not in self.late)
        return replace(self.graph, inputs=inputs, nodes=tuple(nodes), outputs=outputs)

    def backward(
        self, saved: Sequence[Value], handed: Sequence[Input] = (), late: _Late | None = None
    ) -> Graph:
        """The nodes that give the gradients from what is saved; those that run again stand where
        they are first read. ``handed``: the inputs that another backward half has, all of them.
        ``late``: what it computes, if that is not all."""
        late = late or _Late(self.late_nodes, self.gradients, self.joint.cotangents)
        order: list[Node] = []
        self._emit(late, set(saved), order)
        if any(_is_number(value) for node in order for value in node.inputs()):
            raise NotDifferentiable("a gradient is computed from a number that data decides")
        numbers = _numbers(self.graph.facts, order, (*late.gradients, *saved, *late.cotangents))
        entries = [Input(v, "argument", f"saved {v.name}") for v in saved]
        if handed:
            entries += [entry for entry in handed if _is_number(entry.value)]
        else:
            entries += [Input(v, "argument", f"the number {v.name}") for v in numbers]
        cotangents = set(late.cotangents)
        entries += [entry for entry in self.graph.inputs if entry.value in cotangents]
        return replace(
            self.graph,
            inputs=tuple(entries),
            nodes=tuple(order),
            outputs=tuple(late.gradients),
        )

    def _emit(self, late: _Late, saved: set[Value], order: list[Node]) -> None:
        """The nodes that these need, in the order of the joint graph as far as they are late; early
        ones directly in front of the first that reads them."""
        effects = [node for node in late.nodes if runs_once(node, self.ops)]
        needed: set[Node] = set()
        self._collect([*late.gradients, *effects], saved, needed)
        done: set[Node] = set()
        for node in late.nodes:
            if node in needed:
                self._append_after_inputs(node, saved, done, order)
        for value in late.gradients:
            maker = self.makers.get(value)
            if maker is not None and value not in saved:
                self._append_after_inputs(maker, saved, done, order)

    def _collect(self, wanted: Sequence[Value | Node], saved: set[Value], found: set[Node]) -> None:
        waiting = list(wanted)
        while waiting:
            item = waiting.pop()
            node = item if isinstance(item, Node) else self.makers.get(item)
            if node is None or node in found or (isinstance(item, Value) and item in saved):
                continue
            found.add(node)
            waiting.extend(node.inputs())

    def _append_after_inputs(
        self, node: Node, saved: set[Value], done: set[Node], order: list[Node]
    ) -> None:
        stack = [(node, False)]
        while stack:
            current, ready = stack.pop()
            if current in done:
                continue
            if ready:
                done.add(current)
                order.append(current)
                continue
            stack.append((current, True))
            for value in reversed(tuple(current.inputs())):
                maker = self.makers.get(value)
                if maker is None or maker in done or value in saved or _is_number(value):
                    continue
                stack.append((maker, False))


class _Costs:
    """What saving a value costs: its bytes at the hints, and a little for a write that nothing else
    needs; nothing for what is kept anyway, and without bounds for what may not be saved."""

    def __init__(self, partition: _Partition) -> None:
        joint, graph = partition.joint, partition.graph
        self.graph = graph
        self.owner = roots(graph, partition.ops)
        kept: set[Value] = set()
        seen: set[Value] = set()
        for i, value in enumerate(partition.inputs):
            (kept if i in joint.saved_inputs else seen).add(value)
        for i, out in enumerate(graph.outputs[: joint.outputs]):
            owners = {self.owner.get(v, v) for v in values_in(out)}
            (kept if i in joint.saved_outputs else seen).update(owners)
        self.written = _written(graph)
        self.stored = stored_anyway(partition.early_nodes, partition.ops)
        self.again = partition.checkpoints.again
        read = {self.owner.get(v, v) for v in partition.checkpoints.read}
        kept |= (read & seen) - self.written
        self.kept, self.seen = kept, seen - kept
        if not self.written.isdisjoint(kept):
            raise NotDifferentiable("a tensor that gradients read is written by the program itself")

    def of(self, value: Value) -> int:
        root = self.owner.get(value, value)
        if root in self.written or root in self.seen:
            return UNBOUNDED
        if root in self.kept:
            return 0
        if value in self.again:
            return UNBOUNDED
        return cost_of_keeping(value, self.graph, self.stored)


def _assigns(node: Node) -> bool:
    return assignment(OPS.get(node.op)) is not None


def _written(graph: Graph) -> set[Value]:
    """The inputs that nodes at the end of the graph assign to."""
    return {next(node.inputs()) for node in graph.nodes if _assigns(node)}


# --- sizes and numbers --------------------------------------------------------------------------


def _is_number(value: Value) -> bool:
    return isinstance(value.type, ScalarType)


def _number(value: Value) -> Operand:
    assert isinstance(value.type, ScalarType)
    return value.type.expr


def _numbers(facts: Facts, nodes: Sequence[Node], values: Sequence[Value]) -> list[Value]:
    """Values for the sizes and numbers that the nodes and the types of these values name, and for
    those that the facts replace them by."""
    args = [arg for node in nodes for arg in (*node.args, *node.kwargs.values())]
    typed = [*values, *(v for node in nodes for v in (*node.inputs(), *node.outputs))]
    dims = [dim for value in typed for dim in _dims(value)]
    found = dict.fromkeys(_named((*args, *dims)))
    whole = [name.expr for name in found if isinstance(name, Symbol)]
    exprs = dict.fromkeys(dim for dim in (*whole, *dims) if isinstance(dim, Expr))
    found.update(dict.fromkeys(_named([facts.simplify(expr) for expr in exprs])))
    return [
        Value(name.name, ScalarType("int", name.expr))
        if isinstance(name, Symbol)
        else Value(name.name, ScalarType(name.kind, name))
        for name in found
    ]


def _dims(value: Value) -> tuple[Arg, ...]:
    """The sizes and strides of a type, or the number."""
    if isinstance(value.type, TensorType):
        return (*value.type.shape, *value.type.strides)
    return (value.type.expr,)


def _named(args: Sequence[Arg | Relation | AllOf | AnyOf]) -> Iterator[Symbol | ScalarInput]:
    for arg in args:
        match arg:
            case Expr() | Relation() | AllOf() | AnyOf():
                yield from arg.symbols
            case Scalar() | ScalarInput():
                yield from names_of(arg)
            case tuple():
                yield from _named(arg)
            case slice():
                yield from _named((arg.start, arg.stop, arg.step))
