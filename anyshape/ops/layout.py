"""Strides, as eager torch would lay its results out, over symbolic sizes.

Everything here is decided from the form of the expressions alone, as if every size were at least 1:
where a tensor is empty, or a dimension has one element, a stride means nothing. A pointwise result
takes the order of dimensions of its operands (TensorIterator's rule), views keep memory, the rest
is row-major. Results are kept in ``cx.memo``; where the form does not tell, the facts are asked, so
that what they say is kept for these facts alone: a side of a branch knows more than what follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from anyshape.ir.graph import TensorType, row_major
from anyshape.nouns import replace
from anyshape.ops.context import TypeContext, Undecided
from anyshape.symbolic import (
    Condition,
    Dim,
    Expr,
    Symbol,
    all_of,
    eq,
    evaluate,
    le,
    lt,
    substitute,
    symbols_of,
)

Shape = tuple[Dim, ...]
LARGE_STEP = 1 << 40


def contiguous_strides(cx: TypeContext, shape: Shape) -> Shape:
    """Row-major strides, remembered."""
    found = cx.memo.get(shape)
    if found is None:
        found = cx.memo[shape] = row_major(shape)
    return found


def numel(shape: Sequence[Dim]) -> Dim:
    """The number of elements."""
    count: Dim = 1
    for size in shape:
        count = count * size
    return count


def dot(positions: Sequence[Dim], strides: Sequence[Dim]) -> Dim:
    """The element at these positions."""
    return sum((a * b for a, b in zip(positions, strides, strict=True)), 0)


def is_contiguous(cx: TypeContext, t: TensorType) -> bool:
    """Is the tensor known to be row-major, dimensions of one element aside, or to be empty?"""
    wanted = contiguous_strides(cx, t.shape)
    if t.strides == wanted:
        return True
    rows = zip(t.shape, t.strides, wanted, strict=True)
    if all(a == b or cx.same(size, 1) or _same_step(cx, size, a, b) for size, a, b in rows):
        return True
    return any(cx.same(size, 0) for size in t.shape)


def _same_step(cx: TypeContext, size: Dim, a: Dim, b: Dim) -> bool:
    """Are the strides equal, unless there is no element? A view in a shape that holds as many
    elements because of two products (``s2 * s3 == s3 * s4``) has equal rows then."""
    if cx.same(a, b):
        return True
    return isinstance(a, Expr) and isinstance(b, Expr) and cx.same(size * a, size * b)


def dense_order(shape: Shape, strides: Shape) -> tuple[int, ...] | None:
    """The dimensions, innermost first, if they fill memory without holes or overlap; else None.

    Dimensions known to have one element come last.
    """
    left = [d for d, size in enumerate(shape) if size.__class__ is not int or size != 1]
    ones = [d for d, size in enumerate(shape) if size.__class__ is int and size == 1]
    order: list[int] = []
    expected: Dim = 1
    while left:
        for d in reversed(left):
            if strides[d] == expected:
                break
        else:
            return None
        left.remove(d)
        order.append(d)
        expected = expected * shape[d]
    return (*order, *ones)


def strides_in_order(shape: Shape, order: Sequence[int]) -> Shape:
    """Dense strides with the dimensions in this order, innermost first."""
    if all(a > b for a, b in itertools.pairwise(order)):
        return row_major(shape)
    strides: list[Dim] = [1] * len(shape)
    step: Dim = 1
    for d in order:
        strides[d] = step
        step = step * shape[d]
    return tuple(strides)


def preserved_strides(cx: TypeContext, t: TensorType) -> Shape:
    """Strides of a new tensor made in the format of ``t`` (``torch.preserve_format``)."""
    key = (t.shape, t.strides)
    found = cx.memo.get(key)
    if found is None:
        contiguous = contiguous_strides(cx, t.shape)
        if t.strides == contiguous:
            found = contiguous
        elif any(size.__class__ is int and size == 0 for size in t.shape):
            found = t.strides
        elif dense_order(t.shape, t.strides) is not None:
            found = t.strides
        else:
            return pointwise_strides(cx, t.shape, (t,))
        cx.memo[key] = found
    return found


def pointwise_strides(
    cx: TypeContext, shape: Shape, operands: Sequence[TensorType], numbers: bool = False
) -> Shape:
    """Strides that TensorIterator gives a new result of this shape
    (ATen/native/TensorIterator.cpp).

    Operands of one shape that are all row-major, all channels-last, or all dense in the same way
    hand their layout on as it is; a Python number among the operands (``numbers``) has another
    shape. Else the dimensions are sorted by the strides of the operands, the first operand that
    tells two of them apart deciding; dimensions that an operand broadcasts do not count.
    """
    contiguous = contiguous_strides(cx, shape)
    alike = not numbers and all(t.shape == shape for t in operands)
    if alike and all(t.strides == contiguous for t in operands):
        return contiguous
    if not all(_fits(t.shape, shape) for t in operands):  # what broadcasts here, only the facts say
        return strides_in_order(*_settled_order(cx, shape, operands))
    key = (cx.facts, shape, alike, *((t.shape, t.strides) for t in operands if t.shape))
    found = cx.memo.get(key)
    if found is None:
        found = _common_strides(cx, shape, operands) if alike else None
        if found is None:
            settled, order = _settled_order(cx, shape, operands)
            found = strides_in_order(settled, order)
            if settled is not shape:  # by a guard, which may be taken back
                return found
        cx.memo[key] = found
    return found


def _common_strides(cx: TypeContext, shape: Shape, operands: Sequence[TensorType]) -> Shape | None:
    """The layout that operands of one shape share, None where they must be sorted."""
    if all(is_contiguous(cx, t) for t in operands):
        return contiguous_strides(cx, shape)
    if len(shape) == 4 and all(_has_strides(t, channels_last_strides(shape)) for t in operands):
        return channels_last_strides(shape)
    first = operands[0]
    alike = all(t.strides == first.strides for t in operands)
    return first.strides if alike and dense_order(shape, first.strides) is not None else None


def _has_strides(t: TensorType, wanted: Shape) -> bool:
    """Are these the strides, dimensions of one element aside?"""
    return all(a == b or n == 1 for n, a, b in zip(t.shape, t.strides, wanted, strict=True))


def _fits(own: Shape, shape: Shape) -> bool:
    """Is each size the result's, or the constant 1?"""
    tail = shape[len(shape) - len(own) :]
    return all(a is b or a == b or a == 1 for a, b in zip(own, tail))


def _settled_order(
    cx: TypeContext, shape: Shape, operands: Sequence[TensorType]
) -> tuple[Shape, list[int]]:
    """The shape and its order of iteration; guarded is whether a size is 1, where the order of the
    other dimensions depends on it; where nobody may guard, it is checked that it is not 1.

    Strides that tie at such a size differ at every other; where an operand broadcasts, so that
    not all pairs compare, that decides for third dimensions too.
    """
    order = _iteration_order(cx, shape, operands)
    if len(shape) < 3 or all(t.strides == contiguous_strides(cx, t.shape) for t in operands):
        return shape, order
    if cx.on_guard is None:  # what capture has guarded is known by now
        return _at_known_ones(cx, shape, operands) or (shape, order)
    for symbols in _sets_of_ones(shape, operands):
        one = all_of(*(eq(symbol.expr, 1) for symbol in symbols))
        if isinstance(one, bool) or cx.known(one) is False:
            continue
        given = dict.fromkeys(symbols, 1)
        at_one = tuple([substitute(n, given) for n in shape])
        operands_at_one = [at_sizes(t, given) for t in operands]
        by_data = cx.hint(one) is None
        steps = (0, 1, LARGE_STEP) if by_data else (0,)
        ones = {d for d, size in enumerate(at_one) if size == 1}
        left = [n for n in order if n not in ones]
        others = (
            _iteration_order(cx, at_one, [_stepping(t, step) for t in operands_at_one])
            for step in steps
        )
        if all([n for n in other if n not in ones] == left for other in others):
            continue
        if by_data:
            cx.require(~one, "the strides of a result are others where this size is 1")
        elif cx.decide(one):
            return _settled_order(cx, at_one, operands_at_one)
    return shape, order


def _at_known_ones(
    cx: TypeContext, shape: Shape, operands: Sequence[TensorType]
) -> tuple[Shape, list[int]] | None:
    """The shape and its order with 1 for each size that is known to be 1; None if there is none."""
    given = {s: 1 for s in sizes_of(shape, operands) if cx.known(eq(s.expr, 1))}
    if not given:
        return None
    ones = tuple([substitute(n, given) for n in shape])
    return ones, _iteration_order(cx, ones, [at_sizes(t, given) for t in operands])


def _stepping(t: TensorType, step: int) -> TensorType:
    """The operand with this step instead of 0 in dimensions of one element: where data decides that
    one element is not repeated, its step is there, which the type does not say."""
    if step == 0:
        return t
    rows = zip(t.shape, t.strides, strict=True)
    return replace(t, strides=tuple([step if n == 1 and s == 0 else s for n, s in rows]))


def _sets_of_ones(shape: Shape, operands: Sequence[TensorType]) -> Iterator[tuple[Symbol, ...]]:
    """Each size; two and all of them together where no operand has all dimensions."""
    sizes = sizes_of(shape, operands)
    covered = any(t.shape == shape and 0 not in t.strides for t in operands)
    for count in (1,) if covered else dict.fromkeys((1, 2, len(sizes))):
        yield from itertools.combinations(sizes, count)


def sizes_of(shape: Shape, operands: Sequence[TensorType]) -> list[Symbol]:
    """The symbols that are sizes of the result or of an operand that broadcasts."""
    sizes = (*shape, *(size for t in operands for size in t.shape))
    symbols = (size.symbol for size in sizes if isinstance(size, Expr))
    return list(dict.fromkeys(symbol for symbol in symbols if symbol is not None))


def at_sizes(t: TensorType, values: Mapping[Symbol, Dim]) -> TensorType:
    shape = tuple([substitute(n, values) for n in t.shape])
    return replace(t, shape=shape, strides=tuple([substitute(n, values) for n in t.strides]))


def _iteration_order(cx: TypeContext, shape: Shape, operands: Sequence[TensorType]) -> list[int]:
    """The dimensions, innermost first: an insertion sort in which some pairs do not compare."""
    rank = len(shape)
    tables = [table for t in operands if (table := _stride_table(cx, shape, t))]
    order = list(range(rank - 1, -1, -1))
    for start in range(1, rank):
        moving = start
        for other in range(start - 1, -1, -1):
            comparison = _compare(cx, shape, tables, order[other], order[moving])
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif comparison < 0:
                break
    return order


def _stride_table(cx: TypeContext, shape: Shape, t: TensorType) -> dict[int, tuple[Dim, int]]:
    """The operand's stride, and its position in a dense order (0: none), by dimension of the
    result."""
    offset = len(shape) - t.rank
    order = dense_order(t.shape, t.strides) or ()
    positions = {d: n + 1 for n, d in enumerate(order) if t.shape[d] != 1}
    return {
        d + offset: (t.strides[d], positions.get(d, 0))
        for d in range(t.rank)
        if t.strides[d] != 0 and not broadcasts(cx, t.shape[d], shape[d + offset])
    }


def broadcasts(cx: TypeContext, own: Dim, size: Dim) -> bool:
    """Is one element taken for many, or for none? It is not where the result has one too. Where
    data decides whether there is one or none (``nonzero(x)[:1]``), many need one."""
    if own is size or own == size or not cx.known(le(own, 1)):
        return False
    return not cx.known(le(size, 1))


def _compare(
    cx: TypeContext, shape: Shape, tables: Sequence[dict[int, tuple[Dim, int]]], a: int, b: int
) -> int:
    """-1, 0 or 1 as dimension ``a`` belongs inside ``b``, anywhere, or outside."""
    for table in tables:
        if a not in table or b not in table:
            continue
        (own, position), (other, other_position) = table[a], table[b]
        if _tie(cx, own, other):  # one has one element, or rows overlap: the smaller goes inside
            if _is_larger_asking(cx, shape[a], shape[b]):
                return 1
            continue
        comparison = _compare_asking(cx, own, other)
        if not comparison and position and other_position:
            comparison = (position > other_position) - (position < other_position)
        if comparison:
            return comparison
    return 0


def _is_larger_asking(cx: TypeContext, a: Dim, b: Dim) -> bool:
    """Is the size ``a`` above ``b``? Guarded where both may be above 1, as of windows that overlap;
    a size of 1 is guarded elsewhere, or where a result has such a size, eager is asked."""
    below = le(a, b)
    if cx.on_guard is None or cx.known(below) is not None or cx.same(a, 1) or cx.same(b, 1):
        return compare_strides(cx, a, b) > 0
    return compare_strides(cx, a, b) > 0 if cx.hint(below) is None else not cx.decide(below)


def _compare_asking(cx: TypeContext, a: Dim, b: Dim) -> int:
    """As ``compare_strides``, guarded where strides decide that no size of an argument gives."""
    below = lt(a, b) if cx.on_guard is not None and _are_disjoint(a, b) else True
    if isinstance(below, bool) or cx.hint(below) is None:
        return compare_strides(cx, a, b)
    if cx.hint(below):
        return -1 if cx.decide(below) else 1
    return 1 if cx.decide(lt(b, a)) else -1


def _tie(cx: TypeContext, a: Dim, b: Dim) -> bool:
    """Are two strides equal? Guarded where an argument has them by itself, and they are."""
    if a is b or a == b:
        return True
    if not _are_disjoint(a, b):
        return False
    if cx.on_guard is None:
        return cx.same(a, b)
    return bool(cx.hint(eq(a, b))) and cx.decide(eq(a, b))


def _are_disjoint(a: Dim, b: Dim) -> bool:
    """Have two strides no size in common?"""
    if isinstance(a, int) or isinstance(b, int):
        return False
    return a.symbols.isdisjoint(b.symbols)


def compare_strides(cx: TypeContext, a: Dim, b: Dim) -> int:
    """-1, 0 or 1 as ``a`` is below, like or above ``b``; 0 where that depends on the sizes."""
    if a is b or a == b:
        return 0
    if a.__class__ is int and b.__class__ is int:
        return -1 if a < b else 1
    if a == 1 or _at_most(a, b):  # a stride is 1 at least
        return -1
    if b == 1 or _at_most(b, a):
        return 1
    if cx.known(le(a, b)):
        return -1
    return 1 if cx.known(le(b, a)) else _compare_at_large_sizes(a, b)


def _compare_at_large_sizes(a: Dim, b: Dim) -> int:
    """The order where every size is large, 0 if it depends on which are.

    A step of 2 through rows of ``n`` is below ``n`` unless there is one element, whose stride means
    nothing.
    """
    difference = b - a
    symbols = sorted(symbols_of(difference), key=lambda s: s.name)
    orders = [
        {s: 1009 * (i + 2) for i, s in enumerate(order)} for order in (symbols, symbols[::-1])
    ]
    # Sizes that broadcast together are equal where they are large.
    found = _signs(difference, *orders) or _signs(difference, dict.fromkeys(symbols, 1009))
    return 0 if len(found) != 1 else (-1 if found.pop() else 1)


def _signs(difference: Dim, *sizes: Mapping[Symbol, int]) -> set[bool]:
    """Whether it is positive at these sizes; nothing if it has no value at some of them."""
    try:
        return {evaluate(difference, given) > 0 for given in sizes}
    except ValueError:
        return set()


def _at_most(a: Dim, b: Dim) -> bool:
    """Is ``a <= b`` at all symbols >= 1? Each negative term of ``b - a`` is outgrown."""
    difference = b - a
    if difference.__class__ is not Expr:
        return difference >= 0
    budget = difference.constant
    positive = {m: c for m, c in difference.terms.items() if c > 0}
    for monomial, coefficient in difference.terms.items():
        need = -coefficient
        while need > 0:
            cover = next((m for m, c in positive.items() if c > 0 and _divides(monomial, m)), None)
            if cover is None:
                return False
            used = min(need, positive[cover])
            positive[cover] -= used
            need -= used
    return budget + sum(positive.values()) >= 0


def _divides(small: tuple[object, ...], large: tuple[object, ...]) -> bool:
    rest = list(large)
    for atom in small:
        if atom not in rest:
            return False
        rest.remove(atom)
    return True


def view_strides(
    cx: TypeContext, t: TensorType, shape: Shape, *, decide: bool = False, ones: bool = False
) -> Shape | None:
    """Strides of ``t`` viewed in another shape of as many elements, or None where it must be
    copied.

    Memory is walked from the back in chunks that are dense in themselves, as ATen's
    ``computeStride`` does; a chunk and the new sizes that fill it must have the same product. With
    ``decide``, whether one dimension of a tensor with holes follows another is guarded where the
    form of its strides does not tell, and that sizes are equal where the hints say so; but not
    what holds because a size is 1, unless ``ones`` says that it must be a view.
    """
    if t.shape == shape and (1 not in shape or 0 in shape):
        return t.strides
    if is_contiguous(cx, t):
        rows = contiguous_strides(cx, shape)
        plain = not t.shape or cx.same(t.strides[-1], 1) or any(cx.same(n, 0) for n in t.shape)
        return rows if plain else _of_last_ones(t, _ones_known(cx, shape), rows)
    t, shape = replace(t, shape=_ones_known(cx, t.shape)), _ones_known(cx, shape)
    if decide:  # nothing is guarded where it is a view, or a copy, whatever the answer
        without = _view_strides(cx, t, shape, False)
        if without is not None or _view_strides(_Hopeful(cx), t, shape, True, ones) is None:
            return without
    return _view_strides(cx, t, shape, decide, ones)


class _Decider(Protocol):
    """What deciding whether a reshape is a view asks of a context."""

    @property
    def hints(self) -> Mapping[Symbol, int]: ...
    @property
    def on_guard(self) -> object: ...
    def known(self, condition: Condition | bool, /) -> bool | None: ...
    def hint(self, condition: Condition | bool, /) -> bool | None: ...
    def decide(self, condition: Condition | bool, /) -> bool: ...


def _ones_known(cx: TypeContext, shape: Shape) -> Shape:
    """The shape with 1 for each size that the facts say is 1."""
    return tuple([1 if d.__class__ is not int and cx.known(eq(d, 1)) else d for d in shape])


class _Hopeful:
    """A context in which everything that is not known to be false holds, and nothing is guarded."""

    on_guard = True

    def __init__(self, cx: TypeContext) -> None:
        self.known = cx.known
        self.hint = cx.hint
        self.hints = cx.hints

    def decide(self, condition: Condition | bool) -> bool:
        return self.known(condition) is not False


def _view_strides(
    cx: _Decider, t: TensorType, shape: Shape, decide: bool, ones: bool = False
) -> Shape | None:
    left = [d for d in shape if d != 1]
    strides: list[Dim] = []
    with_holes = decide and dense_order(t.shape, t.strides) is None
    (_, step), *inner = _dense_chunks(cx, t, with_holes) or [(1, 1)]
    for size, inner_step in reversed(inner):
        filled: Dim = 1
        while filled != size and not _fills(cx, filled, size, decide, ones):
            if not left:
                return None
            strides.append(inner_step * filled)
            filled = filled * left.pop()
            if filled.__class__ is int and size.__class__ is int and filled > size:
                return None
    while left:  # as many elements as are left, whatever is known of these sizes
        strides.append(step)
        step = step * left.pop()
    return _with_ones(shape, strides, t.strides[-1] if t.strides else 1)


def _of_last_ones(t: TensorType, shape: Shape, strides: Shape) -> Shape:
    """The last dimensions, as far as they have one element, take the stride of the last one before,
    whatever it is."""
    many = next((d for d in reversed(range(len(shape))) if shape[d] != 1), -1)
    return (*strides[: many + 1], *(t.strides[-1] for _ in shape[many + 1 :]))


def _dense_chunks(cx: _Decider, t: TensorType, decide: bool) -> list[tuple[Dim, Dim]]:
    """(elements, stride) of each run of dimensions that one stride can walk."""
    chunks: list[tuple[Dim, Dim]] = []
    for size, stride in zip(t.shape, t.strides, strict=True):
        if size.__class__ is int and size == 1:
            continue
        if chunks and _follows(cx, chunks[-1][1], stride * size, decide):
            chunks[-1] = (chunks[-1][0] * size, stride)
        else:
            chunks.append((size, stride))
    return chunks


def _fills(cx: _Decider, filled: Dim, size: Dim, decide: bool, ones: bool) -> bool:
    """Are the sizes equal: by the facts, or by a guard where the hints say so?"""
    equal = eq(filled, size)
    if isinstance(equal, bool) or cx.known(equal) is not None:
        return bool(cx.known(equal))
    if not decide or cx.on_guard is None or cx.hint(equal) is not True:
        return False
    return (ones or all(cx.hints[s] > 1 for s in equal.symbols)) and cx.decide(equal)


def _follows(cx: _Decider, outer: Dim, inner: Dim, decide: bool) -> bool:
    if outer is inner or outer == inner:
        return True
    follows = eq(outer, inner)
    if isinstance(follows, bool) or not decide or outer == 0:
        return cx.known(follows) is True
    try:
        return cx.decide(follows)
    except Undecided:
        return False


def _with_ones(shape: Shape, strides: list[Dim], last: Dim) -> Shape:
    """Puts strides (innermost first, none for size 1) in place; size 1 gets the row-major one, and
    behind all others the ``last`` one of the tensor viewed."""
    result: list[Dim] = []
    step = last
    rest = iter(strides)
    for size in reversed(shape):
        if size != 1:
            step = next(rest)
            result.append(step)
            step = step * size
        else:
            result.append(step)
    return tuple(reversed(result))


def formatted_strides(cx: TypeContext, t: TensorType, memory_format: object) -> Shape:
    """Strides of a new tensor like ``t`` in a memory format, given as torch's name of it."""
    if memory_format in (None, "preserve_format"):
        return preserved_strides(cx, t)
    if memory_format == "contiguous_format":
        return contiguous_strides(cx, t.shape)
    assert memory_format in ("channels_last", "channels_last_3d"), memory_format
    return channels_last_strides(t.shape)


def channels_last_strides(shape: Shape) -> Shape:
    """Strides of a tensor (N, C, *spatial) that keeps its channels innermost."""
    return strides_in_order(shape, (1, *range(len(shape) - 1, 1, -1), 0))


def is_channels_last(cx: TypeContext, t: TensorType) -> bool:
    """Is the (N, C, *spatial) tensor known to be channels-last and not row-major as well?"""
    if t.rank not in (4, 5) or is_contiguous(cx, t):
        return False
    wanted = channels_last_strides(t.shape)
    rows = zip(t.shape, t.strides, wanted, strict=True)
    return all(size == 1 or cx.same(a, b) for size, a, b in rows)
