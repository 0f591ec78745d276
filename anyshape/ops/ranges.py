"""Operands that are indices, ranges of integer results, and what results without dimensions hold:
the columns ``data_indices``, ``range`` and ``holds``.

A rule for a range takes a function that gives the range of an operand, the node and which of its
results is asked for; it gives the least and the greatest value, or None where nothing is known.
A rule for contents takes what says of a condition whether it is known to hold, what the operands
hold or are (sizes, quotients; None where nothing is known) and the keyword arguments; it gives the
size, the quotient or the condition that the result holds, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from anyshape.ir.graph import Node, TensorType, Value
from anyshape.nouns import replace
from anyshape.ops.rules import dim_of
from anyshape.ops.table import (
    Content,
    ContentRule,
    DataIndex,
    Holds,
    Keywords,
    Operands,
    Range,
    RangeOf,
    RangeRule,
    Ratio,
)
from anyshape.symbolic import Dim, Expr, floordiv, ge, le, maximum, minimum, mod


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


def of_floored(range_of: RangeOf, node: Node, position: int) -> Range | None:
    """Of a quotient, rounded down, by a number above 0."""
    found, divisor = range_of(node.args[0]), node.args[1]
    if found is None or not isinstance(divisor, int) or divisor <= 0 or not _whole(node):
        return None
    return floordiv(found[0], divisor), floordiv(found[1], divisor)


def of_rest(range_of: RangeOf, node: Node, position: int) -> Range | None:
    """Of what is left of a division by a number above 0, with its sign."""
    divisor = node.args[1]
    if not isinstance(divisor, int) or divisor <= 0 or not _whole(node):
        return None
    return 0, divisor - 1


def _whole(node: Node) -> bool:
    return node.outputs[0].dtype.is_integral


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


def content(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
    return operands[0]


def content_cast(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
    """Of a quotient the number, where it is whole; else it may be rounded once more."""
    first = operands[0]
    if not isinstance(first, Ratio):
        return first
    if first.denominator == 1 and _is_near(known, first):
        return first.numerator
    return replace(first, roundings=first.roundings + 1)


def content_by_fill(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
    return operands[1]


def content_negated(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
    return -operands[0] if _is_size(operands[0]) else None


def content_of_two(function: Callable[[Any, Any], Content | None]) -> ContentRule:
    """That function of two sizes."""

    def rule(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
        first, second = operands[:2]
        return function(first, second) if _is_size(first) and _is_size(second) else None

    return rule


def content_unscaled(function: Callable[[Any, Any], Any]) -> ContentRule:
    """That sum or difference of two sizes, or of a quotient and a size, where ``alpha`` is left
    alone."""

    def rule(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
        first, second = operands[:2]
        if first is None or second is None or kwargs.get("alpha", 1) != 1:
            return None
        if not isinstance(first, Ratio) and not isinstance(second, Ratio):
            made: Dim = function(first, second)
            return made
        if not isinstance(first, Ratio) or isinstance(second, Ratio):
            return None
        moved: Dim = function(first.numerator, second * first.denominator)
        return Ratio(moved, first.denominator, first.roundings + 1, (*first.largest, moved))

    return rule


def _is_size(content: Dim | Ratio | None) -> TypeGuard[Dim]:
    return content is not None and not isinstance(content, Ratio)


def _floor(a: Dim, b: Dim) -> Dim | None:
    return floordiv(a, b) if isinstance(b, int) and b > 0 else None


def _rest(a: Dim, b: Dim) -> Dim | None:
    return mod(a, b) if isinstance(b, int) and b > 0 else None


content_floored, content_rest = content_of_two(_floor), content_of_two(_rest)


def content_quotient(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
    """A quotient: the float, or the integer where it is the same however it is rounded, or rounded
    down."""
    mode, (first, second) = kwargs.get("rounding_mode"), operands[:2]
    if not _is_size(first):
        return None
    if mode is None:
        if not isinstance(second, int) or second <= 0:
            return None
        return Ratio(first, second, 1, (first,))
    if mode == "trunc" and not known(ge(first, 0)):
        return None
    return content_floored(known, operands, kwargs)


MOST_ROUNDINGS, LARGEST = 4, 2**21


def content_rounded(function: Callable[[Any, Any], Dim]) -> ContentRule:
    """The integer up or down from a quotient of float32 or float64, which is the exact quotient's:
    each rounding of a number v moves it by at most ``abs(v) * 2**-24``, all of them by less than
    the distance ``1 / denominator`` of a quotient that is no integer from the next one; and
    integers of this size are not rounded."""

    def rule(known: Holds, operands: Operands, kwargs: Keywords) -> Content | None:
        first = operands[0]
        if not isinstance(first, Ratio) or not _is_near(known, first):
            return None
        return Ratio(function(first.numerator, first.denominator), 1)

    return rule


def _is_near(known: Holds, ratio: Ratio) -> bool:
    """Are the float and the quotient between the same integers?"""
    if ratio.roundings > MOST_ROUNDINGS or ratio.denominator > LARGEST:
        return False
    return all(known(ge(n, -LARGEST)) and known(le(n, LARGEST)) for n in ratio.largest)


ROUNDED: Mapping[str, ContentRule] = {
    "floor": content_rounded(floordiv),
    "ceil": content_rounded(lambda a, b: -floordiv(-a, b)),
}
