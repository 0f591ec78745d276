"""Indices that data decides are tested before anything is read or written with them.

    %y = gather(%x, 0, %i)
    ->
    %bad = any(logical_or(lt(%i, 0), ge(%i, n))); check_false(%bad); %y = gather(%x, 0, %i)

A kernel would read past its buffer where eager raises. Indices whose range is known (an
``arange``, an ``argmax``, a sort's places) need no test where the facts say that the range fits.
Integers that data decides are tested in the same way before anything is divided by them: eager
raises where one is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from anyshape.ir.dtypes import bool_
from anyshape.ir.graph import Arg, Graph, Node, TensorType, Value
from anyshape.ops.build import Builder
from anyshape.ops.rules import dim_of
from anyshape.ops.table import OpDef, Structural
from anyshape.passes.decompose import check_false
from anyshape.passes.rebuild import Reader, Rebuilding, rebuild
from anyshape.symbolic import Condition, Dim, Expr, ge, le, maximum, minimum

Range = tuple[Dim, Dim]  # least and greatest, both inclusive


@dataclass(frozen=True, slots=True)
class Place:
    """``index`` must lie in ``0 <= i < size``, or from ``-size`` where negative ones count back."""

    index: Value
    size: Dim
    negative: bool


def check_places(graph: Graph, ops: Mapping[str, OpDef]) -> Graph:
    """The graph with a check before each read or write at places that data decides."""
    reader = Reader.of(graph)
    builder = Builder(reader.cx, ops)
    builder.reserve(value.name for node in graph.nodes for value in node.outputs)
    builder.reserve(entry.value.name for entry in graph.inputs)
    return rebuild(graph, _Checker(builder, ops).visit, reader=reader)


@dataclass(slots=True, eq=False)
class _Checker:
    builder: Builder
    ops: Mapping[str, OpDef]
    producers: dict[Value, tuple[Node, int]] = field(default_factory=dict)
    checked: set[tuple[Value, Dim, bool]] = field(default_factory=set)
    divisors: set[Value] = field(default_factory=set)

    def visit(self, node: Node, out: Rebuilding) -> tuple[Arg, ...]:
        row = self.ops.get(node.op)
        if row is not None and isinstance(row.lower, Structural) and node.op in PLACES:
            for place in PLACES[node.op](node):
                self._check(place, node, out)
        if node.op in DIVISORS:
            self._check_divisor(node.args[DIVISORS[node.op]], node, out)
        for position, value in enumerate(node.outputs):
            self.producers[value] = node, position
        return out.emit(node)

    def _check(self, place: Place, node: Node, out: Rebuilding) -> None:
        key = (place.index, place.size, place.negative)
        if key in self.checked or place.index.dtype is bool_ or self._fits(place):
            return
        self.checked.add(key)
        low = -place.size if place.negative else 0
        b = self._builder_at(node)
        self._refuse(b.logical_or(b.lt(place.index, low), b.ge(place.index, place.size)), out)

    def _check_divisor(self, divisor: Arg, node: Node, out: Rebuilding) -> None:
        made = node.outputs[0].type
        assert isinstance(made, TensorType)
        if not isinstance(divisor, Value) or not made.dtype.is_integral:
            return
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

    def _fits(self, place: Place) -> bool:
        found = self._range(place.index)
        if found is None:
            return False
        low, high = found
        least = -place.size if place.negative else 0
        return self._holds(ge(low, least)) and self._holds(le(high, place.size - 1))

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
        rule = RANGES.get(node.op)
        return rule(self._range, node, position) if rule is not None else None

    def _mask_of(self, node: Node) -> Dim | None:
        """The size of the dimension of a mask along which the node tells where it is true."""
        places, column = node.args[0], node.args[-1]
        if node.op != "select" or node.args[1] != 1 or not isinstance(places, Value):
            return None
        if places not in self.producers:
            return None
        maker, _ = self.producers[places]
        mask = maker.args[0]
        if maker.op != "nonzero" or not isinstance(mask, Value) or not isinstance(column, int):
            return None
        return mask.shape[column]


def _along(node: Node) -> Iterator[Place]:
    x, dim, index = node.args[:3]
    assert isinstance(x, Value) and isinstance(index, Value)
    size = x.shape[dim_of(dim, len(x.shape))] if x.shape else 1
    yield Place(index, size, negative=False)


def _by_indices(node: Node) -> Iterator[Place]:
    x, indices = node.args[:2]
    assert isinstance(x, Value) and isinstance(indices, tuple)
    for dim, index in enumerate(indices):
        if isinstance(index, Value):
            yield Place(index, x.shape[dim], negative=True)


# Which rows read or write at places that an operand holds.
PLACES: Mapping[str, Callable[[Node], Iterator[Place]]] = {
    **dict.fromkeys(("index_select", "gather", "scatter", "scatter_reduce", "index_add"), _along),
    **dict.fromkeys(("index", "index_put"), _by_indices),
}

# Which operand a row divides by.
DIVISORS: Mapping[str, int] = {
    **dict.fromkeys(("div", "floor_divide", "remainder", "fmod"), 1),
    **dict.fromkeys(("rfloordiv", "rmod"), 0),
}

RangeOf = Callable[[Arg], Range | None]


def _same(range_of: RangeOf, node: Node, position: int) -> Range | None:
    return range_of(node.args[0])


def _arange(range_of: RangeOf, node: Node, position: int) -> Range | None:
    length, start, step = node.args[:3]
    if not isinstance(step, int) or not isinstance(start, (int, Expr)):
        return None
    assert isinstance(length, (int, Expr))
    last = start + (length - 1) * step
    return (start, last) if step > 0 else (last, start)


def _full(range_of: RangeOf, node: Node, position: int) -> Range | None:
    number = node.args[1]
    return (number, number) if isinstance(number, (int, Expr)) else None


def _arg_reduction(range_of: RangeOf, node: Node, position: int) -> Range | None:
    x, dims = node.args[:2]
    assert isinstance(x, Value)
    size: Dim = 1
    for dim in dims if isinstance(dims, tuple) else range(len(x.shape)):
        size = size * x.shape[dim_of(dim, len(x.shape))]
    return 0, size - 1


def _order(range_of: RangeOf, node: Node, position: int) -> Range | None:
    """Sorts and top-k: the second result, or the only one, is places along ``dim``."""
    if position == 0 and len(node.outputs) > 1:
        return None
    x = node.args[0]
    assert isinstance(x, Value)
    dim: Arg
    dim = next((a for a in node.args[1:] if isinstance(a, int) and not isinstance(a, bool)), -1)
    if node.op == "topk":
        dim = node.args[2] if len(node.args) > 2 else -1
    size = x.shape[dim_of(dim, len(x.shape))] if x.shape else 1
    return 0, size - 1


def _sum(range_of: RangeOf, node: Node, position: int) -> Range | None:
    a, b = range_of(node.args[0]), range_of(node.args[1])
    if a is None or b is None or node.kwargs.get("alpha", 1) != 1:
        return None
    if node.op == "rsub":
        a, b = b, a
    if node.op in ("sub", "rsub"):
        return a[0] - b[1], a[1] - b[0]
    return a[0] + b[0], a[1] + b[1]


def _either(range_of: RangeOf, node: Node, position: int) -> Range | None:
    a, b = range_of(node.args[1]), range_of(node.args[2])
    if a is None or b is None:
        return None
    return minimum(a[0], b[0]), maximum(a[1], b[1])


def _cast(range_of: RangeOf, node: Node, position: int) -> Range | None:
    target = node.outputs[0].type
    if not isinstance(target, TensorType) or not target.dtype.is_integral:
        return None
    return range_of(node.args[0]) if target.dtype.size_bytes >= 4 else None


# The range of an integer result, where its operands tell it.
RANGES: Mapping[str, Callable[[RangeOf, Node, int], Range | None]] = {
    **dict.fromkeys(
        ("reshape", "expand", "permute", "slice", "select", "unsqueeze", "squeeze", "flip", "clone",
         "diagonal", "unfold"), _same
    ),
    "arange": _arange,
    "full": _full,
    **dict.fromkeys(("argmax", "argmin"), _arg_reduction),
    **dict.fromkeys(("topk", "sort", "argsort"), _order),
    **dict.fromkeys(("add", "sub", "rsub"), _sum),
    "where": _either,
    "to_dtype": _cast,
}  # fmt: skip
