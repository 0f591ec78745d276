"""Relations between quotients of the same sizes, by what the sizes leave on division.

    8*s0*(s1 // 8) >= s0*(s1 // 2)   with s1 == 8*q + r   ->   8*s0*q >= s0*(4*q + r // 2)

In: a sum over products of sizes and of quotients by constants. Out: a lower bound of it. With the
least common multiple of the divisors as the modulus, each quotient is a multiple of q and what r
adds, which is constant between the few r where some quotient steps. In each such class the sum is a
polynomial in unknowns that are at least 0: where no coefficient is negative, its constant is the
bound. Neither search nor elimination is needed, whose steps grow with the degree.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import lcm, prod
from typing import TypeAlias

from anyshape.nouns import frozen
from anyshape.symbolic.atoms import Atom
from anyshape.symbolic.expr import Expr
from anyshape.symbolic.knowledge import KnownFacts
from anyshape.symbolic.linear import Steps
from anyshape.symbolic.polynomial import without_constant
from anyshape.symbolic.ranges import bounds_of

CLASSES = 96  # of what sizes leave, for one sum
STEPS_AT = 32  # of one size
GREATEST = 1 << 20  # of a modulus

Product: TypeAlias = tuple[tuple[int, int], ...]
Terms: TypeAlias = dict[Product, int]
"""Coefficients of products of unknowns that are at least 0, the empty product included. An unknown
is a kind (0 for what an atom is more than its least value, 1 for how often the modulus goes into a
size, 2 for what a size leaves past the begin of a class) and an index."""


@frozen
class _Divided:
    """A size x and its quotients (x + shift) // divisor, with their common modulus."""

    size: Expr
    quotients: tuple[tuple[Atom, int, int], ...]  # with shift and divisor
    modulus: int

    def steps(self) -> list[int]:
        """The remainders at which a quotient steps, 0 first."""
        found = {0}
        for _, shift, divisor in self.quotients:
            found.update(range(-shift % divisor, self.modulus, divisor))
        return sorted(found)


def least(facts: KnownFacts, dim: Expr, steps: Steps, wanted: int | None = None) -> int | None:
    """A bound that the sum is never below, as far as its quotients say; None where none was found,
    or only one below what is wanted."""
    found = _divided(dim)
    stepped = [divided.steps() for divided in found]
    count = prod(map(len, stepped))
    if not found or count > CLASSES or steps.left < count * len(dim.terms):
        return None
    values = _least_values(facts, dim, found)
    if values is None:
        return None
    lowest: int | None = None
    for remainders in product(*stepped):
        steps.left -= len(dim.terms)
        for divided, remainder in zip(found, remainders, strict=True):
            values.update(_values(facts, divided, remainder))
        bound = _least_of(dim, values)
        if bound is None or (wanted is not None and bound < wanted):
            return None
        lowest = bound if lowest is None else min(lowest, bound)
    return lowest


def _divided(dim: Expr) -> list[_Divided]:
    """The sizes that are divided by several constants; none where a quotient is of another kind."""
    grouped: dict[Expr, list[tuple[Atom, int, int]]] = {}
    for atom in dict.fromkeys(atom for monomial in dim.terms for atom in monomial):
        if atom.word != "//":
            continue
        size, divisor = atom.args
        if isinstance(size, int) or not isinstance(divisor, int) or divisor < 1:
            return []
        grouped.setdefault(without_constant(size), []).append((atom, size.constant, divisor))
    made = []
    for size, quotients in grouped.items():
        modulus = lcm(*(divisor for *_, divisor in quotients))
        if modulus > GREATEST or sum(modulus // divisor for *_, divisor in quotients) > STEPS_AT:
            return []
        made.append(_Divided(size, tuple(quotients), modulus))
    return made


def _least_values(facts: KnownFacts, dim: Expr, found: list[_Divided]) -> dict[Atom, Terms] | None:
    """Each atom but the quotients as its least value and an unknown; None where one has none."""
    values: dict[Atom, Terms] = {}
    quotients = {atom for divided in found for atom, *_ in divided.quotients}
    for atom in dict.fromkeys(atom for monomial in dim.terms for atom in monomial):
        if atom not in quotients:
            lo = bounds_of(facts, atom.expr)[0]
            if lo is None:
                return None
            values[atom] = _sum({(): lo, ((0, atom.index),): 1})
    for divided in found:
        lo = bounds_of(facts, divided.size)[0]
        if lo is None or lo < 0:
            return None
    return values


def _values(facts: KnownFacts, divided: _Divided, remainder: int) -> dict[Atom, Terms]:
    """The quotients, and the size if it is one symbol, where this or more is left, as little as
    makes no quotient step."""
    lo = bounds_of(facts, divided.size)[0]
    assert lo is not None
    least = lo // divided.modulus
    whole = ((1, divided.size.index),)
    values = {}
    for atom, shift, divisor in divided.quotients:
        scale = divided.modulus // divisor
        values[atom] = _sum({(): scale * least + (remainder + shift) // divisor, whole: scale})
    if divided.size.atom is not None:
        rest = ((2, divided.size.index),)
        size = {(): divided.modulus * least + remainder, whole: divided.modulus, rest: 1}
        values[divided.size.atom] = _sum(size)
    return values


def _sum(terms: Mapping[Product, int]) -> Terms:
    return {unknowns: c for unknowns, c in terms.items() if c}


def _least_of(dim: Expr, values: Mapping[Atom, Terms]) -> int | None:
    """The constant of the sum, if no coefficient is negative."""
    whole: Terms = {(): dim.constant}
    for monomial, c in dim.terms.items():
        term: Terms = {(): c}
        for atom in monomial:
            term = _times(term, values[atom])
        for unknowns, coefficient in term.items():
            whole[unknowns] = whole.get(unknowns, 0) + coefficient
    constant = whole.pop(())
    return constant if all(c >= 0 for c in whole.values()) else None


def _times(a: Terms, b: Terms) -> Terms:
    found: Terms = {}
    for one, c in a.items():
        for other, d in b.items():
            both = tuple(sorted(one + other))
            found[both] = found.get(both, 0) + c * d
    return found
