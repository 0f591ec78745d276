"""A kernel reads the memory of one device: what lies elsewhere is handed over.

    %y = div(%x, %s)                 %x on a device, %s one number in the host's memory
    ->
    n0 = item(%s); %c = full((), n0); %y = div(%x, %c)

    %y = index(%x, (%i,))            positions in the host's memory
    ->
    %j = to_device(%i); %y = index(%x, (%j,))

Eager torch reads such a number on the host, without waiting for the device, and copies positions.
Everything else of another device it refuses, as the rows' types do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from anyshape.ir.graph import HOST, Arg, Graph, Node, TensorType, Value, map_values
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import mutable, replace
from anyshape.ops.build import Builder
from anyshape.ops.rules import POSITIONS_ANYWHERE
from anyshape.ops.table import OpDef, Pointwise, Scatter, Structural
from anyshape.passes.rebuild import Reader, Rebuilding, rebuild


def _reads_elsewhere(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    return any(any(_elsewhere(node, ops)) for node in graph.nodes)


def _elsewhere(node: Node, ops: Mapping[str, OpDef]) -> Iterator[Value]:
    """What the kernel of a node would read of another device than its result's."""
    row = ops.get(node.op)
    if row is None or not isinstance(row.lower, Pointwise | Structural | Scatter):
        return
    device = node.output.tensor.device
    for value in node.inputs():
        if isinstance(value.type, TensorType) and value.type.device != device:
            yield value


@only_where(_reads_elsewhere)
def read_one_device(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph in which every kernel's operands lie on its result's device."""
    reader = Reader.of(graph)
    builder = Builder(reader.cx, ops)
    builder.reserve(graph)
    return rebuild(graph, _Mover(builder, ops).visit, reader=reader)


@mutable(eq=False)
class _Mover:
    """``moved``: what stands for a value on a device, made where it is first needed."""

    builder: Builder
    ops: Mapping[str, OpDef]
    moved: dict[tuple[Value, str], Value] = field(default_factory=dict)

    def visit(self, node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        stands = {}
        for value in _elsewhere(node, self.ops):
            if (found := self._on_device(value, node)) is not None:
                stands[value] = found
        out.nodes += self.builder.nodes
        self.builder.nodes.clear()
        if stands:
            args, *kwargs = (
                tuple(map_values(arg, lambda value: stands.get(value, value)) for arg in given)
                for given in (node.args, tuple(node.kwargs.values()))
            )
            node = replace(node, args=args, kwargs=dict(zip(node.kwargs, *kwargs)))
        return out.emit(node)

    def _on_device(self, value: Value, node: Node) -> Value | None:
        device = node.output.tensor.device
        if (value, device) not in self.moved:
            b = self.builder
            b.location, b.modes = node.location, node.modes
            if not value.shape and value.tensor.device == HOST:
                made = b.full((), b.item(value), value.dtype, device)
            elif node.op in POSITIONS_ANYWHERE:
                made = b.to_device(value, device)
            else:
                return None
            self.moved[value, device] = made
        return self.moved[value, device]
