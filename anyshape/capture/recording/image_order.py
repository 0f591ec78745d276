"""The order in which eager sees an image whose batch is one, where its type says another.

    y = x.transpose(1, 2).view(n, c, h, w); conv2d(y, weight)

In: the arguments of a row whose result lies as an argument does (``OpDef.image_order``). Out: the
same, copied row-major where eager sees no channels-last image: the type rule of a view gives a
batch of one the stride of the channels, and torch's ``suggest_memory_format`` wants a larger one.
At every other size the stride is what the form says; so the size of such a batch is guarded, and no
other.
"""

from __future__ import annotations

from typing import Any

from anyshape.capture.recording.retyping import Retyped
from anyshape.ir.graph import Node, TensorType, Value
from anyshape.nouns import replace
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext, Undecided
from anyshape.ops.image_layout import suggests_channels_last
from anyshape.ops.rules import is_tensor
from anyshape.ops.table import OPS, OpDef, Pointwise
from anyshape.symbolic import Contradiction, Dim, eq


def in_eager_order(
    builder: Builder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of row ``name``, a batch of one in the order in which eager sees it."""
    row = OPS.get(name)
    if row is None or row.image_order is None:
        return args, kwargs
    position = row.signature.names.index(row.image_order)
    if position < len(args):
        return (*args[:position], _seen(builder, args[position]), *args[position + 1 :]), kwargs
    if row.image_order in kwargs:
        return args, {**kwargs, row.image_order: _seen(builder, kwargs[row.image_order])}
    return args, kwargs


def _seen(builder: Builder, x: Any) -> Any:
    if isinstance(x, tuple | list):
        return tuple([_seen(builder, part) for part in x])
    cx = builder.cx
    if not is_tensor(x) or x.type.rank not in (4, 5) or not suggests_channels_last(cx, x.type):
        return x
    if _stride_of_one(builder, x) != x.shape[1]:
        return x
    try:
        one = cx.decide(eq(x.shape[0], 1)) and not all(
            cx.decide(eq(size, 1)) for size in x.shape[2:]
        )
    except Undecided:
        return x
    return builder.call("clone", x, memory_format="contiguous_format") if one else x


def _stride_of_one(builder: Builder, x: Value) -> Dim | None:
    """The stride of the batch where it is one; None where it cannot be, or no rule says."""
    facts = builder.cx.facts.fork()
    one = eq(x.shape[0], 1)
    try:
        if not isinstance(one, bool):
            facts.assume(one)
        cx = TypeContext(
            builder.cx.space, facts, builder.cx.hints, default_dtype=builder.cx.default_dtype
        )
        stride = _OfOne(cx, builder.makers).type_of(x).strides[0]
    except (Contradiction, OpError, Undecided):
        return None
    return stride if one is not False else None


class _OfOne(Retyped):
    """Types where the batch is one, by the rules of views and elementwise rows."""

    __slots__ = ()

    def settled(self, value: Value, node: Node | None, row: OpDef | None) -> TensorType | None:
        if row is not None and row.type is not None and _keeps_order(row):
            return None
        kind = value.tensor
        shape, strides = (tuple(map(self.simplified, dims)) for dims in (kind.shape, kind.strides))
        return replace(kind, shape=shape, strides=strides)

    def kept(self, value: Value, made: TensorType) -> TensorType:
        return replace(made, shape=tuple(map(self.simplified, value.shape)))


def _keeps_order(row: OpDef) -> bool:
    """May a result lie as an argument does, because of the rule that gives its type?"""
    return row.alias != "none" or isinstance(row.lower, Pointwise) or row.keeps_elements
