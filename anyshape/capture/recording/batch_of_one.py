"""A batch of one image whose channels lie innermost, which eager takes for row-major.

    y = x.transpose(1, 2).view(n, c, h, w); conv2d(y, weight)

In: the arguments of a row that asks in which order an image lies. Out: the same, copied row-major
where eager sees no channels-last image: a view of one batch gives the batch the stride of the
channels, and torch's ``suggest_memory_format`` wants a larger one. At every other size the stride
is what the form says; so the size of such a batch is guarded, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anyshape.ir.graph import Node, TensorType, Value
from anyshape.ops.build import Builder
from anyshape.ops.context import Undecided
from anyshape.ops.layout import suggests_channels_last, view_strides
from anyshape.ops.rules import is_tensor
from anyshape.ops.table import OPS, Pointwise
from anyshape.symbolic import eq

VIEWS = frozenset("view reshape unflatten view_as reshape_as".split())
KEEPERS = frozenset("clone to_dtype".split())
BY_ORDER = frozenset(
    """
conv2d conv3d conv_transpose2d conv_transpose3d max_pool2d max_pool3d torch_max_pool2d
torch_max_pool3d max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d
adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d interpolate
group_norm torch_pad cat channel_shuffle pixel_unshuffle
""".split()
)
"""Rows whose result lies in the order that eager finds in their first argument."""


def as_eager_sees(builder: Builder, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of row ``name``, a batch of one in the order in which eager sees it."""
    if name not in BY_ORDER or not args:
        return args
    first = args[0]
    if isinstance(first, tuple):
        return (tuple([_seen(builder, x) for x in first]), *args[1:])
    return (_seen(builder, first), *args[1:])


def _seen(builder: Builder, x: Any) -> Any:
    cx = builder.cx
    if not is_tensor(x) or x.type.rank not in (4, 5) or not suggests_channels_last(cx, x.type):
        return x
    if not _is_view_of_channels(builder, x):
        return x
    try:
        one = cx.decide(eq(x.shape[0], 1)) and not all(
            cx.decide(eq(size, 1)) for size in x.shape[2:]
        )
    except Undecided:
        return x
    return builder.call("clone", x, memory_format="contiguous_format") if one else x


def _is_view_of_channels(builder: Builder, x: Value) -> bool:
    """Does the batch get the stride of the channels where it is one?"""
    node = builder.makers.get(x)
    if node is None:
        return False
    if node.op in VIEWS:
        return _joins_the_channels(builder, node)
    if node.op == "slice" and node.args[1] != 0:
        return _is_view_of_channels(builder, node.read[0])
    images = [value for value in node.read if is_tensor(value) and value.shape == x.shape]
    keeps = node.op in KEEPERS or _sorts_strides(node, len(images))
    return bool(images) and keeps and _is_view_of_channels(builder, images[0])


def _sorts_strides(node: Node, images: int) -> bool:
    """Does TensorIterator sort the strides: an operand has another shape, if only a number's?"""
    row = OPS.get(node.op)
    if row is None or not isinstance(row.lower, Pointwise):
        return False
    return row.signature.names[1:2] == ("other",) and images < 2


def _joins_the_channels(builder: Builder, node: Node) -> bool:
    source, made = node.read[0].tensor, node.output.tensor
    if not source.shape or not builder.cx.same(source.shape[0], made.shape[0]):
        return False
    strides = view_strides(builder.cx, _of_one(source), (1, *made.shape[1:]))
    return strides is not None and strides[0] == made.shape[1]


def _of_one(t: TensorType) -> TensorType:
    sizes: Sequence[Any] = t.shape
    return replace(t, shape=(1, *sizes[1:]))
