"""The consequences of a new fact: ranges get smaller, equalities substitute, neighbours hear of it.

`learn` raises `Refuted` when a consequence is false. What a fact implies for the range of each of
its terms is drawn at once, so that a question about one symbol is answered by looking up its
range.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import gcd

from anyshape.symbolic.atoms import Atom, Symbol, age
from anyshape.symbolic.conditions import (
    AllOf,
    AnyOf,
    Condition,
    Relation,
    any_of,
    eq,
    ge,
    le,
    ne,
)
from anyshape.symbolic.decide import quick
from anyshape.symbolic.expr import Dim, Expr, divide
from anyshape.symbolic.knowledge import KnownFacts, Refuted, Why
from anyshape.symbolic.ranges import (
    Bounds,
    Congruence,
    bounds_of,
    canonical,
    congruence_of,
    highest,
    intersect,
    lowest,
    monomial_bounds,
)
from anyshape.symbolic.simplify import (
    alternatives_simplified,
    common_factor,
    not_zero,
    relation_simplified,
    simplified,
    two_factors,
)
from anyshape.symbolic.substitution import substitute

RELATIONS = {"eq": eq, "ge": ge, "le": le, "ne": ne}
EQUATIONS = 64  # facts about one symbol looked at again when it is known not to be 0
NEIGHBOURS = 8  # facts about one symbol that hear of its new range
LONG = 256  # terms of a sum that do not hear of each other's ranges
SHORT = 4  # terms of a form whose least value is asked for, where it is not that one
FARTHEST = 1 << 100  # a bound past it follows from what cannot be, and is none


def learn(facts: KnownFacts, condition: Condition | bool, why: Why) -> None:
    """Adds a condition and what follows from it."""
    if isinstance(condition, bool):
        if not condition:
            raise Refuted(why)
    elif isinstance(condition, AllOf):
        for part in condition.parts:
            learn(facts, part, why)
    elif isinstance(condition, AnyOf):
        _learn_alternatives(facts, condition, why)
    else:
        now = relation_simplified(facts, condition)
        if now is not condition:
            why += facts.trace(lambda: relation_simplified(facts, condition))
        if isinstance(now, bool):
            learn(facts, now, why)
        elif quick(facts, now) is not True:
            _learn_relation(facts, now, why)


def _learn_alternatives(facts: KnownFacts, condition: AnyOf, why: Why) -> None:
    possible: list[Condition] = []
    for part in condition.parts:
        answer = facts.known(part)
        if answer is True:
            return
        if answer is None:
            possible.append(part)
        else:
            why += facts.trace(partial(facts.decide, part))
    said = any_of(*possible)
    fact = alternatives_simplified(facts, said)
    if fact is not said:
        why += facts.trace(lambda: alternatives_simplified(facts, said))
    if not isinstance(fact, AnyOf):
        learn(facts, fact, why)
        return
    facts.alternatives[fact] = why
    facts.answers[fact] = True
    facts.link(fact)
    facts.change(fact)


def _learn_relation(facts: KnownFacts, relation: Relation, why: Why) -> None:
    form, bound = relation.form, relation.bound
    facts.answers[relation] = True
    match relation.kind:
        case "ge":
            narrow(facts, form, bound, None, why)
        case "le":
            narrow(facts, form, None, bound, why)
        case "ne" if _factors_not_zero(facts, form, bound, why):
            pass
        case "ne":
            _link(facts, form)
            facts.holes[form] = (*(facts.holes.get(form) or ()), (bound, why))
            facts.change(form)
            _narrow_past(facts, form, bound, why)
        case "eq":
            if bound or not _cancelled(facts, form, why):
                narrow(facts, form, bound, bound, why)


def _narrow_past(facts: KnownFacts, form: Expr, hole: int, why: Why) -> None:
    """Draws what follows from a value that the form does not have: x % 2 != 1 says that it is 0,
    and x != min(x, 1) that x > min(x, 1), of which ranges do not know that it is no less."""
    lo, hi = bounds_of(facts, form)
    least = ge(form, hole)
    if hole not in (lo, hi) and form.depth and len(form.terms) <= SHORT and facts.known(least):
        why = tuple(dict.fromkeys(why + facts.trace(partial(facts.decide, least))))
        narrow(facts, form, hole + 1, None, why)
        return
    if hole not in (lo, hi):
        narrow(facts, form, None, None, why)
        return
    why = tuple(dict.fromkeys(why + facts.trace(partial(bounds_of, facts, form))))
    narrow(facts, form, hole + 1 if hole == lo else lo, hole - 1 if hole == hi else hi, why)


def narrow(facts: KnownFacts, form: Expr, lo: int | None, hi: int | None, why: Why) -> None:
    """Makes the range of a form smaller, then what follows for others."""
    old_lo, old_hi, old_why = facts.range_with_source(form)
    stated = highest(lo, old_lo), lowest(hi, old_hi)
    new_lo, new_hi = _tight(facts, form, *stated)
    if new_lo == old_lo and new_hi == old_hi:
        return
    if old_why:
        why = tuple(dict.fromkeys(old_why + why))
    if (new_lo, new_hi) != stated:
        why = tuple(dict.fromkeys(why + _behind_gaps(facts, form)))
    if new_lo is not None and new_hi is not None and new_lo > new_hi:
        raise Refuted(why)
    _link(facts, form)
    facts.ranges[form] = (new_lo, new_hi, why)
    if form.symbol is not None:
        facts.note_move(form.symbol)
    facts.change(form)
    if new_lo is not None and new_lo == new_hi:
        _solve(facts, form, new_lo, why)
        return
    if new_lo is not None and new_lo >= 1:
        if len(form.terms) == 1 and form.atom is None:
            _factors_positive(facts, form, why)
        if form.symbol is not None and (old_lo is None or old_lo < 1):
            _not_zero_now(facts, form.symbol)
    _spread(facts, form)


def _tight(facts: KnownFacts, form: Expr, lo: int | None, hi: int | None) -> Bounds:
    """Moves bounds inward past excluded values and to the known residue; a size is at least 0."""
    symbol = form.symbol
    if symbol is not None and not symbol.signed:
        lo = highest(lo, 0)
    congruence = facts.congruences.get(form)
    if congruence is not None and congruence[0]:
        modulus, residue, _ = congruence
        lo = None if lo is None else lo + (residue - lo) % modulus
        hi = None if hi is None else hi - (hi - residue) % modulus
    holes = facts.holes.get(form)
    if holes:
        excluded = {hole for hole, _ in holes}
        while lo in excluded:
            lo += 1
        while hi in excluded:
            hi -= 1
    return lo, hi


def _behind_gaps(facts: KnownFacts, form: Expr) -> Why:
    """The facts that exclude values of the form."""
    congruence = facts.congruences.get(form)
    found: Why = () if congruence is None else congruence[2]
    for _, why in facts.holes.get(form) or ():
        found += why
    return found


def _spread(facts: KnownFacts, form: Expr) -> None:
    """Tells the terms of a sum, or the sums that a symbol is in, of a new range."""
    if facts.budget <= 0:
        return
    if len(form.terms) > 1:
        facts.budget -= 1
        _narrow_terms(facts, form)
    elif form.symbol is not None:
        for fact in facts.links_at(form.symbol, NEIGHBOURS):
            if isinstance(fact, Expr) and len(fact.terms) > 1:
                facts.budget -= 1
                _narrow_terms(facts, fact)


def _narrow_terms(facts: KnownFacts, form: Expr) -> None:
    """From lo <= c*x + rest <= hi and the range of the rest, the range of each term x."""
    lo, hi, why = facts.range_with_source(form)
    if len(form.terms) > LONG or (lo is None and hi is None):
        return
    ranges: list[Bounds] = []
    for monomial, c in form.terms.items():
        low, high = monomial_bounds(facts, monomial, 0)
        low, high = (None if low is None else low * c), (None if high is None else high * c)
        ranges.append((low, high) if c > 0 else (high, low))
    least = _sums([low for low, _ in ranges])
    most = _sums([high for _, high in ranges])
    for (monomial, c), (low, high), less, more in zip(
        list(form.terms.items()), ranges, least, most, strict=True
    ):
        up = None if hi is None or less is None else hi - less
        down = None if lo is None or more is None else lo - more
        better_up = up is not None and (high is None or up < high)
        better_down = down is not None and (low is None or down > low)
        if not better_up and not better_down:
            continue
        x = form.space.term(monomial)
        new_lo, new_hi = (down if better_down else None), (up if better_up else None)
        if c < 0:
            new_lo, new_hi = new_hi, new_lo
        new_lo = None if new_lo is None else _near(-(-new_lo // c))
        new_hi = None if new_hi is None else _near(new_hi // c)
        others = facts.trace(partial(_about_others, facts, form, monomial))
        narrow(facts, x, new_lo, new_hi, tuple(dict.fromkeys(why + others)))


def _near(bound: int) -> int | None:
    """A bound that says something: what cannot be, as `x >= 2*y >= 4*x + 1`, moves others without
    end, and their numbers would have twice as many digits after each step."""
    return bound if abs(bound) < FARTHEST else None


def _about_others(facts: KnownFacts, form: Expr, skip: tuple[Atom, ...]) -> None:
    for monomial in form.terms:
        if monomial is not skip:
            monomial_bounds(facts, monomial, 0)


def _sums(values: list[int | None]) -> list[int | None]:
    """For each position the sum of the values at all others, None where one of them is."""
    missing = values.count(None)
    total = sum(value for value in values if value is not None)
    return [
        (total if missing == 1 else None) if value is None else (None if missing else total - value)
        for value in values
    ]


def _factors_positive(facts: KnownFacts, form: Expr, why: Why) -> None:
    """x*y >= 1 with neither negative: both are at least 1."""
    (monomial,) = form.terms
    if not any(_may_be_negative(facts, atom) for atom in monomial):
        for atom in dict.fromkeys(monomial):
            learn(facts, ge(atom.expr, 1), why + facts.sources_about(atom.expr))


def _factors_not_zero(facts: KnownFacts, form: Expr, bound: int, why: Why) -> bool:
    """x*y - x != 0: x != 0 and y != 1, which together say it again; so it is with the factors of
    x*y - x - z*y + z."""
    factors = common_factor(form) if form.atom is None and not bound else ()
    if not factors:
        pair = two_factors(form - bound)
        for factor in pair or ():
            learn(facts, ne(factor, 0), why)
        return pair is not None
    for atom in dict.fromkeys(factors):
        learn(facts, ne(atom.expr, 0), why)
    learn(facts, ne(divide(form, form.space.term(factors))[0], 0), why)
    return True


def _may_be_negative(facts: KnownFacts, atom: Atom) -> bool:
    lo = bounds_of(facts, atom.expr)[0]
    return lo is None or lo < 0


def _not_zero_now(facts: KnownFacts, symbol: Symbol) -> None:
    """Equations with a factor that is now known not to be 0 lose it."""
    for fact in list(facts.links_at(symbol, EQUATIONS)):
        if isinstance(fact, Expr):
            lo, hi, why = facts.range_with_source(fact)
            if lo is not None and lo == hi == 0:
                _cancelled(facts, fact, why)


def _cancelled(facts: KnownFacts, form: Expr, why: Why) -> bool:
    """x*y == x*z with x known not to be 0: y == z."""
    factors = common_factor(form) if form.atom is None else ()
    nonzero = tuple(atom for atom in factors if not_zero(facts, atom.expr))
    if not nonzero:
        return False
    for atom in nonzero:
        why += facts.trace(partial(not_zero, facts, atom.expr))
    learn(facts, eq(divide(form, form.space.term(nonzero))[0], 0), why)
    return True


def _link(facts: KnownFacts, form: Expr) -> None:
    """Makes a new form about more than one symbol, or an operation, findable from its symbols."""
    if form.symbol is not None:
        return
    if not any(table.get(form) for table in (facts.ranges, facts.holes, facts.congruences)):
        facts.link(form)


def _solve(facts: KnownFacts, form: Expr, bound: int, why: Why) -> None:
    """Replaces an atom by its value everywhere, if the equation form == bound gives it one."""
    target = _target(form)
    if target is None:
        _residues(facts, form, bound, why)
        _spread(facts, form)
        return
    value = target.expr - form.terms[target.unit] * (form - bound)
    facts.values[target] = (value, why)
    facts.solved = object()
    facts.change(target.expr)
    if target.word:
        relation = eq(target.expr, value)
        if isinstance(relation, Relation):
            facts.mention(relation)
    elif isinstance(target, Symbol) and not target.signed:
        learn(facts, ge(value, 0), why)
    _moved(facts, target.expr, value, why)
    for condition in implied(target, value):
        learn(facts, condition, why)
    if target.word == "%" and isinstance(value, int) and isinstance(target.args[1], int):
        _congruent(facts, target.args[0], target.args[1], value, why)
    for symbol in sorted(target.symbols, key=age):
        chain = facts.mentions.get(symbol)
        while chain is not None:
            fact, chain, _ = chain
            _renewed(facts, fact, target, why)
        for fact in facts.long_facts(symbol):
            _renewed(facts, fact, target, why)


def _moved(facts: KnownFacts, old: Expr, new: Dim, why: Why) -> None:
    """What was known of the old form holds of the new one."""
    lo, hi, more = facts.range_with_source(old)
    if lo is not None and lo == hi:
        learn(facts, eq(new, lo), why + more)
        return
    if lo is not None:
        learn(facts, ge(new, lo), why + more)
    if hi is not None:
        learn(facts, le(new, hi), why + more)
    for hole, more in facts.holes.get(old) or ():
        learn(facts, ne(new, hole), why + more)
    congruence = facts.congruences.get(old)
    if congruence is not None:
        _congruent(facts, new, congruence[0], congruence[1], why + congruence[2])


def _renewed(facts: KnownFacts, fact: Expr | AnyOf | Relation, target: Atom, why: Why) -> None:
    """Says a fact again in terms of a new equality. Where it is true by what it has said itself, of
    the form with the old symbol, its own form is given the new value, and nothing else."""
    if isinstance(fact, Expr):
        if target.word and not mentions(fact, target):
            return
        new = simplified(facts, fact)
        if isinstance(new, int) and isinstance(target, Symbol):
            new = _replaced(fact, target, facts.value_of(target))
        if new is not fact:
            _moved(facts, fact, new, why)
    elif isinstance(fact, AnyOf):
        either = alternatives_simplified(facts, fact)
        if either is not fact:
            learn(facts, either, why + facts.sources_of(fact))
    elif fact.form.atom is not target:
        relation = relation_simplified(facts, fact)
        if isinstance(relation, bool) and isinstance(target, Symbol):
            form = _replaced(fact.form, target, facts.value_of(target))
            relation = RELATIONS[fact.kind](form, fact.bound)
        if relation is not fact:
            learn(facts, relation, why)


def _replaced(fact: Expr, symbol: Symbol, value: Dim | None) -> Dim:
    """The form with the symbol's value in it, itself where that makes an operation undefined."""
    try:
        return fact if value is None else substitute(fact, {symbol: value})
    except (ZeroDivisionError, ValueError):
        return fact


def _residues(facts: KnownFacts, form: Expr, bound: int, why: Why) -> None:
    """a*x + g*y == bound: x has a residue modulo g when a has an inverse there."""
    for monomial, c in list(form.terms.items()):
        others = gcd(*(k for m, k in form.terms.items() if m is not monomial))
        if others > 1 and gcd(c, others) == 1:
            x = form.space.term(monomial)
            _congruent(facts, x, others, bound * pow(c, -1, others), why)


def _congruent(facts: KnownFacts, dim: Dim, modulus: int, residue: int, why: Why) -> None:
    """Learns dim == residue modulo modulus."""
    if isinstance(dim, int):
        if (dim - residue) % modulus if modulus else dim != residue:
            raise Refuted(why)
        return
    form, scale = canonical(dim)
    residue -= dim.constant
    common = gcd(scale, modulus)
    if residue % common:
        raise Refuted(why)
    modulus //= common
    residue = residue // common * pow(scale // common, -1, modulus) if modulus > 1 else 0
    new: Congruence | None = (modulus, residue % modulus) if modulus else (0, residue)
    old = facts.congruences.get(form)
    if old is not None:
        new = intersect((modulus, residue), old[:2])
        why = tuple(dict.fromkeys(old[2] + why))
    if new is None:
        raise Refuted(why)
    if new != (old[:2] if old is not None else (1, 0)):
        _link(facts, form)
        facts.congruences[form] = (*new, why)
        facts.change(form)
        narrow(facts, form, None, None, why)
        _congruent_inside(facts, form, *new, why)


def _congruent_inside(facts: KnownFacts, form: Expr, modulus: int, residue: int, why: Why) -> None:
    """x // c == r modulo m, and x == k modulo c: x == c*r + k modulo c*m."""
    atom = form.atom
    if atom is None or atom.word != "//":
        return
    inner, divisor = atom.args
    if not isinstance(inner, Expr) or not isinstance(divisor, int):
        return
    own, rest = congruence_of(facts, inner)
    if own % divisor == 0:
        why += facts.trace(partial(congruence_of, facts, inner))
        value = divisor * residue + rest % divisor
        _congruent(facts, inner, divisor * modulus, value, tuple(dict.fromkeys(why)))


def mentions(dim: Dim, atom: Atom) -> bool:
    """Whether the atom occurs in the dim, however deep."""
    return not isinstance(dim, int) and any(
        other is atom
        or (other.index > atom.index and any(mentions(arg, atom) for arg in other.args))
        for monomial in dim.terms
        for other in monomial
    )


def _target(form: Expr) -> Atom | None:
    """The atom that form == constant is best solved for: data's before arguments', the youngest.

    None where its value would have a size that is decided later than all of its own: what stands
    for a size must be known wherever that size is.
    """
    inside: set[Symbol] = set()  # of a product or an operation
    for monomial in form.terms:
        if len(monomial) > 1 or monomial[0].word:
            inside.update(*[atom.symbols for atom in monomial])
    best: Atom | None = None
    for monomial, c in form.terms.items():
        atom = monomial[0]
        if len(monomial) != 1 or abs(c) != 1 or (best is not None and _rank(atom) < _rank(best)):
            continue
        if isinstance(atom, Symbol):
            free = atom not in inside
        else:
            free = not any(
                mentions(other.expr, atom) for m in form.terms if m is not monomial for other in m
            )
        if free:
            best = atom
    return best if best is None or _latest(best.expr) >= _latest(form) else None


def _latest(expr: Expr) -> int:
    """The age of the last size in it that data decides, -1 where none does."""
    return max((s.index for s in expr.symbols if s.knowledge == "midrun"), default=-1)


def _rank(atom: Atom) -> tuple[bool, bool, bool, int]:
    if not isinstance(atom, Symbol):
        return (False, False, False, atom.index)
    return (True, atom.knowledge == "midrun", atom.policy == "unbacked", atom.index)


def implied(atom: Atom, value: Dim) -> Iterator[Condition | bool]:
    """What atom == value says beyond itself."""
    match atom.word:
        case "%" if isinstance(atom.args[1], int):
            yield ge(value, 0)
            yield le(value, atom.args[1] - 1)
        case "//" if isinstance(atom.args[1], int):
            yield ge(atom.args[0], atom.args[1] * value)
            yield le(atom.args[0], atom.args[1] * value + atom.args[1] - 1)
        case "min":
            yield from (ge(arg, value) for arg in atom.args)
            yield from _reached(atom, value)
        case "max":
            yield from (le(arg, value) for arg in atom.args)
            yield from _reached(atom, value)


def _reached(atom: Atom, value: Dim) -> Iterator[Condition | bool]:
    """min(x, 2) == 0 says that x is 0: where one argument alone can be the value, it is."""
    others = [arg for arg in atom.args if not isinstance(arg, int)]
    if isinstance(value, int) and value not in atom.args and len(others) == 1:
        yield eq(others[0], value)
