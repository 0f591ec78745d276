"""Rules of rows that read and write at indices, join tensors, and repeat them."""

from __future__ import annotations

from typing import Any

from anyshape.ir.graph import Node, Value
from anyshape.ops.context import NoRow
from anyshape.ops.gradients.elementwise import zeros
from anyshape.ops.gradients.reductions import scattered
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
    """What was added is cut, and what was cut is added."""
    return b.pad(g, tuple((-low, -high) for low, high in pads), 0)


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


def _gather(b: Any, g: Any, y: Any, x: Any, dim: Any, index: Any, **options: Any) -> Any:
    if options:
        raise NoRow("gradients of gather that are sparse")
    return scattered(b, x, dim, index, g)


CAT = {"tensors": _cat}
PAD = {"input": _pad}
EMBEDDING = {"weight": _embedding}
GATHER = {"input": _gather}
INDEX_SELECT = {"input": lambda b, g, y, x, dim, index: b.index_add(zeros(b, x), dim, index, g)}
INDEX = {"input": lambda b, g, y, x, indices: b.index_put(zeros(b, x), indices, g, True)}
FLIP = {"input": lambda b, g, y, x, dims: b.flip(g, dims)}


# --- writes at indices ---


def _of_overwritten(
    b: Any, g: Any, y: Any, x: Any, dim: int, index: Any, *rest: Any, **o: Any
) -> Any:
    if o.get("reduce") is not None:
        raise NoRow("a scatter that combines")
    return b.scatter(g, dim, index, 0)


def _of_source(b: Any, g: Any, y: Any, x: Any, dim: int, index: Any, src: Any, **o: Any) -> Any:
    if o.get("reduce") is not None:
        raise NoRow("a scatter that combines")
    return _as_source(b, b.gather(g, dim, index), index, src)


def source_and_index(node: Node) -> tuple[tuple[Dim, Dim], ...]:
    """The sizes of a scatter's source that requires gradients and of its index, where they may
    differ. Eager's gradient of the source has the shape of the index; where a source of several
    elements is longer, it is refused."""
    given = (*node.args, *node.kwargs.values())
    if node.op.removesuffix("_") not in ("scatter", "scatter_add") or len(given) < 4:
        return ()
    index, source = given[2:4]
    if not isinstance(index, Value) or not isinstance(source, Value):
        return ()
    if not source.tensor.requires_grad:
        return ()
    return tuple([pair for pair in zip(source.shape, index.shape) if pair[0] != pair[1]])


def _as_source(b: Any, g: Any, index: Any, src: Any) -> Any:
    """Of a source of one element, none may be read; eager refuses what is longer elsewhere."""
    pairs = tuple(zip(index.shape, src.shape))
    longer = [not b.cx.same(have, want) for have, want in pairs]
    if not any(longer):
        return g
    if not all(b.cx.same(want, 1) for (_, want), is_longer in zip(pairs, longer) if is_longer):
        raise NoRow("the source of a scatter is longer than its index")
    return b.pad(g, tuple((0, want - have) for have, want in pairs), 0)


def _of_values(b: Any, g: Any, y: Any, x: Any, indices: Any, *rest: Any) -> Any:
    return b.index(g, indices)


def _of_indexed(
    b: Any, g: Any, y: Any, x: Any, indices: Any, values: Any, added: Any = False
) -> Any:
    if added:
        return g
    return b.index_put(g, indices, b.full((), 0, g.dtype, g.type.device), False)


SCATTER = {"input": _of_overwritten, "src": _of_source}
SCATTER_ADD = {
    "input": lambda b, g, *rest: g,
    "src": lambda b, g, y, x, dim, index, src: _as_source(b, b.gather(g, dim, index), index, src),
}
INDEX_ADD = {
    "input": lambda b, g, *rest, **options: g,
    "source": lambda b, g, y, x, dim, index, source, *, alpha=1: b.mul(
        b.index_select(g, dim, index), alpha
    ),
}
INDEX_PUT = {"input": _of_indexed, "values": _of_values}
INDEX_FILL = {"input": lambda b, g, y, x, dim, index, value: b.index_fill(g, dim, index, 0)}
