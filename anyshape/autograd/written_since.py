"""Operators in front of ``backward()`` whose arguments or results are written before it.

    %y = sqrt(%x); %z = addmm_(%y, ...); gradients((%z,), ...)    ->    sqrt, with %y

In: a captured graph that calls ``backward()`` itself. Out: each such node with what is written
since. Whether a formula of eager's reads that is not known here (``runtime/saved_by_eager.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anyshape.autograd.memory import roots
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value, values_in
from anyshape.ops.gradients.backward import GRADIENTS, is_recorded, requires
from anyshape.ops.table import OpDef

Written = tuple[Node, frozenset[Value]]


def written_since(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Written]:
    owner = roots(graph, ops)
    for position, node in enumerate(graph.nodes):
        if node.op == GRADIENTS:
            yield from _in_front_of(graph, ops, owner, position, node.args[0])


def written_by_the_end(graph: Graph, ops: Mapping[str, OpDef]) -> Iterator[Written]:
    """The same of a graph whose results are gone through behind it."""
    owner, results = roots(graph, ops), tuple(filter(requires, values_in(graph.outputs)))
    yield from _in_front_of(graph, ops, owner, len(graph.nodes), results)


def _in_front_of(
    graph: Graph, ops: Mapping[str, OpDef], owner: Mapping[Value, Value], end: int, of: Arg
) -> Iterator[Written]:
    """What lies in front of the ``gradients`` of some values, at ``end``."""
    written: set[Value] = set()
    needed = {owner.get(v, v) for v in values_in(of)}
    for node in reversed(graph.nodes[:end]):
        row = ops.get(node.op)
        makes = {owner.get(v, v) for v in node.outputs if requires(v)}
        if is_recorded(node) and not needed.isdisjoint(makes):
            tensors = [v for v in (*node.inputs(), *node.outputs) if _is_tensor(v)]
            touched = frozenset(v for v in tensors if owner.get(v, v) in written)
            if touched and row is not None and (row.mutates or row.alias != "view"):
                yield node, touched
            needed.update(owner.get(v, v) for v in node.inputs() if requires(v))
        if row is not None and row.mutates:
            written.update(owner.get(v, v) for v in values_in(node.args[:1]))


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)
