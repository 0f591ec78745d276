"""Rules of matrix products and of attention."""

from __future__ import annotations

from functools import partial
from typing import Any

from anyshape.ir.dtypes import bool_, int64
from anyshape.ops.context import NoRow
from anyshape.ops.gradients.activations import wide
from anyshape.ops.gradients.elementwise import masked
from anyshape.ops.layout import numel
from anyshape.symbolic import floordiv


def _times(b: Any, g: Any, factor: Any) -> Any:
    return g if factor == 1 else b.mul(g, factor)


def _turned(b: Any, x: Any) -> Any:
    return b.transpose(x, -2, -1)


def _right(b: Any, product: Any, p: Any, g: Any, q: Any) -> Any:
    """The gradient of the matrices ``q``, by columns where they lie so: it is written as it comes,
    as eager's, and the parameter that they are a view of need not be read across."""
    by_columns = b.cx.same(q.type.strides[-2], 1) and not b.cx.same(q.type.strides[-1], 1)
    if by_columns:
        return _turned(b, product(_turned(b, g), p))
    return product(_turned(b, p), g)


MM = {
    "input": lambda b, g, y, p, q: b.mm(g, _turned(b, q)),
    "mat2": lambda b, g, y, p, q: _right(b, b.mm, p, g, q),
}
BMM = {
    "input": lambda b, g, y, p, q: b.bmm(g, _turned(b, q)),
    "mat2": lambda b, g, y, p, q: _right(b, b.bmm, p, g, q),
}
ADDMM = {
    "input": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(b, g, beta),
    "mat1": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(b, b.mm(g, _turned(b, q)), alpha),
    "mat2": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(b, _right(b, b.mm, p, g, q), alpha),
}
BADDBMM = {
    "input": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(b, g, beta),
    "batch1": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(
        b, b.bmm(g, _turned(b, q)), alpha
    ),
    "batch2": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(
        b, _right(b, b.bmm, p, g, q), alpha
    ),
}
ADDMV = {
    "input": lambda b, g, y, x, m, v, *, beta=1, alpha=1: _times(b, g, beta),
    "mat": lambda b, g, y, x, m, v, *, beta=1, alpha=1: _times(b, b.outer(g, v), alpha),
    "vec": lambda b, g, y, x, m, v, *, beta=1, alpha=1: _times(b, b.mv(_turned(b, m), g), alpha),
}
ADDR = {
    "input": lambda b, g, y, x, u, v, *, beta=1, alpha=1: _times(b, g, beta),
    "vec1": lambda b, g, y, x, u, v, *, beta=1, alpha=1: _times(b, _mv(b, g, v), alpha),
    "vec2": lambda b, g, y, x, u, v, *, beta=1, alpha=1: _times(b, _mv(b, _turned(b, g), u), alpha),
}
ADDBMM = {
    "input": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(b, g, beta),
    "batch1": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(
        b, b.bmm(_batched(b, g, p), _turned(b, q)), alpha
    ),
    "batch2": lambda b, g, y, x, p, q, *, beta=1, alpha=1: _times(
        b, _right(b, b.bmm, p, _batched(b, g, p), q), alpha
    ),
}


def _mv(b: Any, m: Any, v: Any) -> Any:
    """Of a vector that may have another dtype."""
    return b.mv(m, v if v.dtype is m.dtype else b.to_dtype(v, m.dtype))


def _batched(b: Any, g: Any, p: Any) -> Any:
    """The gradient of each of the products that are added up."""
    return b.expand(b.unsqueeze(g, 0), (p.shape[0], *g.shape))


def _refuse_others(p: Any, q: Any, offs: Any, options: Any) -> None:
    """Rows times one matrix a group, as mixtures of experts have it."""
    plain = all(value is None for value in options.values())
    if not plain or offs is None or (len(p.shape), len(q.shape)) != (2, 3):
        raise NoRow("a grouped product that is not of rows with a matrix a group")


def _grouped_input(b: Any, g: Any, y: Any, p: Any, q: Any, *, offs: Any = None, **o: Any) -> Any:
    _refuse_others(p, q, offs, o)
    return b.grouped_mm(g, _turned(b, q), offs=offs)


def _grouped_weight(b: Any, g: Any, y: Any, p: Any, q: Any, *, offs: Any = None, **o: Any) -> Any:
    _refuse_others(p, q, offs, o)
    return _right(b, partial(b.grouped_mm, offs=offs), p, g, q)


GROUPED_MM = {"input": _grouped_input, "mat2": _grouped_weight}


def _rows(b: Any, x: Any) -> Any:
    """All but the last dimension as one."""
    return x if len(x.shape) == 2 else b.reshape(x, (numel(x.shape[:-1]), x.shape[-1]))


def _linear_input(b: Any, g: Any, y: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    if len(weight.shape) == 1:
        return b.mul(b.unsqueeze(g, -1), weight)
    return b.reshape(b.mm(_rows(b, g), weight), x.shape)


def _linear_weight(b: Any, g: Any, y: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    if len(weight.shape) == 1:
        made = b.mul(b.unsqueeze(g, -1), x)
        return b.sum(made, tuple(range(len(x.shape) - 1)), False) if len(x.shape) > 1 else made
    return b.mm(_turned(b, _rows(b, g)), _rows(b, x))


LINEAR = {
    "input": _linear_input,
    "weight": _linear_weight,
    "bias": lambda b, g, y, x, weight, bias=None: g,
}

# --- attention: the products that are its gradient, over weights that are computed again ---


def repeated_heads(b: Any, x: Any, q: Any) -> Any:
    """The heads of keys or values, repeated for each head of the queries."""
    have, want = x.shape[-3], q.shape[-3]
    if b.cx.same(have, want):
        return x
    *batch, _, length, width = x.shape
    group = floordiv(want, have)
    shown = b.expand(b.unsqueeze(x, len(batch) + 1), (*batch, have, group, length, width))
    made = b.reshape(shown, (*batch, have * group, length, width))
    return b.expand(made, (*batch, want, length, width))  # as many, by the facts


def _gathered(b: Any, g: Any, x: Any) -> Any:
    """The gradient of ``_shared``: that of each head is the sum over those that share it."""
    *batch, heads, length, width = x.shape
    if b.cx.same(g.shape[-3], heads):
        return g
    group = floordiv(g.shape[-3], heads)
    split = b.reshape(g, (*batch, heads, group, length, width))
    return b.sum(split, (len(batch) + 1,), False)


def without_later_keys(b: Any, scores: Any, causal: Any) -> Any:
    """The scores, -inf where a key is behind its query; where ``causal`` is true, if it is a bool
    that sizes decide."""
    if causal is False:
        return scores
    rows, columns = scores.shape[-2:]
    device = scores.type.device
    row = b.unsqueeze(b.arange(rows, 0, 1, int64, device), 1)
    later = b.gt(b.arange(columns, 0, 1, int64, device), row)
    if causal is not True:
        later = b.logical_and(later, b.full((), causal, bool_, device))
    return b.masked_fill(scores, later, float("-inf"))


class _Attention:
    """The parts of attention that its gradients are made of; the query is scaled."""

    def __init__(
        self, b: Any, g: Any, q: Any, k: Any, v: Any, mask: Any, p: Any, causal: Any, named: Any
    ) -> None:
        if p not in (0, 0.0):
            raise NoRow("attention with dropout has no gradient rule")
        self.b = b
        work = wide(q.dtype)
        self.work = work
        size = q.shape[-1]
        scale = named.get("scale")
        if scale is None:
            scale = b.pow(b.full((), size, work, q.type.device), -0.5)
        self.scale = scale
        if named.get("enable_gqa"):
            k, v = repeated_heads(b, k, q), repeated_heads(b, v, q)
        self.g, query, self.k, self.v = (b.to_dtype(t, work) for t in (g, q, k, v))
        self.q = b.mul(query, scale)  # as eager: what has no width is scaled by infinity
        scores = b.matmul(self.q, _turned(b, self.k))
        self.weights = self._weights(scores, mask, causal)

    def _weights(self, scores: Any, mask: Any, causal: Any) -> Any:
        b = self.b
        if mask is None:
            return b.softmax(without_later_keys(b, scores, causal), -1)
        if mask.dtype is not bool_:
            return b.softmax(b.add(scores, mask), -1)
        weights = b.softmax(b.masked_fill(scores, b.logical_not(mask), float("-inf")), -1)
        return masked(b, b.any(mask, -1, True), weights)  # a row that sees nothing is 0, not NaN

    def scores(self) -> Any:
        """The gradient of the scores, mask included."""
        b = self.b
        slope = b.matmul(self.g, _turned(b, self.v))
        level = b.sum(b.mul(slope, self.weights), (len(slope.shape) - 1,), True)
        return b.mul(b.sub(slope, level), self.weights)


def _query(b: Any, g: Any, y: Any, q: Any, k: Any, v: Any, m: Any, p: Any, c: Any, **n: Any) -> Any:
    parts = _Attention(b, g, q, k, v, m, p, c, n)
    return b.mul(b.matmul(parts.scores(), parts.k), parts.scale)


def _key(b: Any, g: Any, y: Any, q: Any, k: Any, v: Any, m: Any, p: Any, c: Any, **n: Any) -> Any:
    parts = _Attention(b, g, q, k, v, m, p, c, n)
    made = b.matmul(_turned(b, parts.scores()), parts.q)
    return _gathered(b, made, k) if n.get("enable_gqa") else made


def _value(b: Any, g: Any, y: Any, q: Any, k: Any, v: Any, m: Any, p: Any, c: Any, **n: Any) -> Any:
    parts = _Attention(b, g, q, k, v, m, p, c, n)
    made = b.matmul(_turned(b, parts.weights), parts.g)
    return _gathered(b, made, v) if n.get("enable_gqa") else made


def _mask(b: Any, g: Any, y: Any, q: Any, k: Any, v: Any, m: Any, p: Any, c: Any, **n: Any) -> Any:
    return _Attention(b, g, q, k, v, m, p, c, n).scores()


ATTENTION = {"query": _query, "key": _key, "value": _value, "attn_mask": _mask}
