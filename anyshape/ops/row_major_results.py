"""Which operators make row-major results, however their arguments lie.

In: a node, and the builder whose facts its type rule may ask. Out: whether the rule of its row
gives row-major strides to arguments that are laid out in other ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anyshape.ir.graph import Node, TensorType, Value, map_values, row_major
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, Undecided
from anyshape.ops.known_types import answered
from anyshape.ops.layout import (
    Shape,
    channels_last_strides,
    contiguous_strides,
    strides_in_order,
)
from anyshape.ops.rules import PointwiseRule
from anyshape.ops.table import OpDef

LIKE_WHERE_EMPTY = frozenset({"roll", "rms_norm"})
"""Operators of which eager makes row-major results, but leaves an empty tensor as it lies. Their
type rules say so where a size is known to be 0."""


def makes_rows(builder: Builder, row: OpDef, node: Node, *, images: bool = True) -> bool:
    """Are the results row-major however the arguments lie? Asked with ``images`` whose channels are
    innermost, which says most, with rows in another order, and with all of them turned."""
    return not follows_operands(row, node) and asked_of_rule(builder, row, node, images=images)


def follows_operands(row: OpDef, node: Node) -> bool:
    """Is it seen without asking the rule that the result is turned where all arguments are? An
    elementwise result is, if an operand has its shape, of which no dimension is known to have one
    element: that operand tells all dimensions apart."""
    if not isinstance(row.type, PointwiseRule) or len(node.outputs) != 1:
        return False
    shape = node.outputs[0].shape
    if len(shape) < 2 or any(isinstance(n, int) and n < 2 for n in shape):
        return False
    return any(isinstance(v.type, TensorType) and v.shape == shape for v in node.inputs())


def is_of_rows(builder: Builder, row: OpDef, node: Node) -> bool:
    """Is it seen without asking the rule that these very arguments give these row-major results?
    Elementwise ones do, where all tensors are row-major, whatever is broadcast."""
    if not isinstance(row.type, PointwiseRule):
        return False
    tensors = (v for v in (*node.inputs(), *node.outputs) if isinstance(v.type, TensorType))
    return all(is_row_major(builder, v) for v in tensors)


def is_row_major(builder: Builder, value: Value) -> bool:
    """Has the tensor row-major strides by its type?"""
    kind = value.type
    return isinstance(kind, TensorType) and kind.strides == contiguous_strides(
        builder.cx, kind.shape
    )


def asked_of_rule(builder: Builder, row: OpDef, node: Node, *, images: bool = True) -> bool:
    """The long way of ``makes_rows``."""

    def ask() -> bool:
        return _is_of_rows_each_way(builder, row, node, images=images)

    return bool(answered(builder.cx, (row.name, "rows", images), node.args, node.kwargs, ask))


def _is_of_rows_each_way(builder: Builder, row: OpDef, node: Node, *, images: bool) -> bool:
    tensors = (value for value in node.inputs() if isinstance(value.type, TensorType))
    are_planes = all(len(value.shape) <= 2 for value in tensors)
    others = () if are_planes else (*((_channels_last,) if images else ()), _other_rows)
    ways, supposing = (*others, _turned), builder.supposing()
    return all(_of_arguments(supposing, row, node, lie) for lie in ways)


def _turned(shape: Shape) -> Shape:
    return strides_in_order(shape, range(len(shape)))


def _other_rows(shape: Shape) -> Shape:
    """The last dimension is innermost, as attention wants it."""
    last = len(shape) - 1
    return strides_in_order(shape, (last, *range(last)))


def _channels_last(shape: Shape) -> Shape:
    return channels_last_strides(shape) if len(shape) > 2 else _turned(shape)


def _of_arguments(builder: Builder, row: OpDef, node: Node, lie: Callable[[Shape], Shape]) -> bool:
    """Are the results row-major of arguments that lie so?"""
    others: dict[Value, Value] = {}
    for value in node.inputs():
        if isinstance(value.type, TensorType):
            others[value] = Value(value.name, replace(value.tensor, strides=lie(value.shape)))
    args = tuple(map_values(arg, lambda v: others.get(v, v)) for arg in node.args)
    kwargs = {k: map_values(arg, lambda v: others.get(v, v)) for k, arg in node.kwargs.items()}
    try:
        types = builder.type_of(row, args, kwargs)
    except (OpError, Undecided, LookupError):
        return False
    made = types if isinstance(types, tuple) else (types,)
    return all(not isinstance(t, TensorType) or t.strides == row_major(t.shape) for t in made)
