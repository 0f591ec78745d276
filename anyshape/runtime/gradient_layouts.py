"""How eager torch lays out the gradients of a graph, learned from one backward of eager's.

In: eager's gradients and cotangents of one call. Out: for each gradient whose tensor it is, or the
order of its dimensions in memory of its own; with that, the compiled gradients of later calls are
laid out. Values are never taken from eager. ``.grad`` needs none of it: autograd lays that out as
the leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch

from anyshape.ir.graph import Graph, ScalarType, Value
from anyshape.ir.known_sizes import symbol_given_by
from anyshape.nouns import frozen
from anyshape.ops.gradients.backward import SLICES_OF_A_PART
from anyshape.symbolic import Dim, Relation, eq

Tensor = torch.Tensor
Form: TypeAlias = "tuple[Any, ...]"


@frozen
class Own:
    """Memory of its own: dimensions, innermost first, and those along which one element repeats."""

    order: tuple[int, ...]
    repeated: frozenset[int]

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        found, step = [0] * len(shape), 1
        for d in self.order:
            if d not in self.repeated:
                found[d] = step
                step *= max(shape[d], 1)
        return tuple(found)

    def of(self, value: Tensor, cotangents: Sequence[Tensor | None]) -> Tensor:
        """The values, laid out so. Of a gradient that repeats elements of a cotangent there, and of
        a copy in eager (behind a slice of everything), a copy is made."""
        strides = self.strides(value.shape)
        if value.stride() == strides and not (self.repeated and _shares(value, cotangents)):
            return value
        made = value.new_empty_strided(value.shape, strides)
        once = tuple(
            [slice(0, 1) if d in self.repeated else slice(None) for d in range(made.dim())]
        )
        made[once].copy_(value[once])
        return made


@frozen
class Same:
    """The very tensor that a cotangent, or a gradient before it, is."""

    of: Literal["cotangent", "gradient"]
    position: int


Layout: TypeAlias = Own | Same | None
"""None: there is no gradient."""


def form_of(tensors: Sequence[Any]) -> Form:
    """What decides how gradients are laid out: which sizes are 0 and 1, the order of strides, and
    whether elements have holes between them."""
    return tuple([_form(t) if isinstance(t, Tensor) else None for t in tensors])


def _form(t: Tensor) -> Form:
    shape, strides = t.shape, t.stride()
    small = min(shape, default=2) < 2
    if not small and t.is_contiguous():
        return (len(shape),)
    own = order_of(shape, strides)
    dense = own.strides(shape) == strides
    if small and not dense:  # a stride that no element depends on may be anything
        return shape, strides
    # with holes: libraries copy first what has no rows of elements side by side
    return tuple([min(size, 2) for size in shape]), own, dense, 1 in strides


def deciding(graph: Graph) -> tuple[Relation, ...]:
    """What else decides how gradients are laid out, as far as inputs tell: which slices are of
    everything, and which sizes on the way are 0 or 1."""
    inputs = [entry.value for entry in graph.inputs]
    known = {
        symbol for value in inputs for dim in _numbers(value) if (symbol := symbol_given_by(dim))
    }
    given = {dim for value in inputs for dim in _shape(value)}
    made = (value for node in graph.nodes for value in node.outputs)
    sizes = [dim for value in made for dim in _shape(value) if dim not in given]
    conditions = [test for dim in sizes for test in (eq(dim, 0), eq(dim, 1))]
    for node in graph.nodes:
        if node.op in SLICES_OF_A_PART:
            pairs = zip(node.outputs[0].shape, node.read[0].shape, strict=True)
            conditions += [eq(part, whole) for part, whole in pairs]
    return tuple(
        condition
        for condition in dict.fromkeys(conditions)
        if isinstance(condition, Relation)
        and known.issuperset(condition.symbols)
        and graph.facts.decide(condition) is None
    )


def _shape(value: Value) -> tuple[Dim, ...]:
    return () if isinstance(value.type, ScalarType) else value.shape


def _numbers(value: Value) -> tuple[Any, ...]:
    kind = value.type
    return (kind.expr,) if isinstance(kind, ScalarType) else (*kind.shape, *kind.strides)


def described(
    gradients: Sequence[Tensor | None], cotangents: Sequence[Tensor | None], others: Sequence[Any]
) -> tuple[Layout, ...] | None:
    """How these gradients lie in memory; None where one is a view of others, or is one of them, or
    has holes."""
    taken = {storage_of(t) for t in (*cotangents, *others) if isinstance(t, Tensor)}
    found: list[Layout] = []
    for position, gradient in enumerate(gradients):
        if gradient is None:
            found.append(None)
            continue
        if gradient.requires_grad:  # it is an argument, as that of `cummin` of nothing
            return None
        same = _position_of(gradient, cotangents)
        if same is not None:
            found.append(Same("cotangent", same))
            continue
        same = _position_of(gradient, gradients[:position])
        if same is not None:
            found.append(Same("gradient", same))
            continue
        own = _own(gradient)
        if own is None or storage_of(gradient) in taken:
            return None
        taken.add(storage_of(gradient))
        found.append(own)
    return tuple(found)


def laid_out(
    values: Sequence[Tensor | None],
    layouts: Sequence[Layout],
    cotangents: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The compiled gradients, as eager lays them out."""
    made: list[Tensor | None] = []
    for value, layout in zip(values, layouts, strict=True):
        match layout:
            case Own() if value is not None:
                made.append(layout.of(value, cotangents))
            case Same("cotangent", position):
                made.append(cotangents[position])
            case Same("gradient", position):
                made.append(made[position])
            case _:
                made.append(value)
    return made


def _position_of(gradient: Tensor, among: Sequence[Tensor | None]) -> int | None:
    return next((n for n, t in enumerate(among) if t is gradient), None)


def storage_of(t: Tensor) -> int:
    """Tensors of one memory have one; torch's zeros that are not written out have none."""
    return t.untyped_storage().data_ptr() if t.numel() and not t._is_zerotensor() else id(t)


def _shares(value: Tensor, others: Sequence[Tensor | None]) -> bool:
    """Does it lie in the memory of one of the others?"""
    return storage_of(value) in {storage_of(t) for t in others if t is not None}


def order_of(shape: Sequence[int], strides: Sequence[int]) -> Own:
    """The order of dimensions that strides like these tell."""
    order = tuple(sorted(range(len(shape)), key=lambda d: (strides[d], shape[d] > 1, -d)))
    return Own(order, frozenset(d for d in order if strides[d] == 0))


def _own(gradient: Tensor) -> Own | None:
    """How the tensor lies in memory of its own; None where it has holes."""
    shape, strides = gradient.shape, gradient.stride()
    own = order_of(shape, strides)
    if gradient.numel() == 0:
        return own
    if gradient.storage_offset():
        return None
    pairs = zip(shape, own.strides(shape), strides, strict=True)
    return own if all(size == 1 or a == b for size, a, b in pairs) else None
