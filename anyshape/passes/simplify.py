"""Small cleanings of graphs: common subexpressions, dead code, casts and copies for nothing.

%b = to_dtype(%a, float32)   where %a is float32   ->   %a
%c = add(%a, 1); %d = add(%a, 1)                    ->   %c for both
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping

from anyshape.ir.graph import Arg, Graph, Node, ScalarType, TensorType, Value, values_in
from anyshape.ir.nesting import with_nested
from anyshape.ir.scalars import Scalar
from anyshape.nouns import replace
from anyshape.ops.table import OpDef, is_done_by_library
from anyshape.passes.outputs import escaping
from anyshape.passes.rebuild import Rebuilding, rebuild
from anyshape.symbolic import AllOf, AnyOf, Expr, Relation, Symbol, SymbolsSeen


def merge_equal_nodes(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Common subexpression elimination: one node for the same operator on the same arguments.

    Two tensors that the caller gets stay two: in eager they share no memory. Several results of one
    node are several tensors: the gradients of attention are made by three nodes, and by one. Of
    factories that differ in the layout alone (``zeros_like``) the caller gets its own.
    """
    seen: dict[Hashable, tuple[Value, ...]] = {}
    returned = escaping(graph, ops)
    handed_out: set[Hashable] = set()

    def merge(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        if not is_pure(node, ops):
            return out.emit(node)
        kwargs = _key(tuple(sorted(node.kwargs.items())))
        key = (node.op, _key(node.args), kwargs, _computed_again(node))
        if not returned.isdisjoint(node.outputs):
            given = [(key, i) for i, value in enumerate(node.outputs) if value in returned]
            if not handed_out.isdisjoint(given) or _lies_otherwise(node.outputs, seen.get(key)):
                return out.emit(node)
            handed_out.update(given)
        earlier = seen.get(key)
        if earlier is None or _sizes_made(earlier) != _sizes_made(node.outputs):
            seen[key] = node.outputs
            return out.emit(node)
        return earlier

    return rebuild(graph, merge)


def _lies_otherwise(values: tuple[Value, ...], earlier: tuple[Value, ...] | None) -> bool:
    return earlier is not None and [v.type for v in values] != [v.type for v in earlier]


def _computed_again(node: Node) -> int:
    """Which checkpoint's backward computes the node again: not what the forward computes."""
    return 0 if node.modes is None else min(node.modes.checkpoint, 0)


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
    """May the node be merged, moved? Unknown operators and readers of data may not."""
    row = ops.get(node.op)
    if row is None or row.resource is not None or row.mutates or node.regions:
        return False
    return not any(isinstance(value.type, ScalarType) for value in node.outputs)


def remove_dead_nodes(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Drops nodes that nothing reads, in a graph of core rows with the checks of their data; what a
    library does stays."""
    return _without_dead(
        graph, lambda node: is_pure(node, ops) and not is_done_by_library(ops[node.op])
    )


def remove_dead_core_nodes(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Drops nodes that nothing reads where it is known already that they raise for no data."""
    return _without_dead(graph, lambda node: is_pure(node, ops) and not _may_raise(node, ops))


def without_dead_reads(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Drops nodes that nothing reads, of a graph that has run already: what has raised for no data
    then, or was not computed at all, need not be looked at again."""
    return _without_dead(graph, lambda node: is_pure(node, ops) and not ops[node.op].random)


def _may_raise(node: Node, ops: Mapping[str, OpDef]) -> bool:
    """Is the node one that raises for some data, or made of nodes that nobody has looked at yet?"""
    row = ops[node.op]
    return row.raises or row.refuses is not None or is_done_by_library(row)


def _without_dead(graph: Graph, is_removable: Callable[[Node], bool]) -> Graph:
    """The graph without removable nodes that nothing reads; a size that is needed keeps the node
    that decides it."""
    live: set[Value] = set(values_in(graph.outputs))
    makers = _makers(graph)
    needed = SymbolsSeen()
    if makers:
        _note_sizes(needed, graph.outputs)
    kept: list[Node] = []
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        makes = not needed.symbols.keys().isdisjoint(makers.get(index, ()))
        if makes or not live.isdisjoint(node.outputs) or not is_removable(node):
            live.update(node.read)
            for inner in with_nested(node) if makers else ():
                shapes = (v.shape for v in inner.outputs if isinstance(v.type, TensorType))
                _note_sizes(needed, (*shapes, *_numbers_of(inner)))
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept))) if len(kept) < len(graph.nodes) else graph


def _numbers_of(node: Node) -> Iterator[Arg]:
    return (arg for arg in (*node.args, *node.kwargs.values()) if type(arg) is not Value)


def _makers(graph: Graph) -> dict[int, set[Symbol]]:
    """Which nodes are the first to have sizes that data decides, and which sizes."""
    seen: set[Symbol] = set()
    makers: dict[int, set[Symbol]] = {}
    for index, node in enumerate(graph.nodes):
        new = _sizes_made(node.outputs) - seen
        if new:
            makers[index] = new
            seen |= new
    return makers


def _note_sizes(found: SymbolsSeen, part: object) -> None:
    """Notes the sizes in an argument, a shape or a condition."""
    if isinstance(part, tuple):
        for item in part:
            _note_sizes(found, item)
    elif isinstance(part, (Expr, Relation, AllOf, AnyOf)):
        found.add(part)
    elif isinstance(part, slice):
        _note_sizes(found, (part.start, part.stop, part.step))
    elif isinstance(part, Scalar):
        _note_sizes(found, part.args)


def _sizes_made(values: tuple[Value, ...]) -> set[Symbol]:
    """The sizes that these values are whole dims of, which data decides."""
    return {
        symbol
        for value in values
        if isinstance(value.type, TensorType)
        for dim in value.type.shape
        if not isinstance(dim, int)
        and (symbol := dim.symbol) is not None
        and symbol.knowledge == "midrun"
    }


def remove_identities(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """Casts to the same dtype, and views to the same shape, are their input.

    A cast that is returned copies; of a view that is, ``separate-outputs`` makes an object again.
    """
    returned = escaping(graph, ops)

    def shorten(node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        source = node.args[0] if node.args else None
        if (
            isinstance(source, Value)
            and _is_cast_or_view(ops.get(node.op))
            and source.type == node.outputs[0].type
            and (node.op in MADE_AGAIN or node.outputs[0] not in returned)
        ):
            return (source,)
        return out.emit(node)

    return rebuild(graph, shorten)


MADE_AGAIN = frozenset({"expand", "reshape"})
"""Views whose strides are those of what ``separate-outputs`` makes of a result."""


def _is_cast_or_view(row: OpDef | None) -> bool:
    """Of its argument's type, is it no more than its argument? (A ``repeat`` is a copy.)"""
    return (
        row is not None and row.keeps_elements and (row.alias != "none" or row.name == "to_dtype")
    )
