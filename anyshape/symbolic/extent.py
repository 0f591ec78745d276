"""Bounds that are expressions: how large a size that data decides can be, in sizes known earlier.

A buffer whose size only the device knows is allocated at such a bound: `nonzero(x)` has at most
`numel(x)` rows, and what is masked out of that has no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from anyshape.symbolic.atoms import Atom, Monomial, Symbol, deep
from anyshape.symbolic.expr import BUILDERS, Dim, Expr, floordiv, maximum, minimum, total
from anyshape.symbolic.knowledge import KnownFacts
from anyshape.symbolic.ranges import bounds_of
from anyshape.symbolic.simplify import simplified

Allowed: TypeAlias = Callable[[Symbol], bool]

STEPS = 6  # facts used one after the other
FACTS = 8  # about one symbol


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
