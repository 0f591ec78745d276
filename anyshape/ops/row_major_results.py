"""Which operators make row-major results, however their arguments lie.

In: a node, and the builder whose facts its type rule may ask. Out: whether the rule of its row
gives row-major strides to arguments that are laid out in other ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyshape.ir.graph import Node, TensorType, Value, map_values, row_major
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, Undecided
from anyshape.ops.known_types import answered
from anyshape.ops.layout import (
    Shape,
    channels_last_strides,
    contiguous_strides,
    strides_in_order,
)
from anyshape.ops.rules import PointwiseRule, RowMajorRule
from anyshape.ops.table import OpDef
from anyshape.symbolic import Dim, eq

LED = frozenset({"add", "sub", "mul", "div", "lerp", "addcmul", "addcdiv"})
"""Operators whose results lie as the first argument does, if that has all elements in order."""
DECIDED_BY_ONES = frozenset({"einsum", "kron"})
"""Operators whose results lie otherwise where a size is 1, though every rule says rows: one does
other work then, the other gives a view of a product that lies in rows only if nothing is 1."""
LIKE_WHERE_SMALL = frozenset({"roll", "rms_norm", "matrix_exp"})
"""Operators of which eager makes row-major results, but leaves an empty tensor as it lies, and
``matrix_exp`` matrices of one element, too. Their type rules say so where such sizes are known."""


def makes_rows(builder: Builder, row: OpDef, node: Node, *, images: bool = True) -> bool:
    """Are the results row-major however the arguments lie? Asked with ``images`` whose channels are
    innermost, which says most, with rows in another order, and with all of them turned."""
    if isinstance(row.type, RowMajorRule):
        return True
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
    of_ones = _with_own_strides_of_ones(supposing, node)
    if of_ones and row.guessed:  # which does not tell, and costs many samples
        return False
    if not all(_of_arguments(supposing, row, node, lie) for lie in ways):
        return False
    return not of_ones or _gives_rows(supposing, row, node, of_ones)


def _with_own_strides_of_ones(builder: Builder, node: Node) -> dict[Value, TensorType]:
    """The arguments with strides of their own in dimensions of one element, which a result may
    have too: they are in no order that could be turned, those of lines, and those known to be of
    one element."""
    are_lines = all(
        value.tensor.rank <= 1
        for value in (*node.inputs(), *node.outputs)
        if isinstance(value.type, TensorType)
    )
    others: dict[Value, TensorType] = {}
    for value in node.inputs():
        if isinstance(value.type, TensorType):
            kind = value.tensor
            ones = [_may_be_one(builder, size, are_lines) for size in kind.shape]
            if any(ones):
                others[value] = replace(
                    kind,
                    shape=tuple([1 if one else size for size, one in zip(kind.shape, ones)]),
                    strides=tuple([OWN if one else n for n, one in zip(kind.strides, ones)]),
                )
    return others


def _may_be_one(builder: Builder, size: Dim, is_line: bool) -> bool:
    if isinstance(size, int):
        return size == 1
    known = builder.cx.known(eq(size, 1))
    return known is True or (is_line and known is None)


OWN = 2**61 - 1
"""A stride that no size gives: of a dimension of one element any stride is right."""


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
    others = {
        value: replace(value.tensor, strides=lie(value.shape))
        for value in node.inputs()
        if isinstance(value.type, TensorType)
    }
    return _gives_rows(builder, row, node, others)


def _gives_rows(
    builder: Builder, row: OpDef, node: Node, types: Mapping[Value, TensorType]
) -> bool:
    """Are the results row-major of arguments of other types?"""
    others = {value: Value(value.name, kind) for value, kind in types.items()}
    args = tuple(map_values(arg, lambda v: others.get(v, v)) for arg in node.args)
    kwargs = {k: map_values(arg, lambda v: others.get(v, v)) for k, arg in node.kwargs.items()}
    try:
        made = builder.type_of(row, args, kwargs)
    except (OpError, Undecided, LookupError):
        return False
    made = made if isinstance(made, tuple) else (made,)
    return all(not isinstance(t, TensorType) or t.strides == row_major(t.shape) for t in made)
