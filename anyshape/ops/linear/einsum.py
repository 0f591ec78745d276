"""einsum with symbolic sizes: two operands at a time, each step a batched matrix product.

    einsum("bhqd,bhkd->bhqk", q, k):  batch (b, h), rows (q), columns (k), contracted (d)
    ->  bmm(reshape(permute(q), (b*h, q, d)), reshape(permute(k), (b*h, d, k)))

Letters that one operand alone has and the result has not are summed before; a repeated letter is a
diagonal. Sizes of 1 broadcast as torch's do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anyshape.ops.context import NoRow, OpError
from anyshape.ops.layout import numel
from anyshape.ops.table import OneByOne, op
from anyshape.symbolic import Dim, eq


def _parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Letters of each operand and of the result; dims of an ellipsis get letters of their own."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise OpError("einsum(): the number of subscripts does not match the number of operands")
    widths = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks) if "..." in t]
    spare = [c for c in map(chr, range(0x3B1, 0x3B1 + 60)) if c not in text][
        : max(widths, default=0)
    ]
    made = []
    for term, rank in zip(terms, ranks):
        width = rank - len(term.replace("...", ""))
        if width < 0 or (width and "..." not in term):
            raise OpError(
                "einsum(): the number of subscripts does not match the number of dimensions"
            )
        made.append(term.replace("...", "".join(spare[len(spare) - width :])))
    if arrow:
        return made, right.replace("...", "".join(spare))
    letters = "".join(made)
    once = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in spare)
    return made, "".join(spare) + "".join(once)


def _without_repeats(b: Any, x: Any, term: str) -> tuple[Any, str]:
    for letter in term:
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            x = b.diagonal(x, 0, first, second)
            term = "".join(c for d, c in enumerate(term) if d not in (first, second)) + letter
    return x, term


def _sum_out(b: Any, x: Any, term: str, keep: set[str], order: str) -> tuple[Any, str]:
    """Sums over the letters that nothing needs, with the dimensions in the order of the result's:
    the sum lies in memory as they tell."""
    if keep.issuperset(term):
        return x, term
    moved = _sorted_as(order, term)
    x = b.permute(x, tuple(term.index(c) for c in moved)) if moved != term else x
    gone = tuple(d for d, c in enumerate(moved) if c not in keep)
    return b.sum(x, gone), "".join(c for c in moved if c in keep)


def _sum_out_of_pair(b: Any, x: Any, term: str, keep: set[str], order: str) -> tuple[Any, str]:
    """The same of one operand of several: ATen does not add up one element, which of integers shows
    in the result's dtype."""
    if not x.dtype.is_floating and not x.dtype.is_complex:
        for c in [c for c in term if c not in keep]:
            d = term.index(c)
            if b.cx.decide(eq(x.shape[d], 1)):
                x, term = b.select(x, d, 0), term.replace(c, "")
    return _sum_out(b, x, term, keep, order)


def _sorted_as(order: str, letters: Iterable[str]) -> str:
    return "".join(sorted(letters, key=order.index))


def _arranged(b: Any, x: Any, term: str, groups: tuple[str, ...]) -> Any:
    """The operand with its letters in the groups' order, each group joined into one dimension."""
    order = [c for group in groups for c in group]
    moved = b.permute(x, tuple(term.index(c) for c in order))
    sizes = {c: x.shape[term.index(c)] for c in term}
    return b.reshape(moved, tuple(numel([sizes[c] for c in group]) for group in groups))


def _contract(
    b: Any, x: Any, s: str, y: Any, t: str, keep: set[str], order: str
) -> tuple[Any, str]:
    """The product of two operands, summed over the letters that nothing else needs.

    The product lies in memory as ATen's: letters in ``order``, the result's first, within the
    batch, the rows and the columns; the operands change places where all columns come before the
    rows.
    """
    x, s = _sum_out_of_pair(b, x, s, keep | set(t), order)
    y, t = _sum_out_of_pair(b, y, t, keep | set(s), order)
    shared = [c for c in s if c in t]
    inner = "".join(c for c in shared if c not in keep)
    if b.prepare is not None or not (x.dtype.is_floating or x.dtype.is_complex):
        x, s, y, t = _without_ones(b, x, s, y, t, inner, order)
        shared, inner = [c for c in shared if c in s], "".join(c for c in inner if c in s)
    x, y = _same_sizes(b, x, s, y, t, shared)
    batch = _sorted_as(order, [c for c in shared if c in keep])
    rows = _sorted_as(order, [c for c in s if c not in t])
    columns = _sorted_as(order, [c for c in t if c not in s])
    if inner and rows and columns and order.index(columns[-1]) < order.index(rows[0]):
        x, s, y, t, rows, columns = y, t, x, s, columns, rows
    sizes = {c: x.shape[s.index(c)] for c in s} | {c: y.shape[t.index(c)] for c in columns}
    if not inner:
        whole = _sorted_as(order, batch + rows + columns)
        p = _spread(b, x, s, whole)
        return b.mul(p, _spread(b, y, t, whole)), whole
    p = _arranged(b, x, s, (batch, rows, inner) if batch else (rows, inner))
    q = _arranged(b, y, t, (batch, inner, columns) if batch else (inner, columns))
    made = b.bmm(p, q) if batch else b.mm(p, q)
    shape: tuple[Dim, ...] = tuple(sizes[c] for c in batch + rows + columns)
    return b.reshape(made, shape), batch + rows + columns


def _without_ones(
    b: Any, x: Any, s: str, y: Any, t: str, inner: str, order: str
) -> tuple[Any, str, Any, str]:
    """Sums what one of the operands has one element of, as ATen does: where nothing is left to
    contract it multiplies, which autocast does not cast, and sums of integers are of int64.
    """
    for c in inner:
        if any(b.cx.decide(eq(v.shape[term.index(c)], 1)) for v, term in ((x, s), (y, t))):
            x, s = _sum_out_of_pair(b, x, s, set(s) - {c}, order)
            y, t = _sum_out_of_pair(b, y, t, set(t) - {c}, order)
    return x, s, y, t


def _same_sizes(b: Any, x: Any, s: str, y: Any, t: str, shared: list[str]) -> tuple[Any, Any]:
    """Expands a shared letter of size 1 to the other operand's size."""
    left, right = list(x.shape), list(y.shape)
    for c in shared:
        i, j = s.index(c), t.index(c)
        left[i] = right[j] = b.cx.broadcast_dims(
            (left[i], right[j]), "einsum(): operands do not broadcast"
        )
    x = x if tuple(left) == x.shape else b.expand(x, tuple(left))
    return x, y if tuple(right) == y.shape else b.expand(y, tuple(right))


def _spread(b: Any, x: Any, term: str, whole: str) -> Any:
    """The operand with dimensions of 1 where it has no letter."""
    order = [c for c in whole if c in term]
    moved = b.permute(x, tuple(term.index(c) for c in order))
    sizes = {c: x.shape[term.index(c)] for c in term}
    return b.reshape(moved, tuple(sizes.get(c, 1) for c in whole))


def _einsum_expand(b: Any, equation: Any, operands: Any) -> Any:
    if not isinstance(equation, str):
        raise NoRow("einsum with sublists has no row")
    terms, result = _parse(equation, [len(x.shape) for x in operands])
    items = [_without_repeats(b, x, term) for x, term in zip(operands, terms)]
    made, term = items[0]
    letters = {c for _, t in items for c in t}
    order = result + "".join(sorted(letters.difference(result)))
    for position, (x, other) in enumerate(items[1:], start=1):
        later = {c for _, t in items[position + 1 :] for c in t} | set(result)
        made, term = _contract(b, made, term, x, other, later, order)
    made, term = _sum_out(b, made, term, set(result), order)
    dims = tuple(term.index(c) for c in result)
    if dims != tuple(range(len(dims))):
        return b.permute(made, dims)
    return b.alias(made) if made is operands[0] else made


op(
    "einsum",
    "equation, operands",
    torch="anyshape.eager.einsum",
    one_by_one=OneByOne(1),
    vjp="expansion",
    expand=_einsum_expand,
    overload=lambda equation, operands: "einsum_of_one" if len(operands) == 1 else None,
    spellings=("torch.functional.einsum",),
)
op(
    "einsum_of_one",
    "equation, operands",
    torch="anyshape.eager.einsum_of_one",
    expand=_einsum_expand,
    inline=True,  # it may be a view
    alias="maybe",
)
