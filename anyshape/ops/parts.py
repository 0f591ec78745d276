"""Which elements of a tensor a view of it is made of: the column ``part`` of the rows of views.

A rule takes the part of the base that the view's argument is, the view's node and which of its
results is asked for, and gives that result's part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyshape.ir.graph import Node
from anyshape.nouns import frozen, replace
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import dot
from anyshape.ops.rules import dim_of
from anyshape.ops.table import OpDef, View
from anyshape.symbolic import Dim

Span = tuple[Dim, Dim, Dim]
"""Where a part begins, its step and its length."""


@frozen
class Part:
    """The elements of a view: a span of each dimension of what it views, and which of those its
    own dimensions are; ``then`` are views that are not described as spans."""

    spans: tuple[Span, ...]
    dims: tuple[int | None, ...]
    then: tuple[object, ...] = ()

    def cut(self, dim: int, start: Dim, length: Dim, step: Dim = 1) -> Part:
        """A slice along a dimension of the view."""
        at = self.dims[dim]
        if at is None:
            return self
        begin, old, _ = self.spans[at]
        made = (begin + start * old, step * old, length)
        return replace(self, spans=(*self.spans[:at], made, *self.spans[at + 1 :]))

    def with_dims(self, dims: Sequence[int | None]) -> Part:
        return replace(self, dims=tuple(dims))


def selected(part: Part, node: Node, position: int) -> Part:
    dim: Any = node.args[1]
    at: Any = node.args[2]
    return _without(part.cut(dim, at, 1), dim)


def unbound(part: Part, node: Node, position: int) -> Part:
    dim = dim_of(node.args[1], len(part.dims))
    return _without(part.cut(dim, position, 1), dim)


def _without(part: Part, dim: int) -> Part:
    return part.with_dims((*part.dims[:dim], *part.dims[dim + 1 :]))


def sliced(part: Part, node: Node, position: int) -> Part:
    dim = dim_of(node.args[1], len(part.dims))
    along: Any = node.args[2:]
    return part.cut(dim, *along)


def split(part: Part, node: Node, position: int) -> Part:
    dim = dim_of(node.args[2], len(part.dims))
    start: Dim = 0
    for earlier in node.outputs[:position]:
        start = start + earlier.shape[dim]
    return part.cut(dim, start, node.outputs[position].shape[dim])


def unsqueezed(part: Part, node: Node, position: int) -> Part:
    dim = dim_of(node.args[1], len(part.dims) + 1)
    return part.with_dims((*part.dims[:dim], None, *part.dims[dim:]))


def permuted(part: Part, node: Node, position: int) -> Part:
    order: Any = node.args[1]
    return part.with_dims([part.dims[d] for d in order])


def transposed(part: Part, node: Node, position: int) -> Part:
    dims = list(part.dims)
    a, b = (dim_of(d, len(dims)) for d in node.args[1:3])
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return part.with_dims(dims)


def reversed_dims(part: Part, node: Node, position: int) -> Part:
    return part.with_dims(part.dims[::-1])


def same(part: Part, node: Node, position: int) -> Part:
    return part


def begins_at(cx: TypeContext, row: OpDef, node: Node, position: int) -> Dim | None:
    """How many elements after its argument a view's result begins; None where nobody says."""
    before = node.read[0]
    if row.part is not None:
        whole = Part(tuple((0, 1, n) for n in before.shape), tuple(range(len(before.shape))))
        first: Sequence[Any] = [start for start, _, _ in row.part(whole, node, position).spans]
    elif row.mutates or row.keeps_elements:
        return 0
    elif isinstance(row.lower, View):
        origin = (0,) * len(node.outputs[position].shape)
        first = row.lower.index(cx, origin, before.tensor, *node.args[1:])
    else:
        return None
    return dot(first, before.tensor.strides)
