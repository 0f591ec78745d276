"""Index arithmetic over loop variables: reshapes as maps of indices, exact division, coverage.

In: index expressions over axes whose extents are known, and shapes. Out: the index in another shape
of the same elements. Where an axis would have to be divided, ``Refine`` asks for two axes in its
position, so that loops stay affine; only what cannot be refined keeps ``//`` and ``%``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from anyshape.ir.graph import row_major
from anyshape.nouns import mutable
from anyshape.ops.layout import numel
from anyshape.symbolic import (
    Condition,
    Dim,
    Expr,
    Facts,
    Monomial,
    Symbol,
    eq,
    floordiv,
    ge,
    lt,
    maximum,
    minimum,
    mod,
    split_since,
)

Index: TypeAlias = tuple[Dim, ...]
Extents: TypeAlias = Mapping[Symbol, Dim]


class Refine(Exception):
    """The loop variable should be split into variables of these extents."""

    def __init__(self, axis: Symbol, extents: tuple[Dim, ...]) -> None:
        super().__init__(str(axis))
        self.axis = axis
        self.extents = extents


@mutable
class Sizes:
    """What the facts say of sizes, remembered."""

    facts: Facts
    refines: bool = True  # whether loop variables may still be split: `Refine` is raised only then
    simple: dict[Dim, Dim] = field(default_factory=dict)
    equal: dict[tuple[Dim, Dim], bool] = field(default_factory=dict)
    shapes: dict[tuple[Dim, ...], Index] = field(default_factory=dict)
    reshaped: dict[Hashable, Index] = field(default_factory=dict)

    def simplify(self, dim: Dim) -> Dim:
        if dim.__class__ is int:
            return dim
        found = self.simple.get(dim)
        if found is None:
            found = self.simple[dim] = self.facts.simplify(dim)
        return found

    def shape(self, dims: Sequence[Dim]) -> Index:
        key = tuple(dims)
        found = self.shapes.get(key)
        if found is None:
            found = self.shapes[key] = tuple(map(self.simplify, key))
        return found

    def same(self, a: Dim, b: Dim) -> bool:
        """Are the sizes known to be equal?"""
        if a is b or (a.__class__ is int and b.__class__ is int):
            return a == b
        found = self.equal.get((a, b))
        if found is None:
            found = self.equal[a, b] = self.known(eq(a, b))
        return found

    def known(self, condition: Condition | bool) -> bool:
        return condition if isinstance(condition, bool) else self.facts.known(condition) is True

    def is_one(self, dim: Dim) -> bool:
        return dim == 1 if dim.__class__ is int else self.same(dim, 1)


def dot(index: Sequence[Dim], strides: Sequence[Dim]) -> Dim:
    """The element in memory that an index means."""
    result: Dim = 0
    for i, stride in zip(index, strides, strict=True):
        if i.__class__ is not int or i:
            step = i if stride.__class__ is int and stride == 1 else i * stride
            result = step if result.__class__ is int and not result else result + step
    return result


def broadcast_index(sizes: Sizes, index: Index, shape: Index, inner: Index) -> Index:
    """The index into an operand of shape ``inner`` for an index into the broadcast ``shape``.

    A size that may be 1 or not gets a stride computed by the host: 0 where it is 1.
    """
    if inner == shape:
        return index
    skip = len(shape) - len(inner)
    result: list[Dim] = []
    for i, outer, own in zip(index[skip:], shape[skip:], inner, strict=True):
        if own is outer or own == outer:
            result.append(i)
        elif sizes.is_one(own):
            result.append(0)
        elif sizes.same(own, outer):
            result.append(i)
        else:
            result.append(i * minimum(maximum(own - 1, 0), 1))
    return tuple(result)


def blocks(
    sizes: Sizes, inner: Index, outer: Index
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Groups of dims of two shapes that hold the same elements, in order, as small as they can
    be.
    """
    lengths = {product: n for n, product in reversed(list(enumerate(_prefixes(sizes, inner))))}
    ends = _prefixes(sizes, outer)
    groups = []
    last_inner = last_outer = 0
    for n, end in enumerate(ends):
        m = lengths.get(end)
        if m is None or n + 1 <= last_outer or m + 1 <= last_inner:
            continue
        groups.append((tuple(range(last_inner, m + 1)), tuple(range(last_outer, n + 1))))
        last_inner, last_outer = m + 1, n + 1
    if last_inner < len(inner) or last_outer < len(outer):
        rest = (tuple(range(last_inner, len(inner))), tuple(range(last_outer, len(outer))))
        if rest[0] and rest[1]:
            groups.append(rest)
        elif groups:
            groups[-1] = (groups[-1][0] + rest[0], groups[-1][1] + rest[1])
    return groups


def _prefixes(sizes: Sizes, shape: Index) -> list[Dim]:
    result: list[Dim] = []
    step: Dim = 1
    for size in shape:
        step = sizes.simplify(step * size)
        result.append(step)
    return result


def reshape_index(
    sizes: Sizes, extents: Extents, index: Index, outer: Index, inner: Index
) -> Index:
    """The index into shape ``inner`` of the element at ``index`` in shape ``outer`` (row-major
    both).
    """
    if outer == inner:
        return index
    key = (index, outer, inner, tuple(extents.items()))
    found = sizes.reshaped.get(key)
    if found is None:
        found = sizes.reshaped[key] = _reshaped(sizes, extents, index, outer, inner)
    return found


def _reshaped(sizes: Sizes, extents: Extents, index: Index, outer: Index, inner: Index) -> Index:
    result: list[Dim] = [0] * len(inner)
    if 0 in outer or 0 in inner:
        return tuple(result)
    wide_inner = [d for d, size in enumerate(inner) if size != 1]
    wide_outer = [d for d, size in enumerate(outer) if size != 1]
    shape_in = tuple(inner[d] for d in wide_inner)
    shape_out = tuple(outer[d] for d in wide_outer)
    for ins, outs in blocks(sizes, shape_in, shape_out):
        strides = row_major([shape_out[d] for d in outs])
        linear = dot([index[wide_outer[d]] for d in outs], strides)
        parts = split(sizes, extents, linear, [shape_in[d] for d in ins])
        for d, part in zip(ins, parts, strict=True):
            result[wide_inner[d]] = part
    return tuple(result)


def split(sizes: Sizes, extents: Extents, index: Dim, shape: Sequence[Dim]) -> Index:
    """A row-major index taken apart: ``64*i + j`` by ``(n, 64)`` is ``(i, j)`` where ``j < 64``."""
    parts: list[Dim] = []
    rest = index
    for position in range(len(shape) - 1, 0, -1):
        quotient, remainder = _divide(sizes, extents, rest, shape[: position + 1])
        parts.append(remainder)
        rest = quotient
    return (rest, *reversed(parts))


def _divide(sizes: Sizes, extents: Extents, index: Dim, shape: Sequence[Dim]) -> tuple[Dim, Dim]:
    """``index // shape[-1]`` and ``index % shape[-1]``."""
    by = shape[-1]
    if index.__class__ is int and by.__class__ is int:
        return divmod(index, by)
    quotient, rest = _exact(index, by)
    if _below(sizes, extents, rest, by):
        return quotient, rest
    if _below(sizes, extents, rest + by, by):  # an axis that runs backwards
        return quotient - 1, rest + by
    symbol = rest.symbol if rest.__class__ is Expr else None
    if sizes.refines:
        if symbol is not None and symbol in extents and quotient == 0:
            if sizes.same(numel(shape), extents[symbol]):
                raise Refine(symbol, tuple(shape))
        _refine_across(extents, rest, by)
    return quotient + sizes.facts.simplify(floordiv(rest, by)), sizes.facts.simplify(mod(rest, by))


def _refine_across(extents: Extents, rest: Dim, by: Dim) -> None:
    """Asks to split an axis that crosses multiples of ``by``: ``3*i`` by 9 where ``i < 6`` is (2,
    3).
    """
    for axis, signed_step in (terms_of(rest, extents) or {}).items():
        step = -signed_step if _magnitude_sign(signed_step) < 0 else signed_step
        inner, left = _exact(by, step)
        if left != 0 or inner in (0, 1):
            continue
        outer, left = _exact(extents[axis], inner)
        if left == 0 and outer not in (0, 1):
            raise Refine(axis, (outer, inner))


def _magnitude_sign(dim: Dim) -> int:
    """The sign of a product of sizes; 0 where the form does not tell."""
    if isinstance(dim, int):
        return (dim > 0) - (dim < 0)
    signs = {(c > 0) - (c < 0) for c in dim.terms.values()}
    return signs.pop() if len(signs) == 1 and not dim.constant else 0


def _exact(index: Dim, by: Dim) -> tuple[Dim, Dim]:
    """``index == quotient * by + rest``, as much in the quotient as divides term by term."""
    if isinstance(index, int):
        return (index // by, index % by) if isinstance(by, int) else (0, index)
    quotient: Dim = 0
    rest: Dim = 0
    for monomial, coefficient in index.terms.items():
        part = _term_quotient(monomial, coefficient, by)
        if part is None:
            rest = rest + _term(monomial, coefficient)
        else:
            quotient = quotient + part
    if isinstance(by, int):
        return quotient + index.constant // by, rest + index.constant % by
    return quotient, rest + index.constant


def _term(monomial: Monomial, coefficient: int) -> Dim:
    result: Dim = coefficient
    for atom in monomial:
        result = result * atom.expr
    return result


def _term_quotient(monomial: Monomial, coefficient: int, by: Dim) -> Dim | None:
    if isinstance(by, int):
        return _term(monomial, coefficient // by) if coefficient % by == 0 else None
    if len(by.terms) != 1 or by.constant:
        return None
    ((factors, scale),) = by.terms.items()
    if coefficient % scale:
        return None
    left = list(monomial)
    for atom in factors:
        if atom not in left:
            return None
        left.remove(atom)
    return _term(tuple(left), coefficient // scale)


def _below(sizes: Sizes, extents: Extents, index: Dim, bound: Dim) -> bool:
    """Is ``0 <= index < bound`` known from the extents of its axes?"""
    if isinstance(index, int):
        return index == 0 or (index > 0 and sizes.known(lt(index, bound)))
    lowest: Dim = index.constant
    highest: Dim = index.constant
    for monomial, coefficient in index.terms.items():
        axes = [atom for atom in monomial if atom in extents]
        if len(axes) > 1:
            return False
        last: Dim = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol) and atom in extents:
                last = last * (extents[atom] - 1)
            else:
                last = last * atom.expr
        if not axes or coefficient < 0:
            lowest = lowest + last
        if not axes or coefficient > 0:
            highest = highest + last
    return sizes.known(lt(highest, bound)) and sizes.known(ge(lowest, 0))


def terms_of(index: Dim, extents: Extents) -> dict[Symbol, Dim] | None:
    """The coefficient of each axis in an index; None where it is not affine in the axes."""
    result: dict[Symbol, Dim] = {}
    if isinstance(index, int) or not extents:
        return result
    moving, _ = split_since(index, min(axis.index for axis in extents))
    for monomial, coefficient in moving.items():
        if len(monomial) == 1 and not monomial[0].word and monomial[0] not in extents:
            continue
        axes = [atom for atom in monomial if isinstance(atom, Symbol) and atom in extents]
        if not axes:
            if any(not extents.keys().isdisjoint(atom.symbols) for atom in monomial):
                return None
            continue
        if len(axes) != 1:
            return None
        rest: Dim = coefficient
        for atom in monomial:
            if atom is axes[0]:
                continue
            if not extents.keys().isdisjoint(atom.symbols):
                return None
            rest = rest * atom.expr
        result[axes[0]] = result.get(axes[0], 0) + rest
    return result


def covers(sizes: Sizes, extents: Extents, index: Dim, size: Dim) -> tuple[Symbol, ...] | None:
    """The axes, outermost first, if ``index`` takes each value below ``size`` once as they run."""
    if isinstance(index, int):
        return () if index == 0 and sizes.is_one(size) else None
    if index.constant:  # past the end: what is read there is chosen away
        return None
    if sizes.is_one(size):
        steps = terms_of(index, extents)
        if steps is None or len(steps) != len(index.terms):  # loaded integers
            return None
        return () if all(sizes.is_one(extents[axis]) for axis in steps) else None
    if index.symbol is not None and index.symbol in extents:
        return (index.symbol,) if sizes.same(extents[index.symbol], size) else None
    coefficients = terms_of(index, extents)
    if not coefficients or len(coefficients) != len(index.terms):
        return None
    left = dict(coefficients)
    expected: Dim = 1
    order: list[Symbol] = []
    while left:
        axis = next((a for a, c in left.items() if sizes.same(c, expected)), None)
        if axis is None:
            return None
        del left[axis]
        order.append(axis)
        expected = sizes.simplify(expected * extents[axis])
    return tuple(reversed(order)) if sizes.same(expected, size) else None


def covers_all(
    sizes: Sizes, extents: Extents, index: Index, shape: Index
) -> tuple[Symbol, ...] | None:
    """The axes that run over every element of ``shape`` exactly once through ``index``, or None."""
    result: list[Symbol] = []
    for i, size in zip(index, shape, strict=True):
        axes = covers(sizes, extents, i, size)
        if axes is None:
            return None
        result.extend(axes)
    return tuple(result) if len(set(result)) == len(result) else None
