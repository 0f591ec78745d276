"""Outputs whose strides depend on which sizes are 0 and 1, where types do not say how.

Types have strides as if every size were above 1 (``ops/layout.py``). They are eager's at all sizes
where only views of arguments and row-major tensors are met on the way to an output; elsewhere, in
``x.T + x.T``, TensorIterator tells dimensions of one element apart by its own rules, and a returned
tensor shows them, as does ``y.view(y.shape)`` of a ``y`` that does not lie in rows. An argument
that has a stride of its own in a dimension of one element decides more of them: of ``x + x``, too;
so does a size of 0 before one of 1, of ``x + 1``. In: a captured graph. Out: the graph that makes
those outputs, from values whose strides are certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyshape.ir.established import midrun_numbers
from anyshape.ir.graph import (
    Graph,
    Node,
    TensorType,
    Value,
)
from anyshape.ir.parts import part_of
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import frozen, replace
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext, Undecided
from anyshape.ops.row_major_results import (
    DECIDED_BY_ONES,
    LIKE_WHERE_SMALL,
    is_of_rows,
    is_row_major,
    makes_rows,
)
from anyshape.ops.rules import PointwiseRule
from anyshape.ops.table import OpDef
from anyshape.symbolic import Expr, Facts


@frozen(eq=False)
class AmbiguousLayouts:
    """``graph`` has the inputs of the program, then values that it makes, and some of its outputs.
    ``outputs`` are their positions; ``where_empty`` those of them that lie otherwise only where
    they have a size of 0 and one of 1, however arguments lie."""

    graph: Graph
    outputs: tuple[int, ...]
    where_empty: frozenset[int] = frozenset()


def _returned(graph: Graph) -> list[tuple[int, Value]]:
    """The outputs that may lie otherwise than their types say, by position."""
    given = {entry.value for entry in graph.inputs}
    return [
        (position, output)
        for position, output in enumerate(graph.outputs)
        if isinstance(output, Value)
        and isinstance(output.type, TensorType)
        and output.tensor.strides not in ((), (1,))
        and output not in given
    ]


def _lines(graph: Graph, ops: Mapping[str, OpDef]) -> list[tuple[int, Value]]:
    """The outputs of one dimension, by position, that may have one element and are no views of
    arguments."""
    lines = [
        (position, output)
        for position, output in enumerate(graph.outputs)
        if isinstance(output, Value)
        and isinstance(output.type, TensorType)
        and output.tensor.strides == (1,)
        and (output.tensor.shape == (1,) or isinstance(output.tensor.shape[0], Expr))
    ]
    if not lines:
        return []
    given = {entry.value for entry in graph.inputs}
    makers = {value: node for node in graph.nodes for value in node.outputs}
    return [
        (position, output)
        for position, output in lines
        if (viewed := _viewed(output, makers, ops)) not in given
        and not _is_elementwise_line(viewed, makers, ops)
    ]


def _viewed(value: Value, makers: Mapping[Value, Node], ops: Mapping[str, OpDef]) -> Value:
    """What a value is a view of at last, or may be."""
    while (node := makers.get(value)) is not None and node.read:
        row = ops.get(node.op)
        if row is None or (row.alias == "none" and not row.mutates):
            break
        value = node.read[0]
    return value


def _is_elementwise(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    """Is there nothing but elementwise operators, which make no such lines?"""
    for node in graph.nodes:
        if node.op not in ops or ops[node.op].type.__class__ is not PointwiseRule:
            return False
    return True


def _is_elementwise_line(
    value: Value, makers: Mapping[Value, Node], ops: Mapping[str, OpDef]
) -> bool:
    """TensorIterator makes a line of one element row-major, whatever stride its operands have."""
    row = ops.get(makers[value].op) if value in makers else None
    return row is not None and row.type.__class__ is PointwiseRule and value.tensor.rank == 1


@only_where(
    lambda graph, ops, *rest: (
        bool(_returned(graph)) or (not _is_elementwise(graph, ops) and bool(_lines(graph, ops)))
    ),
    nothing=lambda graph, *rest: (None, None, None),
)
def ambiguous_layouts(
    graph: Graph, ops: Mapping[str, OpDef], copied: frozenset[Value] = frozenset()
) -> tuple[AmbiguousLayouts | None, AmbiguousLayouts | None, AmbiguousLayouts | None]:
    """Of arguments that lie as their types say, and of those that have strides of their own where
    sizes are 0 and 1; of these the results of one dimension, too. None where there are none, or
    where data or regions decide how they lie. ``copied`` are row-major unless they are empty; so
    they are then, too, in another number of dimensions."""
    given = {entry.value for entry in graph.inputs}
    returned, lines = _returned(graph), _lines(graph, ops)
    asked = {output for _, output in (*returned, *lines)}
    builder = Builder(TypeContext(graph.space, graph.facts.fork(), graph.hints), ops)
    certain, open_nodes = _decided_by_rows(graph, builder, asked)
    if asked <= certain:
        return None, None, None
    certain.update(
        value
        for node in open_nodes
        for value in copied.intersection(node.outputs)
        if value.tensor.rank != node.read[0].tensor.rank and is_row_major(builder, value)
    )
    looked = [_Looked.of(builder, node) for node in open_nodes]
    whole = _Whole(graph, builder, _by_data(graph))
    usual = whole.part(_certain(looked, certain | given), returned)
    known = _certain(looked, certain, where_empty=True)
    odd = whole.part(known, returned)
    if odd is not None:
        turning = _certain(looked, certain) - known
        nodes = [each.node for each in looked if known.issuperset(each.read)]
        last = turning.intersection(v for node in nodes for v in node.outputs)
        odd = replace(odd, where_empty=frozenset(p for p, v in returned if v in last))
    if not lines:
        return usual, odd, None
    return usual, odd, whole.part(_certain(looked, certain, lines=False), lines)


def _by_data(graph: Graph) -> set[Value]:
    """What has as many elements as data says."""
    return {value for node in graph.nodes if _counts(node) for value in node.outputs}


@frozen(eq=False)
class _Whole:
    """The captured graph, of which parts are taken; ``by_data`` is handed in to each, as zeros have
    others."""

    graph: Graph
    builder: Builder
    by_data: set[Value]

    def part(
        self, certain: set[Value], returned: Sequence[tuple[int, Value]]
    ) -> AmbiguousLayouts | None:
        """The graph of those results that are not ``certain``."""
        left = [(p, v) for p, v in returned if v not in certain and v not in self.by_data]
        if not left:
            return None
        positions, outputs = zip(*left)
        nodes = self._nodes(certain, outputs)
        if nodes is None:
            return None
        return AmbiguousLayouts(part_of(self.graph, nodes, outputs), positions)

    def _nodes(self, certain: set[Value], outputs: Sequence[Value]) -> list[Node] | None:
        """Those that make these outputs; None where one of them may not be done again."""
        wanted = set(outputs)
        nodes: list[Node] = []
        for node in reversed(self.graph.nodes):
            row = self.builder.ops.get(node.op)
            is_view = row is not None and row.alias == "view"
            if wanted.isdisjoint(node.outputs) or (
                certain.issuperset(node.outputs) and not is_view
            ):
                continue
            if not self.by_data.isdisjoint(node.outputs):
                continue
            if row is None or node.regions:
                return None
            if not (
                _is_of_torch(row) if row.guessed else _as_its_row_says(self.builder, row, node)
            ):
                return None
            nodes.append(node)
            wanted.update(node.inputs())
        return nodes[::-1]


def _counts(node: Node) -> bool:
    """Does data that it reads decide a size of what it makes?"""
    kinds = [v.type for v in node.outputs if isinstance(v.type, TensorType)]
    made = {n for kind in kinds for n in midrun_numbers(kind.shape)}
    if not made:
        return False
    given = [v.type.shape for v in node.inputs() if isinstance(v.type, TensorType)]
    return not made.issubset(midrun_numbers((*given, node.args, *node.kwargs.values())))


def _decided_by_rows(
    graph: Graph, builder: Builder, wanted: set[Value]
) -> tuple[set[Value], list[Node]]:
    """Of the values that ``wanted`` are made of: those whose strides are eager's however their
    arguments lie, and the nodes that make others. Nobody asks how what lies behind the first was
    made."""
    wanted, found, open_nodes = set(wanted), set[Value](), []
    for node in reversed(graph.nodes):
        row = builder.ops.get(node.op)
        if row is None or wanted.isdisjoint(node.outputs):
            continue
        if _is_of_one_layout(builder, row, node):
            found.update(v for v in node.outputs if not _is_tensor(v) or is_row_major(builder, v))
        if not found.issuperset(node.outputs):
            open_nodes.append(node)
            wanted.update(node.inputs())
    return found, open_nodes[::-1]


def _is_of_one_layout(builder: Builder, row: OpDef, node: Node) -> bool:
    copies = row.alias == "none" and node.op not in LIKE_WHERE_SMALL
    decided = row.mutates or node.op in DECIDED_BY_ONES
    if not copies or decided or _may_turn_where_empty(row, node, node.outputs[0]):
        return False
    return makes_rows(builder, row, node)


@frozen(eq=False)
class _Looked:
    """What one node says of the strides of its results. ``read``: the tensors that it reads, but
    those of no dimensions, which lie in one way; ``in_rows``: are they all row-major; ``as_first``:
    do the results lie as the first argument does?"""

    node: Node
    row: OpDef
    read: Sequence[Value]
    in_rows: bool
    as_first: bool
    by_ones: bool
    rows_made: Sequence[Value]

    @classmethod
    def of(cls, builder: Builder, node: Node) -> _Looked:
        row = builder.ops[node.op]
        read = _with_strides(node)
        in_rows = [is_row_major(builder, value) for value in read]
        as_first = row.alias == "view" or bool(row.mutates)
        by_ones = node.op in DECIDED_BY_ONES
        if as_first:
            by_ones = by_ones or (row.by_layout and not all(in_rows[:1]))
        rows_made = () if as_first else [v for v in node.outputs if is_row_major(builder, v)]
        return cls(node, row, read, all(in_rows), as_first, by_ones, rows_made)


def _certain(
    looked: Sequence[_Looked], known: set[Value], lines: bool = True, where_empty: bool = False
) -> set[Value]:
    """The values of these nodes, too, whose strides are eager's if those of ``known`` are;
    ``lines``: so are those of one dimension, as if they had several elements; ``where_empty``: also
    where a size is 0 and a later one 1."""
    found = set(known)
    for each in looked:
        node, row = each.node, each.row
        if each.by_ones:
            continue
        if each.as_first:
            if found.issuperset(each.read[:1]):
                found.update(node.outputs)
            continue
        found.update([value for value in node.outputs if not _is_tensor(value)])
        plain = each.in_rows and found.issuperset(each.read)
        if plain or (lines and row.alias == "none" and _are_lines(node)):
            found.update(
                value
                for value in each.rows_made
                if not where_empty or not _may_turn_where_empty(row, node, value)
            )
    return found


def _with_strides(node: Node) -> list[Value]:
    """The tensors that the node reads; one of no dimensions lies in one way."""
    return [v for v in node.read if v.type.__class__ is TensorType and v.type.shape]


def _are_lines(node: Node) -> bool:
    """New tensors of one dimension lie in one way, but for the stride of a single element."""
    return all(value.tensor.rank <= 1 for value in node.outputs if _is_tensor(value))


def _may_turn_where_empty(row: OpDef, node: Node, value: Value) -> bool:
    """Of row-major operands of two shapes, a number among them, TensorIterator sorts dimensions by
    stride and then by size: one without elements lies inside of a later one of one element."""
    if not isinstance(row.type, PointwiseRule) or not _is_tensor(value):
        return False
    shapes = [v.shape for v in node.inputs() if _is_tensor(v)]
    if len(shapes) > 1 and all(shape == value.shape for shape in shapes):
        return False
    empty = [d for d, size in enumerate(value.shape) if isinstance(size, Expr) or size == 0]
    return any(isinstance(n, Expr) or n == 1 for d in empty[:1] for n in value.shape[d + 1 :])


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def _is_of_torch(row: OpDef) -> bool:
    """May anybody run it once more? Not an operator of the program's own."""
    path = row.torch.split(".")
    return path[0] == "torch" and (path[1] != "ops" or path[2] == "aten")


def _as_its_row_says(builder: Builder, row: OpDef, node: Node) -> bool:
    """Are the types those of the row? Capture gives what it spells out the strides of the whole.
    Of a size that is found to be 1 later on nothing was known where the types were made, nor of one
    that ``kron`` itself asks for."""
    if (
        node.op in DECIDED_BY_ONES
        or is_of_rows(builder, row, node)
        or _types_agree(builder, row, node)
    ):
        return True
    cx = builder.cx
    return _types_agree(
        Builder(TypeContext(cx.space, Facts(cx.space), cx.hints), builder.ops), row, node
    )


def _types_agree(builder: Builder, row: OpDef, node: Node) -> bool:
    try:
        types = builder.type_of(row, node.args, node.kwargs)
    except (OpError, Undecided, LookupError):
        return False
    made = types if isinstance(types, tuple) else (types,)
    pairs = zip(made, node.outputs, strict=True)
    return all(_lie_alike(builder, t, v.tensor) for t, v in pairs if isinstance(t, TensorType))


def _lie_alike(builder: Builder, one: TensorType, other: TensorType) -> bool:
    """Have they the same strides by what is known now? A dimension of one element tells nothing."""
    if one.strides == other.strides:
        return True
    same = builder.cx.same
    rows = zip(other.shape, one.strides, other.strides, strict=True)
    return all(same(size, 1) or same(a, b) for size, a, b in rows)
