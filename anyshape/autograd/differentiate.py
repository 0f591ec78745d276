"""The joint graph: a functional graph, followed by the nodes that compute its gradients.

    %y = mul(%x, %w); return %y                      gradients of %x and %w
    ->
    %y = mul(%x, %w); %gx = mul(%g, %w); %gw = sum(mul(%g, %x), ...); return %y, %gx, %gw

Nodes are read backwards; the rule of each row (``OpDef.vjp``) makes the gradients of its arguments
from the cotangents of its results. A gradient is summed to its argument's shape and cast to its
dtype here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from anyshape.autograd.memory import roots, views
from anyshape.autograd.outline import NotDifferentiable
from anyshape.autograd.own_backwards import gradients_of_arguments, without_own_backwards
from anyshape.autograd.recorded import (
    can_be_recorded,
    constant_in,
    has_gradients,
    in_callers_memory,
    is_complex,
    may_be_recorded,
    recorded,
)
from anyshape.autograd.stages import Stage
from anyshape.ir.graph import (
    Arg,
    Graph,
    Input,
    Node,
    Value,
    row_major,
    values_in,
)
from anyshape.nouns import frozen, mutable, replace
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext, Undecided
from anyshape.ops.gradients.recorded import RECORDED, is_tensor
from anyshape.ops.table import OpDef
from anyshape.ops.write_back import WrittenThrough
from anyshape.symbolic import eq


@frozen(eq=False)
class Joint:
    """``graph.inputs`` are those of the program, then a cotangent for each of ``differentiable``
    (positions of the outputs that get one); ``graph.outputs`` are those of the program, then a
    gradient for each of ``wanted`` (positions of inputs), or for each that a stage wants
    (``stages.py``), None where nothing depends on it.
    ``saved`` are positions of the inputs and outputs in whose memory eager's own backward formulas
    read. ``unchecked_inputs``: of those eager does not know whether they were written since.
    ``left_inputs``, ``left_outputs``: those of which eager alone knows what it keeps: what the
    graph has left there, or views that some sizes have.
    """

    graph: Graph
    outputs: int
    differentiable: tuple[int, ...]
    wanted: tuple[int, ...]
    saved_inputs: frozenset[int]
    saved_outputs: frozenset[int]
    unchecked_inputs: frozenset[int] = frozenset()
    left_inputs: frozenset[int] = frozenset()
    left_outputs: frozenset[int] = frozenset()

    @property
    def cotangents(self) -> tuple[Value, ...]:
        inputs = self.graph.inputs
        return tuple(entry.value for entry in inputs[len(inputs) - len(self.differentiable) :])

    @property
    def gradients(self) -> tuple[Arg, ...]:
        return self.graph.outputs[self.outputs :]


def differentiate(
    graph: Graph,
    ops: Mapping[str, OpDef],
    wanted: Sequence[int],
    differentiable: Sequence[int],
    absent: Sequence[int] = (),
    stages: Sequence[Stage] = (),
) -> Joint:
    """The joint graph of a functional graph whose nodes have rules. ``absent`` are outputs that get
    no cotangent. Where there are ``stages`` the gradients are those that each of them wants, one
    stage after the other. Raises ``NotDifferentiable``.
    """
    active = Activity(graph, ops, [graph.inputs[i].value for i in wanted])
    active.agree_on(differentiable)
    if not stages:
        nodes = tuple(filter(active.differentiates, graph.nodes))
        stages = (Stage(tuple(differentiable), tuple(wanted), (), nodes),)
    builder = continued(graph, ops)
    present = [position for position in differentiable if position not in absent]
    seeds = {position: _seed(builder, graph, position) for position in present}
    callers = in_callers_memory(graph, ops)
    found = []
    for stage in reversed(stages):
        backward = Backward(builder, ops, active.values, callers)
        for position in filter(seeds.__contains__, stage.outputs):
            (output,) = values_in(graph.outputs[position])
            backward.add(output, seeds[position])
        for node in reversed(stage.nodes):
            backward.node(node)
        found.append(backward)
    owner = roots(builder.finish(()), ops)
    gradients = []
    for stage, backward in zip(stages, reversed(found)):
        given = [graph.inputs[i].value for i in stage.wanted]
        given += values_in(tuple(graph.outputs[i] for i in stage.before))
        of_stage = [seeds[position] for position in stage.outputs if position in seeds]
        gradients += backward.finished(given, of_stage, owner)
    made = builder.finish((*graph.outputs, *gradients))
    joint = without_own_backwards(replace(made, facts=graph.facts))
    inputs, outputs = _saved(without_own_backwards(graph), ops, builder.nodes[len(graph.nodes) :])
    return Joint(joint, len(graph.outputs), tuple(present), tuple(wanted), inputs, outputs)


def continued(graph: Graph, ops: Mapping[str, OpDef]) -> Builder:
    """A builder that goes on where the graph ends: all its checks have passed."""
    builder = Builder(TypeContext(graph.space, graph.facts.fork(), graph.hints), ops)
    builder.reserve(graph)
    builder.nodes = list(graph.nodes)
    builder.inputs = list(graph.inputs)
    return builder


def _seed(builder: Builder, graph: Graph, position: int) -> Value:
    """The cotangent of an output: row-major, as the boundary hands it in."""
    output = graph.outputs[position]
    assert isinstance(output, Value)
    kind = replace(output.tensor, strides=row_major(output.shape), wrapped_number=False)
    value = Value(builder.fresh_name("cotangent"), kind)
    builder.inputs.append(Input(value, "argument", f"the cotangent of output {position}"))
    return value


def _saved(
    graph: Graph, ops: Mapping[str, OpDef], nodes: Sequence[Node]
) -> tuple[frozenset[int], frozenset[int]]:
    """The inputs and outputs whose memory the formulas read."""
    owner = roots(graph, ops)
    made = {value for node in graph.nodes for value in node.outputs}
    made.update(entry.value for entry in graph.inputs)
    read = {owner.get(v, v) for node in nodes for v in node.inputs() if v in made}
    inputs = (i for i, entry in enumerate(graph.inputs) if entry.value in read)
    outputs = (
        i
        for i, output in enumerate(graph.outputs)
        if any(owner.get(v, v) in read for v in values_in(output))
    )
    return frozenset(inputs), frozenset(outputs)


class Activity:
    """Which values gradients flow through: eager's rule, by the modes of nodes."""

    def __init__(self, graph: Graph, ops: Mapping[str, OpDef], wanted: Sequence[Value]) -> None:
        self.graph, self.ops = graph, ops
        self.values = set(wanted)
        self.nodes: set[Node] = set()
        self.cut: set[Value] = set()  # views made without gradients of what requires them
        self.cx = TypeContext(graph.space, graph.facts.fork(), graph.hints)
        for node in graph.nodes:
            self._read(node)

    def agree_on(self, differentiable: Sequence[int]) -> None:
        """Refuses a graph of which capture thinks otherwise."""
        outputs = self.graph.outputs
        found = [i for i, o in enumerate(outputs) if isinstance(o, Value) and o in self.values]
        if found != list(differentiable) or any(v in self.cut for v in values_in(outputs)):
            raise NotDifferentiable("which outputs require gradients is not certain")

    def differentiates(self, node: Node) -> bool:
        return node in self.nodes

    def _read(self, node: Node) -> None:
        row = self.ops.get(node.op)
        read = node.read if row is None or row.vjp != "region" else (*values_in(node.args[0]),)
        if not any(v in self.values or v in self.cut for v in read):
            return
        if row is not None and not row.differentiable:
            return
        if node.modes is None or not node.modes.grad:
            if views(self.cx, node, self.ops):
                self.cut.update(node.outputs)
            return
        if any(v in self.cut for v in read):
            raise NotDifferentiable("a view is made without gradients, and used with them", node)
        floating = [v for v in node.outputs if is_tensor(v) and has_gradients(v)]
        if not floating:
            return
        if row is None or not (_has_rule(row) or may_be_recorded(node, row)):
            raise NotDifferentiable(f"{node.op} has no gradient rule", node)
        if is_complex(node) and not (_is_written_back(row) or can_be_recorded(node, row)):
            raise NotDifferentiable(f"{node.op} of complex numbers", node)
        self.nodes.add(node)
        self.values.update(floating)


def _has_rule(row: OpDef) -> bool:
    return isinstance(row.vjp, Mapping) or row.vjp == "region" or _is_written_back(row)


def _is_written_back(row: OpDef) -> bool:
    return row.vjp is None and row.alias != "none" and row.write_back is not None


Gradients: TypeAlias = Iterator[tuple[Value, Value]]
"""Of what a node reads, in the types of that."""


@mutable(eq=False)
class Backward:
    """The gradients so far: of a value, the sum of what its readers gave."""

    builder: Builder
    ops: Mapping[str, OpDef]
    active: set[Value]
    callers: frozenset[Value] = frozenset()  # in whose memory only the caller writes
    recorded: bool = False  # what computes them is differentiated in turn
    found: dict[Value, Value] = field(default_factory=dict)

    def add(self, value: Value, gradient: Value) -> None:
        if value in self.found:
            gradient = self.builder.call("add", self.found[value], gradient)
        self.found[value] = gradient

    def node(self, node: Node) -> None:
        """The gradients of what the node reads."""
        given = tuple(self.found.get(value) for value in node.outputs)
        if all(g is None for g in given):
            return
        row, builder = self.ops[node.op], self.builder
        builder.location = node.location
        if node.modes is not None:
            builder.modes = replace(node.modes, grad=self.recorded, backward=True)
            builder.cx.default_dtype = node.modes.default_dtype
            builder.cx.default_device = node.modes.default_device
        start = len(builder.nodes)
        try:
            made = list(self._made(node, row, given))
        except (OpError, Undecided, WrittenThrough, NotDifferentiable) as error:
            if not can_be_recorded(node, row) or node.op in RECORDED.values():
                if isinstance(error, NotDifferentiable):
                    raise
                raise NotDifferentiable(f"the gradient of {node.op}: {error}", node) from error
            del builder.nodes[start:]
            made = list(self._recorded(node, row, given))
        for value, gradient in made:  # only now: what was refused midway has given nothing
            self.add(value, gradient)

    def _made(self, node: Node, row: OpDef, given: tuple[Value | None, ...]) -> Gradients:
        if row.vjp == "region":
            return self._by_region(node, given)
        if _is_written_back(row):
            return iter([self._view(node, row, given)])
        if is_complex(node):  # rules are of real numbers
            raise NotDifferentiable(f"{node.op} of complex numbers", node)
        return self._by_rules(node, row, given)

    def _by_region(self, node: Node, given: tuple[Value | None, ...]) -> Gradients:
        for argument, gradient in gradients_of_arguments(self.builder, node, given):
            yield from self._handed_out(argument, gradient)

    def _recorded(self, node: Node, row: OpDef, given: tuple[Value | None, ...]) -> Gradients:
        """By torch's autograd, which records the node."""
        active = self.active - constant_in(node, row)
        if active.isdisjoint(node.read):
            return iter(())
        handle = self.builder.fresh_name("handle")
        made = recorded(node, row, active, self.callers, handle)
        nodes = self.builder.nodes
        position = next(i for i, other in enumerate(nodes) if other is node)
        nodes[position] = made
        return self._by_rules(made, self.ops[made.op], (*given, None))

    def _by_rules(self, node: Node, row: OpDef, given: tuple[Value | None, ...]) -> Gradients:
        rules = row.vjp
        if not isinstance(rules, Mapping):
            raise NotDifferentiable(f"{node.op} has no gradient rule", node)
        single = len(node.outputs) == 1
        g: Any = given[0] if single else given
        y: Any = node.outputs[0] if single else node.outputs
        made: list[tuple[Arg, Any]] = []
        for name, arg in self._arguments(node, row):
            if not any(v in self.active for v in values_in(arg)):
                continue
            if name not in rules:
                raise NotDifferentiable(f"{node.op} has no gradient rule for {name}", node)
            made.append((arg, rules[name](self.builder, g, y, *node.args, **node.kwargs)))
        for arg, gradient in made:
            yield from self._handed_out(arg, gradient)

    def _arguments(self, node: Node, row: OpDef) -> Iterator[tuple[str, Arg]]:
        yield from zip(row.signature.names, node.args)
        yield from node.kwargs.items()

    def _handed_out(self, arg: Arg, gradient: Any) -> Gradients:
        if isinstance(arg, tuple):
            for one, part in zip(arg, gradient, strict=True):
                yield from self._handed_out(one, part)
        elif isinstance(arg, Value) and arg in self.active and gradient is not None:
            yield arg, self._fitted(gradient, arg)

    def _view(self, node: Node, row: OpDef, given: tuple[Value | None, ...]) -> tuple[Value, Value]:
        """The cotangent of a view is that of the elements it shows; of the others it is 0."""
        source = node.args[0]
        assert isinstance(source, Value) and row.write_back is not None
        b, kind = self.builder, source.tensor
        whole = b.call("full", kind.shape, 0, kind.dtype, kind.device)
        for position, g in enumerate(given):
            if g is not None:
                whole = row.write_back(b, whole, g, node, position)
        return source, self._fitted(whole, source)

    def _fitted(self, gradient: Value, like: Value) -> Value:
        """Summed over what was broadcast, in the dtype of the argument."""
        b = self.builder
        gradient = summed_to(b, gradient, like.shape)
        if gradient.dtype is not like.dtype:
            gradient = b.call("to_dtype", gradient, like.dtype)
        return gradient

    def finished(
        self, wanted: Sequence[Value], seeds: Sequence[Value], owner: Mapping[Value, Value]
    ) -> list[Value | None]:
        """The gradients of these, each in memory of its own: autograd keeps them as ``.grad``,
        which programs write. One that repeats elements of a cotangent, as eager's, it copies.
        ``owner``: whose memory values lie in."""
        taken = {*seeds, *(entry.value for entry in self.builder.inputs)}
        repeated = set(seeds)
        made: list[Value | None] = []
        for value in wanted:
            gradient = self.found.get(value)
            if gradient is not None:
                root = owner.get(gradient, gradient)
                if root in repeated and _repeats(gradient):
                    repeated.discard(root)
                elif root in taken:
                    gradient = self.builder.call("clone", gradient)
                taken.add(root)
            made.append(gradient)
        return made


def _repeats(value: Value) -> bool:
    """Is one element of memory many of the tensor, by its type?"""
    pairs = zip(value.shape, value.tensor.strides, strict=True)
    return any(stride == 0 and size != 1 for size, stride in pairs)


def summed_to(b: Builder, gradient: Value, shape: tuple[Any, ...]) -> Value:
    """The sum over what was broadcast from ``shape``. Raises ``Undecided`` where a size may be 1 or
    not."""
    lead = len(gradient.shape) - len(shape)
    if lead < 0:  # smaller than the argument: the same for all of it
        return b.call("expand", gradient, shape)
    dims = list(range(lead))
    spread = False
    for position, size in enumerate(shape):
        have = gradient.shape[lead + position]
        if b.cx.same(have, size):
            continue
        if b.cx.known(eq(size, 1)):
            dims.append(lead + position)
        elif b.cx.known(eq(have, 1)):
            spread = True
        else:
            raise Undecided(eq(have, size))
    if dims:
        gradient = b.call("sum", gradient, tuple(dims), True)
        if lead:
            gradient = b.call("reshape", gradient, tuple(gradient.shape[lead:]))
    return b.call("expand", gradient, shape) if spread else gradient
