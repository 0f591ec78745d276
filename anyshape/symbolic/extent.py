"""Bounds that are expressions: how large a size that data decides can be, in sizes known earlier.

A buffer whose size only the device knows is allocated at such a bound: `nonzero(x)` has at most
`numel(x)` rows, and what is masked out of that has no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from anyshape.symbolic.atoms import Atom, Monomial, Symbol, deep
from anyshape.symbolic.conditions import AnyOf, Relation
from anyshape.symbolic.expr import BUILDERS, Dim, Expr, floordiv, maximum, minimum, total
from anyshape.symbolic.knowledge import KnownFacts
from anyshape.symbolic.ranges import bounds_of
from anyshape.symbolic.simplify import simplified

Allowed: TypeAlias = Callable[[Symbol], bool]

STEPS = 6  # facts used one after the other
FACTS = 8  # about one symbol
FOLLOWED = 64  # symbols above one another


def upper(facts: KnownFacts, dim: Dim, allowed: Allowed, steps: int = STEPS) -> Dim | None:
    """An expression over allowed symbols never less than the dim, if one is found."""
    dim = simplified(facts, dim)
    if isinstance(dim, int) or all(map(allowed, dim.symbols)):
        return dim
    if steps:
        found = _by_fact(facts, dim, allowed)
        if found is not None:
            return found
    parts: list[Dim] = [dim.constant]
    for monomial, c in dim.terms.items():
        if c > 0:
            bound = _product(facts, monomial, allowed, steps, 1)
        else:
            bound = _product(facts, monomial, allowed, steps, -1)
        if bound is None:
            return bounds_of(facts, dim, 1)[1]
        parts.append(c * bound)
    return simplified(facts, total(parts))


def lower(facts: KnownFacts, dim: Dim, allowed: Allowed, steps: int = STEPS) -> Dim | None:
    """An expression over allowed symbols never more than the dim, if one is found."""
    found = upper(facts, -dim, allowed, steps)
    return None if found is None else -found


def _by_fact(facts: KnownFacts, dim: Expr, allowed: Allowed) -> Dim | None:
    """A fact that leaves only allowed symbols: u + v <= s bounds u + v + t by s + t."""
    for form in facts.links_of(dim, FACTS):
        lo, hi = facts.range_of(form)
        for monomial, c in form.terms.items():
            wanted = dim.terms.get(monomial, 0)
            if not wanted or wanted % c:
                continue
            factor = wanted // c
            end = hi if factor > 0 else lo
            rest = dim - factor * form
            if end is not None and (isinstance(rest, int) or all(map(allowed, rest.symbols))):
                return simplified(facts, rest + factor * end)
    return None


def _product(
    facts: KnownFacts, monomial: Monomial, allowed: Allowed, steps: int, sign: int
) -> Dim | None:
    """A bound of a product from above (sign 1) or below (sign -1)."""
    if len(monomial) == 1:
        return _atom(facts, monomial[0], allowed, steps, sign)
    result: Dim = 1
    for atom in monomial:
        if (bounds_of(facts, atom.expr)[0] or 0) < 0 or bounds_of(facts, atom.expr)[0] is None:
            return None
        bound = _atom(facts, atom, allowed, steps, sign)
        if bound is None:
            return None
        result = bound * result if sign > 0 else maximum(bound, 0) * result
    return result


def _atom(facts: KnownFacts, atom: Atom, allowed: Allowed, steps: int, sign: int) -> Dim | None:
    if all(map(allowed, atom.symbols)):
        return atom.expr
    found = None
    if isinstance(atom, Symbol):
        found = _symbol(facts, atom, allowed, steps, sign) if steps else None
    elif deep(atom):
        return None
    elif atom.word == "//" and isinstance(atom.args[1], int):
        inside = _either(facts, atom.args[0], allowed, steps, sign)
        found = None if inside is None else floordiv(inside, atom.args[1])
    elif atom.word in ("min", "max", "broadcast"):
        found = _choice(facts, atom, allowed, steps, sign)
    end = bounds_of(facts, atom.expr, 1)[sign > 0]
    if found is None or end is None:
        return end if found is None else found
    best = bounds_of(facts, found, 1)[sign > 0]
    if best is not None and (best <= end if sign > 0 else best >= end):
        return found
    return minimum(found, end) if sign > 0 else maximum(found, end)


def _either(facts: KnownFacts, dim: Dim, allowed: Allowed, steps: int, sign: int) -> Dim | None:
    return (upper if sign > 0 else lower)(facts, dim, allowed, steps)


def _choice(facts: KnownFacts, atom: Atom, allowed: Allowed, steps: int, sign: int) -> Dim | None:
    bounds = [_either(facts, arg, allowed, steps, sign) for arg in atom.args]
    found = [bound for bound in bounds if bound is not None]
    word = atom.word
    if word == "broadcast":
        word = "max" if sign > 0 else "min"
    one_is_enough = word == ("min" if sign > 0 else "max")
    if not found or (len(found) < len(bounds) and not one_is_enough):
        return None
    return BUILDERS[word](*found)


def _symbol(
    facts: KnownFacts, symbol: Symbol, allowed: Allowed, steps: int, sign: int
) -> Dim | None:
    """From lo <= c*symbol + rest <= hi: the first such fact whose rest has a bound."""
    for form in facts.links_of(symbol.expr, FACTS):
        c = form.terms.get(symbol.unit)
        if c is None:
            continue
        lo, hi = facts.range_of(form)
        end = hi if (c > 0) == (sign > 0) else lo
        if end is None:
            continue
        goal = (end - (form - c * symbol.expr)) * (1 if c > 0 else -1)
        if not isinstance(goal, int) and symbol in goal.symbols:
            continue
        bound = _either(facts, goal, allowed, steps - 1, sign)
        if bound is not None:
            return floordiv(bound, abs(c)) if sign > 0 else -floordiv(-bound, abs(c))
    return None


class Ceilings:
    """Which sizes these facts could bound others by: the engine is asked only where it has a
    chance. Each symbol is looked up once; the facts do not grow meanwhile.

        u <= m, v <= m   ->   `u` has `m` above it, and so has `v`; nothing bounds `m`

    What mentions `m` may be known to be at least `u`; what mentions `v` alone cannot be, as `u`
    grows while `v` stays. An answer of True promises nothing: an operation that is not looked into,
    or a bound that is a constant, is True. Where only several facts in a circle bound a size, False
    may be said of what an elimination would prove.
    """

    def __init__(self, facts: KnownFacts) -> None:
        self.facts = facts
        self.next: dict[Symbol, frozenset[Symbol] | None] = {}
        self.all: dict[Symbol, frozenset[Symbol] | None] = {}

    def may_reach(self, size: Dim, room: Dim) -> bool:
        """Could the facts say that ``room`` is at least ``size``? Every symbol that makes the size
        larger must be in the room, or have something above it that is, or that the size takes away
        again."""
        if isinstance(size, int):
            return True
        ends = set() if isinstance(room, int) else set(room.symbols)
        growing: set[Symbol] = set()
        for monomial, c in size.terms.items():
            if c > 0:
                growing.update(atom for atom in monomial if isinstance(atom, Symbol))
            else:
                ends.update(*[atom.symbols for atom in monomial])
        return all(
            (above := self._above(symbol)) is None or not above.isdisjoint(ends)
            for symbol in growing - ends
        )

    def _above(self, symbol: Symbol) -> frozenset[Symbol] | None:
        """What lies above it, in as many steps as it takes; None where anything may."""
        if symbol not in self.all:
            self.all[symbol] = self._found_above(symbol)
        return self.all[symbol]

    def _found_above(self, symbol: Symbol) -> frozenset[Symbol] | None:
        found, waiting = {symbol}, [symbol]
        for one in waiting:  # grows while it is read
            direct = self._directly_above(one)
            if direct is None or len(found) > FOLLOWED:
                return None
            waiting += direct - found
            found |= direct
        return frozenset(found)

    def _directly_above(self, symbol: Symbol) -> frozenset[Symbol] | None:
        if symbol not in self.next:
            self.next[symbol] = self._said_above(symbol)
        return self.next[symbol]

    def _said_above(self, symbol: Symbol) -> frozenset[Symbol] | None:
        facts = self.facts
        value = facts.value_of(symbol)
        if isinstance(value, Expr):
            return value.symbols
        constant = value is not None or facts.range_of(symbol.expr)[1] is not None
        if constant or facts.in_long.get(symbol):
            return None
        found: set[Symbol] = set()
        for fact in facts.facts_at(symbol):
            if isinstance(fact, AnyOf):
                found |= fact.symbols
            elif self._bounds(form := fact.form if isinstance(fact, Relation) else fact, symbol):
                if _of_one_sign(form):
                    return None
                found |= form.symbols
        return frozenset(found)

    def _bounds(self, form: Expr, symbol: Symbol) -> bool:
        """Does the range of the form say how large the symbol can be?"""
        low, high = self.facts.range_of(form)
        return any(
            (symbol in monomial and (high if c > 0 else low) is not None)
            or any(atom.word and symbol in atom.symbols for atom in monomial)
            for monomial, c in form.terms.items()
        )


def _of_one_sign(form: Expr) -> bool:
    """Then a bound of the form is one of each term, and no symbol lies above another."""
    return len({c > 0 for c in form.terms.values()}) == 1
