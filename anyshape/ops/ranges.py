"""Operands that are indices, and ranges of integer results: the columns ``data_indices`` and
``range``.

A rule for a range takes a function that gives the range of an operand, the node and which of its
results is asked for; it gives the least and the greatest value, or None where nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from anyshape.ir.graph import Node, TensorType, Value
from anyshape.ops.rules import dim_of
from anyshape.ops.table import DataIndex, Range, RangeOf, RangeRule
from anyshape.symbolic import Dim, Expr, maximum, minimum


def indices_along(node: Node) -> Iterator[DataIndex]:
    x, dim, index = node.args[:3]
    assert isinstance(x, Value) and isinstance(index, Value)
    size = x.shape[dim_of(dim, len(x.shape))] if x.shape else 1
    yield DataIndex(index, size, negative=False)


def indices_by_dimension(node: Node) -> Iterator[DataIndex]:
    x, indices = node.args[:2]
    assert isinstance(x, Value) and isinstance(indices, tuple)
    for dim, index in enumerate(indices):
        if isinstance(index, Value):
            yield DataIndex(index, x.shape[dim], negative=True)


def same(range_of: RangeOf, node: Node, position: int) -> Range | None:
    return range_of(node.args[0])


def of_arange(range_of: RangeOf, node: Node, position: int) -> Range | None:
    length, start, step = node.args[:3]
    if not isinstance(step, int) or not isinstance(start, (int, Expr)):
        return None
    assert isinstance(length, (int, Expr))
    last = start + (length - 1) * step
    return (start, last) if step > 0 else (last, start)


def of_number(range_of: RangeOf, node: Node, position: int) -> Range | None:
    number = node.args[1]
    return (number, number) if isinstance(number, (int, Expr)) else None


def of_arg_reduction(range_of: RangeOf, node: Node, position: int) -> Range | None:
    x, dims = node.args[:2]
    assert isinstance(x, Value)
    size: Dim = 1
    for dim in dims if isinstance(dims, tuple) else range(len(x.shape)):
        size = size * x.shape[dim_of(dim, len(x.shape))]
    return 0, size - 1


def of_order(dim_at: int) -> RangeRule:
    """Of sorts and top-k along the argument at ``dim_at``: the second result, or the only one, is
    indices along it."""

    def rule(range_of: RangeOf, node: Node, position: int) -> Range | None:
        if position == 0 and len(node.outputs) > 1:
            return None
        x = node.args[0]
        assert isinstance(x, Value)
        dim = node.args[dim_at] if len(node.args) > dim_at else -1
        return 0, (x.shape[dim_of(dim, len(x.shape))] if x.shape else 1) - 1

    return rule


def of_sum(range_of: RangeOf, node: Node, position: int) -> Range | None:
    a, b = range_of(node.args[0]), range_of(node.args[1])
    if a is None or b is None or node.kwargs.get("alpha", 1) != 1:
        return None
    return a[0] + b[0], a[1] + b[1]


def of_difference(left: int, right: int) -> RangeRule:
    """Of the argument at ``left`` less the one at ``right``."""

    def rule(range_of: RangeOf, node: Node, position: int) -> Range | None:
        a, b = range_of(node.args[left]), range_of(node.args[right])
        if a is None or b is None or node.kwargs.get("alpha", 1) != 1:
            return None
        return a[0] - b[1], a[1] - b[0]

    return rule


def of_where(range_of: RangeOf, node: Node, position: int) -> Range | None:
    a, b = range_of(node.args[1]), range_of(node.args[2])
    if a is None or b is None:
        return None
    return minimum(a[0], b[0]), maximum(a[1], b[1])


def of_cast(range_of: RangeOf, node: Node, position: int) -> Range | None:
    target = node.outputs[0].type
    if not isinstance(target, TensorType) or not target.dtype.is_integral:
        return None
    return range_of(node.args[0]) if target.dtype.size_bytes >= 4 else None
