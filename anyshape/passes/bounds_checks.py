"""Indices that data decides are tested before anything is read or written with them.

    %y = gather(%x, 0, %i)
    ->
    %bad = any(logical_or(lt(%i, 0), ge(%i, n))); check_false(%bad); %y = gather(%x, 0, %i)

A kernel would read past its buffer where eager raises. Indices whose range is known (an
``arange``, an ``argmax``, a sort's indices) need no test where the facts say that the range fits.
Indices that are one number, or all of a range, are no data: the host compares sizes.

    %i = full((m,), 0); %y = gather(%x, 0, %i)   ->   check(m == 0 or n >= 1); ...
Integers that data decides are tested in the same way before anything is divided by them: eager
raises where one is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import CHECK, HOST, Arg, Graph, Node, TensorType, Value, map_values
from anyshape.ir.shortcuts import only_where
from anyshape.nouns import mutable, replace
from anyshape.ops.build import Builder
from anyshape.ops.layout import numel
from anyshape.ops.table import DataIndex, Form, OpDef, Range, Structural, View
from anyshape.passes.decompose import check_false
from anyshape.passes.rebuild import Reader, Rebuilding, rebuild
from anyshape.symbolic import Condition, Dim, Expr, Symbol, all_of, any_of, eq, ge, le


def _reads_indices(graph: Graph, ops: Mapping[str, OpDef]) -> bool:
    rows = [ops[node.op] for node in graph.nodes if node.op in ops]
    return any(row.data_indices is not None or row.divisor is not None for row in rows)


@only_where(_reads_indices)
def check_bounds(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph with a check before each read or write at indices that data decides."""
    reader = Reader.of(graph)
    builder = Builder(reader.cx, ops)
    builder.reserve(graph)
    return rebuild(graph, _Checker(builder, ops).visit, reader=reader)


@mutable(eq=False)
class _Checker:
    builder: Builder
    ops: Mapping[str, OpDef]
    producers: dict[Value, tuple[Node, int]] = field(default_factory=dict)
    checked: set[tuple[Value, Dim, bool]] = field(default_factory=set)
    divisors: set[Value] = field(default_factory=set)
    trapped: dict[tuple[Value, Dim, bool], Value] = field(default_factory=dict)

    def visit(self, node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        row = self.ops.get(node.op)
        if row is not None and row.data_indices is not None:
            for index in row.data_indices(node):
                self._check(index, node, out)
            node = self._within(node, row, out)
        if row is not None and row.divisor is not None:
            self._check_divisor(node.args[row.divisor], node, out)
        for position, value in enumerate(node.outputs):
            self.producers[value] = node, position
        return out.emit(node)

    def _check(self, index: DataIndex, node: Node, out: Rebuilding) -> None:
        key = (index.value, index.size, index.negative)
        if key in self.checked or index.value.dtype is bool_ or self._fits(index):
            return
        self.checked.add(key)
        if (fits := self._by_sizes(index)) is not None:
            _test(fits, node, out)
            return
        if index.value.tensor.device != HOST:
            self._require_elements(index, node, out)
        low = -index.size if index.negative else 0
        b = self._builder_at(node)
        bad = b.logical_or(b.lt(index.value, low), b.ge(index.value, index.size))
        if index.value.tensor.device != HOST:
            self.trapped[key] = bad
        self._refuse(bad, out)

    def _require_elements(self, index: DataIndex, node: Node, out: Rebuilding) -> None:
        """Of a dimension that may be empty: no index exists in it, so that there is none to read
        instead of what is out of range."""
        some = any_of(eq(numel(index.value.shape), 0), ge(index.size, 1))
        if not self._holds(some) and not isinstance(some, bool):
            if all(s.knowledge != "midrun" for s in some.symbols):
                _test(some, node, out)

    def _within(self, node: Node, row: OpDef, out: Rebuilding) -> Node:
        """The node at indices that exist, where the host does not wait for the check."""
        assert row.data_indices is not None
        safe = {}
        for index in row.data_indices(node):
            bad = self.trapped.get((index.value, index.size, index.negative))
            if bad is not None:
                b = self._builder_at(node)
                safe[index.value] = b.where(bad, 0, index.value)
        out.nodes += self.builder.nodes
        self.builder.nodes.clear()
        args = tuple(map_values(arg, lambda value: safe.get(value, value)) for arg in node.args)
        return replace(node, args=args) if safe else node

    def _check_divisor(self, divisor: Arg, node: Node, out: Rebuilding) -> None:
        made = node.outputs[0].type
        assert isinstance(made, TensorType)
        if not isinstance(divisor, Value) or not made.dtype.is_integral or made.device != HOST:
            return  # other devices divide by zero without a word
        found = self._range(divisor)
        if divisor in self.divisors or (found is not None and self._holds(ge(found[0], 1))):
            return
        self.divisors.add(divisor)
        self._refuse(self._builder_at(node).eq(divisor, 0), out)

    def _builder_at(self, node: Node) -> Builder:
        self.builder.location, self.builder.modes = node.location, node.modes
        return self.builder

    def _refuse(self, bad: Value, out: Rebuilding) -> None:
        """A check that none of these is true."""
        check_false(self.builder, bad)
        out.nodes += self.builder.nodes
        self.builder.nodes.clear()

    def _fits(self, index: DataIndex) -> bool:
        found = self._range(index.value)
        return found is not None and all(map(self._holds, _inside(found, index)))

    def _by_sizes(self, index: DataIndex) -> Condition | None:
        """When indices that sizes alone say are in range; None where data says some, where none
        can be, where a device would have to tell the host, or where it differs from turn to turn
        of a loop: a check by the host is none of a native loop."""
        found, indices = self._range(index.value), index.value.tensor
        if found is None or not (found[0] == found[1] or self._is_whole_range(index.value)):
            return None
        fits = any_of(eq(numel(indices.shape), 0), all_of(*_inside(found, index)))
        if isinstance(fits, bool):
            return None
        on_host = indices.device == HOST or all(s.knowledge != "midrun" for s in fits.symbols)
        return fits if on_host and not any(map(_is_of_a_turn, fits.symbols)) else None

    def _is_whole_range(self, value: Value) -> bool:
        """Are the elements a range's, each once?"""
        while value in self.producers:
            node, _ = self.producers[value]
            lower, source = self.ops[node.op].lower, node.args[0]
            if not isinstance(lower, View) or not isinstance(source, Value):
                return lower == Structural(Form.ARANGE)
            if not self._holds(eq(numel(source.shape), numel(value.shape))):
                return False
            value = source
        return False

    def _holds(self, condition: Condition | bool) -> bool:
        return self.builder.cx.known(condition) is True

    def _range(self, value: Arg) -> Range | None:
        if isinstance(value, (int, Expr)):
            return value, value
        if not isinstance(value, Value) or value not in self.producers:
            return None
        node, position = self.producers[value]
        mask = self._mask_of(node)
        if mask is not None:
            return 0, mask - 1
        row = self.ops.get(node.op)
        if row is not None and isinstance(row.lower, View):
            return self._range(node.args[0])
        return None if row is None or row.range is None else row.range(self._range, node, position)

    def _mask_of(self, node: Node) -> Dim | None:
        """The size of the dimension of a mask along which the node tells where it is true."""
        indices, column = node.args[0], node.args[-1]
        if node.op != "select" or node.args[1] != 1 or not isinstance(indices, Value):
            return None
        if indices not in self.producers:
            return None
        maker, _ = self.producers[indices]
        mask = maker.args[0]
        if maker.op != "nonzero" or not isinstance(mask, Value) or not isinstance(column, int):
            return None
        return mask.shape[column]


def _is_of_a_turn(symbol: Symbol) -> bool:
    """Is it known where a loop's body is entered, and by no argument?"""
    return symbol.knowledge == "entry" and symbol.policy == "unbacked"


def _test(condition: Condition, node: Node, out: Rebuilding) -> None:
    """The host tests it before the node."""
    args = condition, "index out of range"
    out.nodes.append(Node(CHECK, args, {}, (), node.location, node.modes))


def _inside(found: Range, index: DataIndex) -> tuple[Condition | bool, Condition | bool]:
    """That the least and the greatest index exist."""
    least = -index.size if index.negative else 0
    return ge(found[0], least), le(found[1], index.size - 1)
