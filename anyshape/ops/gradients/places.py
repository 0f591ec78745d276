"""Rules of rows that read and write at places, join tensors, and repeat them."""

from __future__ import annotations

from typing import Any

from anyshape.ops.context import NoRow
from anyshape.ops.gradients.elementwise import zeros
from anyshape.ops.gradients.reductions import placed
from anyshape.ops.layout import numel
from anyshape.symbolic import Dim

EXPAND = {"input": lambda b, g, *rest, **named: g}
"""Who calls a rule sums what was broadcast."""


def _cat(b: Any, g: Any, y: Any, tensors: Any, dim: int = 0) -> Any:
    start: Dim = 0
    made = []
    for x in tensors:
        if len(x.shape) != len(y.shape):
            raise NoRow("a join of vectors of no elements with tensors of other ranks")
        length = x.shape[dim]
        made.append(b.slice(g, dim, start, length, 1))
        start = start + length
    return tuple(made)


def _pad(b: Any, g: Any, y: Any, x: Any, pads: Any, value: Any = 0) -> Any:
    for dim, (low, _) in enumerate(pads):
        if low != 0 or not b.cx.same(g.shape[dim], x.shape[dim]):
            g = b.slice(g, dim, low, x.shape[dim], 1)
    return g


def _embedding(b: Any, g: Any, y: Any, ids: Any, weight: Any, padding: Any = None, *r: Any) -> Any:
    if any(flag is True for flag in r):
        raise NoRow("gradients of embeddings that are sparse or scaled by frequency")
    flat = b.reshape(ids, (numel(ids.shape),))
    rows = b.reshape(g, (numel(ids.shape), weight.shape[1]))
    if padding is not None:
        kept = (
            padding if not isinstance(padding, int) or padding >= 0 else padding + weight.shape[0]
        )
        rows = b.masked_fill(rows, b.unsqueeze(b.eq(flat, kept), 1), 0)
    return b.index_add(zeros(b, weight), 0, flat, rows)


CAT = {"tensors": _cat}
PAD = {"input": _pad}
EMBEDDING = {"weight": _embedding}
GATHER = {"input": lambda b, g, y, x, dim, index: placed(b, x, dim, index, g)}
INDEX_SELECT = {"input": lambda b, g, y, x, dim, index: b.index_add(zeros(b, x), dim, index, g)}
INDEX = {"input": lambda b, g, y, x, indices: b.index_put(zeros(b, x), indices, g, True)}
FLIP = {"input": lambda b, g, y, x, dims: b.flip(g, dims)}
