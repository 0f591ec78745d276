"""Which expression of the sizes of a call explains the sizes that results had.

In: results' sizes, seen at several assignments of the symbols, and the arguments. Out: a constant,
a size of an argument, a product, sum or minimum of two, or a function of one symbol.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from anyshape.ir.graph import Value
from anyshape.ops.layout import numel
from anyshape.symbolic import Dim, Expr, Symbol, evaluate, floordiv, minimum

MOST_DIMS = 12  # of which sums and products are tried


def candidates_of(values: list[Value]) -> Iterator[Dim]:
    """Sizes that a result may have: those of the arguments, their products, sums and minima."""
    dims = list(dict.fromkeys(d for v in values for d in v.shape))
    yield from dims
    for a, b in itertools.combinations_with_replacement(dims[:MOST_DIMS], 2):
        yield a * b
        yield a + b
        yield minimum(a, b)
    for value in values:
        yield numel(value.shape)


def explained(
    seen: list[tuple[dict[Symbol, int], int]], candidates: list[Dim], symbols: list[Symbol]
) -> Dim | None:
    """An expression that is each size at the sizes beside it; None where none of these is."""
    first = seen[0][1]
    if all(size == first for _, size in seen):
        return first
    for candidate in candidates:
        if all(_value(candidate, sizes) == size for sizes, size in seen):
            return candidate
    for symbol in symbols:
        affine = _affine(seen, symbol)
        if affine is not None:
            return affine
    return None


def _value(dim: Dim, sizes: dict[Symbol, int]) -> int | None:
    """The dim at these sizes; None where a symbol of it is equal to others by the facts."""
    if not isinstance(dim, Expr):
        return dim
    return int(evaluate(dim, sizes)) if dim.symbols <= sizes.keys() else None


def _affine(seen: list[tuple[dict[Symbol, int], int]], symbol: Symbol) -> Dim | None:
    """`a * n // c + b` for small `c`: what strides and windows make of a size."""
    points = sorted({(sizes[symbol], size) for sizes, size in seen})
    if len(points) < 3:
        return None
    for divisor in (1, 2):
        for shift in range(divisor):
            scaled = [((x + shift) // divisor, y) for x, y in points]
            (x0, y0), (x1, y1) = scaled[0], scaled[-1]
            slope, rest = divmod(y1 - y0, x1 - x0) if x1 != x0 else (0, 1)
            if not rest and all(y - y0 == slope * (x - x0) for x, y in scaled):
                return floordiv(symbol.expr + shift, divisor) * slope + (y0 - slope * x0)
    return None
