"""Tensors that eager makes anew stay tensors of their own: other objects, and memory where it is.

return x, x.view_as(x)   cleaned:  return %x, %x   ->   %y = expand(%x, ...); return %x, %y
return x + 1, x + 1      merging the two would put both results in one memory: see ``escaping``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from anyshape.ir.buffers import BufferRef
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value, values_in
from anyshape.ir.program import Allocate, Program
from anyshape.nouns import replace
from anyshape.ops.context import TypeContext
from anyshape.ops.shared_memory import DETACHED, base_of, is_view
from anyshape.ops.table import OpDef


def escaping(graph: Graph, ops: Mapping[str, OpDef]) -> frozenset[Value]:
    """Values whose memory is that of an output: the outputs, and what they view."""
    found = set(values_in(graph.outputs))
    for node in reversed(graph.nodes):
        row = ops.get(node.op)
        first = next(node.inputs(), None)
        if row is not None and row.alias != "none" and not found.isdisjoint(node.outputs):
            found.update(() if first is None else (first,))
    return frozenset(found)


def separate_outputs(captured: Graph, final: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """``final``, where each output that is a new object in the captured graph is one, and requires
    gradients where the captured one does (as a view of a parameter, not as what is detached)."""
    objects = _objects(captured, ops)
    owners = {after.value: before.value for before, after in zip(captured.inputs, final.inputs)}
    inputs = {before.value for before in captured.inputs}
    nodes = list(final.nodes)
    aliases: dict[tuple[Value, Value], Value] = {}

    def separated(was: Arg, now: Arg) -> Arg:
        if isinstance(was, tuple) and isinstance(now, tuple):
            return tuple(map(separated, was, now))
        if not isinstance(was, Value) or not isinstance(now, Value):
            return now
        owner = objects.get(was, was)
        first = owners.setdefault(now, owner) is owner
        if not isinstance(now.type, TensorType) or not isinstance(was.type, TensorType):
            return now
        kind = now.type
        if kind.requires_grad is not was.type.requires_grad:
            kind = replace(kind, requires_grad=was.type.requires_grad)
        if first and (owner in inputs or kind == now.type):
            return now
        if (now, owner) not in aliases:
            view = aliases[now, owner] = Value(f"{now.name}_again_{len(aliases)}", kind)
            nodes.append(Node("expand", (now, now.shape), {}, (view,)))
        return aliases[now, owner]

    outputs = tuple(map(separated, captured.outputs, final.outputs))
    return replace(final, nodes=tuple(nodes), outputs=outputs) if aliases else final


def lent_outputs(program: Program) -> tuple[int, ...]:
    """The positions of outputs that are not new memory of the program."""
    steps = (step for step in program.flat_steps() if isinstance(step, Allocate))
    new = {step.buffer for step in steps if step.over is None}
    return tuple(
        position
        for position, now in enumerate(program.outputs)
        if not isinstance(now, BufferRef) or now.name not in new
    )


def outputs_as_views(
    captured: Graph, lent: Iterable[int], ops: Mapping[str, OpDef]
) -> tuple[tuple[int, ...], frozenset[int]]:
    """The positions of outputs that the program may make as views (of those that are ``lent``),
    and eager makes as none, for sure (what was written through a view, ``detach``) or at some
    sizes."""
    makers = {value: node for node in captured.nodes for value in node.outputs}
    shared = [
        (position, output)
        for position in lent
        for output in captured.outputs[position : position + 1]
        if isinstance(output, Value) and isinstance(output.type, TensorType)
    ]
    if not shared:
        return (), frozenset()
    cx = TypeContext(captured.space, captured.facts.fork(), captured.hints)
    never, sometimes = [], []
    for position, output in shared:
        known = is_view(cx, ops, makers, output)
        if known is False:
            never.append(position)
        elif known is None and output in makers:
            sometimes.append(position)
    return tuple(never), frozenset(sometimes)


def detached_bases(captured: Graph, ops: Mapping[str, OpDef]) -> tuple[int, ...]:
    """The positions of outputs that eager makes by ``detach``, and of which other outputs are
    views here: a write to one that has gradients would be one to the base of those."""
    if not [node for node in captured.nodes if node.op in DETACHED]:
        return ()
    makers = {value: node for node in captured.nodes for value in node.outputs}
    flat = [output for output in captured.outputs if isinstance(output, Value)]
    shared = Counter(base_of(output, makers, ops) for output in dict.fromkeys(flat))
    return tuple(
        position
        for position, output in enumerate(captured.outputs)
        if isinstance(output, Value)
        and (maker := makers.get(output)) is not None
        and maker.op in DETACHED
        and (base := base_of(output, makers, ops)) in makers
        and shared[base] > 1
    )


def _objects(graph: Graph, ops: Mapping[str, OpDef]) -> dict[Value, Value]:
    """What is the very object that an operator was given: written in place, or handed back."""
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        row = ops.get(node.op)
        first = next(node.inputs(), None)
        if row is None or first is None or len(node.outputs) != 1:
            continue
        handed_back = row.alias == "maybe" and not row.new_view
        if row.mutates or (handed_back and first.type == node.output.type):
            found[node.output] = found.get(first, first)
    return found
