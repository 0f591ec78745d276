"""Small cleanings of graphs: common subexpressions, dead code, casts and copies for nothing.

%b = to_dtype(%a, float32)   where %a is float32   ->   %a
%c = add(%a, 1); %d = add(%a, 1)                    ->   %c for both
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from anyshape.ir.graph import Arg, Check, Graph, Node, ScalarType, Value, values_in
from anyshape.ops.table import OpDef
from anyshape.passes.outputs import escaping
from anyshape.passes.rebuild import Rebuilding, rebuild


def merge_equal_nodes(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Common subexpression elimination: one node for the same operator on the same arguments.

    Two tensors that the caller gets stay two: in eager they share no memory.
    """
    seen: dict[Hashable, tuple[Value, ...]] = {}
    returned = escaping(graph, ops)
    handed_out: set[Hashable] = set()

    def merge(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        if not is_pure(node, ops):
            return out.emit(node)
        key = (node.op, _key(node.args), _key(tuple(sorted(node.kwargs.items()))))
        if not returned.isdisjoint(node.outputs):
            if key in handed_out:
                return out.emit(node)
            handed_out.add(key)
        earlier = seen.get(key)
        if earlier is None or _sizes_made(earlier) != _sizes_made(node.outputs):
            seen[key] = node.outputs
            return out.emit(node)
        return earlier

    return rebuild(graph, merge)


def _key(arg: Arg) -> Hashable:
    """Equal for equal arguments only: 1, 1.0, True, 0.0 and -0.0 all differ."""
    if isinstance(arg, tuple):
        return tuple(map(_key, arg))
    if isinstance(arg, slice):
        return ("slice", _key(arg.start), _key(arg.stop), _key(arg.step))
    if isinstance(arg, (bool, int, float, complex, str)):
        return (type(arg), repr(arg))
    return arg


def is_pure(node: Node, ops: Mapping[str, OpDef]) -> bool:
    """May the node be removed, merged, moved? Unknown operators and readers of data may not."""
    row = ops.get(node.op)
    if row is None or row.random or row.effect or row.mutates:
        return False
    return not any(isinstance(value.type, ScalarType) for value in node.outputs)


def remove_dead_nodes(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Drops pure nodes that nothing reads; a size that is needed keeps its maker."""
    live: set[Value] = set(values_in(graph.outputs))
    symbols = _symbols_needed(graph)
    kept: list[tuple[int, Node]] = []
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        binds = any(_makes_symbol(value) & symbols for value in node.outputs)
        if binds or not is_pure(node, ops) or any(value in live for value in node.outputs):
            live.update(node.inputs())
            kept.append((index, node))
    kept.reverse()
    if len(kept) == len(graph.nodes):
        return graph
    position = {index: place for place, (index, _) in enumerate(kept)}
    checks = tuple(
        Check(c.condition, c.message, _moved(c.after, position), c.location) for c in graph.checks
    )
    return replace(graph, nodes=tuple(node for _, node in kept), checks=checks)


def _moved(after: int, position: Mapping[int, int]) -> int:
    """The number of kept nodes among the first ``after``."""
    for index in range(after - 1, -1, -1):
        if index in position:
            return position[index] + 1
    return 0


def _symbols_needed(graph: Graph) -> frozenset[object]:
    return frozenset(
        symbol
        for node in graph.nodes
        for value in node.outputs
        if not isinstance(value.type, ScalarType)
        for dim in value.type.shape
        if not isinstance(dim, int)
        for symbol in dim.symbols
        if symbol.knowledge == "midrun"
    ) | frozenset(
        symbol
        for check in graph.checks
        for symbol in check.condition.symbols
        if symbol.knowledge == "midrun"
    )


def _sizes_made(values: tuple[Value, ...]) -> set[object]:
    """The sizes that these values are the first to have: a node that is dropped binds none."""
    return set[object]().union(*map(_makes_symbol, values))


def _makes_symbol(value: Value) -> set[object]:
    if isinstance(value.type, ScalarType):
        return set()
    symbols = (dim.symbol for dim in value.type.shape if not isinstance(dim, int))
    return {symbol for symbol in symbols if symbol is not None and symbol.knowledge == "midrun"}


def remove_identities(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Casts to the same dtype, and views to the same shape, are their input.

    A cast that is returned copies; of a view that is, ``keep-outputs-apart`` makes an object again.
    """
    returned = escaping(graph, ops)

    def shorten(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        source = node.args[0] if node.args else None
        if (
            node.op in IDENTITY_ROWS
            and isinstance(source, Value)
            and source.type == node.outputs[0].type
            and not (node.op == "to_dtype" and node.outputs[0] in returned)
        ):
            return (source,)
        return out.emit(node)

    return rebuild(graph, shorten)


# Rows that give back their first argument's elements in order: the same type means the same value.
IDENTITY_ROWS = frozenset({"to_dtype", "expand", "reshape"})
