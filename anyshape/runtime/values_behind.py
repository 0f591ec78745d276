"""What some results of a graph are made of, and what is made of some of its inputs.

In: a graph, and some of its outputs. Out: the values behind them, and those in whose memory these
may lie. Or: some inputs. Out: whether an operator may refuse what is made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from anyshape.ir.graph import Arg, Graph, Value, values_in
from anyshape.ops import OPS


def values_behind(
    graph: Graph, outputs: Sequence[Arg], given: Collection[Value] = ()
) -> set[Value]:
    """What these outputs are made of, and what may share memory with that. Of what is given,
    nothing is asked but itself."""
    root = _roots(graph)
    found = {root(value) for output in outputs for value in values_in(output)}
    for node in reversed(graph.nodes):
        row = OPS.get(node.op)
        made = (*node.outputs, *(node.read[:1] if row is not None and row.mutates else ()))
        if row is None or not found.isdisjoint(root(v) for v in made if v not in given):
            found.update(map(root, node.read))
    lying = (value for node in graph.nodes for value in node.outputs)
    return {value for value in (*lying, *found) if root(value) in found}


def may_refuse(graph: Graph, written: Collection[Value]) -> bool:
    """Does an operator read what is made of these inputs that may refuse other values of it?"""
    root = _roots(graph)
    touched = set(map(root, written))
    for node in graph.nodes:
        row = OPS.get(node.op)
        if not touched.isdisjoint(map(root, node.inputs())):
            if row is None or row.raises or row.guessed:
                return True
            touched.update(map(root, node.outputs))
            touched.update(map(root, node.read[:1] if row.mutates else ()))
    return False


def _roots(graph: Graph) -> Callable[[Value], Value]:
    """In whose memory a value may lie."""
    owner: dict[Value, Value] = {}

    def root(value: Value) -> Value:
        while value in owner:
            value = owner[value]
        return value

    for node in graph.nodes:
        row, first = OPS.get(node.op), next(node.inputs(), None)
        if row is not None and first is not None and (row.alias != "none" or row.mutates):
            owner.update((v, root(first)) for v in node.outputs if root(v) is not root(first))
    return root
