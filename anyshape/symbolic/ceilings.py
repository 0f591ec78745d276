"""Which sizes facts could bound others by: what is asked of the engine only where it has a chance.

    u <= m, v <= m   ->   `u` has `m` above it, and so has `v`; nothing bounds `m`

What mentions `m` may be known to be at least `u`; what mentions `v` alone cannot be, as `u` grows
while `v` stays. An answer of True promises nothing, so that a planner that compares many sizes asks
few questions: an operation that is not looked into, or a bound that is a constant, is True. Where
only several facts in a circle bound a size, False may be said of what an elimination would prove.
"""

from __future__ import annotations

from anyshape.symbolic.atoms import Symbol
from anyshape.symbolic.conditions import AnyOf, Relation
from anyshape.symbolic.expr import Dim, Expr
from anyshape.symbolic.knowledge import KnownFacts

MANY = 64  # symbols above one another that are followed


class Ceilings:
    """What lies above symbols by these facts, each looked up once; the facts do not grow
    meanwhile."""

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
            if direct is None or len(found) > MANY:
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
