"""Expressions in simpler forms under facts.

Values are those of the given expression wherever it and the facts are defined and true. The rules
are `UNDER_FACTS` of `rules.py`; the functions here split sums and cancel factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import gcd, lcm, prod

from anyshape.symbolic.atoms import Atom, Monomial, deep, product_of, quotient_of
from anyshape.symbolic.conditions import AnyOf, Condition, Relation, any_of, eq, ge, gt, le, lt, ne
from anyshape.symbolic.expr import (
    ARITHMETIC,
    BUILDERS,
    Dim,
    Expr,
    divide,
    floordiv,
    maximum,
    minimum,
    mod,
    total,
)
from anyshape.symbolic.knowledge import KnownFacts
from anyshape.symbolic.ranges import bounds_of, congruence_of
from anyshape.symbolic.rules import UNDER_FACTS

LONG = 32  # terms of a sum of which it is remembered that it cannot be simplified

BUILD = {"eq": eq, "ne": ne, "ge": ge, "le": le}
SUMS = (4, 8)  # terms of a form that may be a product of two sums
RELATIONS = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def simplified(facts: KnownFacts, dim: Dim) -> Dim:
    """The same value under these facts, as simple as they allow."""
    if isinstance(dim, int) or _plain(facts, dim):
        return dim
    found = facts.recall(dim, dim)
    return facts.derive(dim, partial(_simplified, facts, dim)) if found is None else found


def _simplified(facts: KnownFacts, expr: Expr) -> Dim:
    found = _terms(facts, expr)
    return found if isinstance(found, int) else _folded(facts, found)


def _plain(facts: KnownFacts, expr: Expr) -> bool:
    """True when no atom can change: symbols only, none of them with a value."""
    if expr.parts is None and len(expr.terms) < LONG:
        return _all_plain(facts, expr)
    known = facts.plain.get(expr)
    if known is None or known[0] is not facts.solved:
        known = facts.plain[expr] = (facts.solved, _sum_plain(facts, expr))
    return known[1]


def _sum_plain(facts: KnownFacts, expr: Expr) -> bool:
    """For the next of some partial sums only what was added is looked at."""
    yes = (facts.solved, True)
    made: list[Expr] = []
    part = expr
    while part.parts is not None and facts.plain.get(part) != yes:
        made.append(part)
        part = part.parts[0]
    if facts.plain.get(part) != yes and not _all_plain(facts, part):
        return _all_plain(facts, expr)
    for later in reversed(made):
        assert later.parts is not None
        if not _plain(facts, later.parts[1]):
            return _all_plain(facts, expr)
        facts.plain[later] = yes
    return True


def _all_plain(facts: KnownFacts, expr: Expr) -> bool:
    return not expr.depth and facts.values.lacks(expr.symbols)


def _terms(facts: KnownFacts, expr: Expr) -> Dim:
    parts: list[Dim] = [expr.constant]
    for monomial, c in expr.terms.items():
        product: Dim = c
        for atom in monomial:
            product = _atom(facts, atom) * product
        parts.append(product)
    return total(parts)


def _atom(facts: KnownFacts, atom: Atom) -> Dim:
    value = facts.value_of(atom)
    if value is not None:
        return _value(facts, atom, value)
    if not atom.word or deep(atom):
        return atom.expr
    found = facts.recall(atom, atom)
    return facts.derive(atom, partial(_operation, facts, atom)) if found is None else found


def _value(facts: KnownFacts, atom: Atom, value: Dim) -> Dim:
    """What an equality gives the atom. A later one may have made the two sides of it the same:
    s1 // 5 == s2 // 5, and then s1 == s2."""
    if atom in facts.open:
        return atom.expr
    facts.use_value(atom)
    if not atom.word:
        return simplified(facts, value)
    facts.open.add(atom)
    try:
        return simplified(facts, value)
    finally:
        facts.open.discard(atom)


def _operation(facts: KnownFacts, atom: Atom) -> Dim:
    operands = [simplified(facts, arg) for arg in atom.args]
    try:
        rebuilt = BUILDERS[atom.word](*operands)
    except (ZeroDivisionError, ValueError):  # never defined under these facts
        return atom.expr
    made = None if isinstance(rebuilt, int) else rebuilt.atom
    if made is not atom:
        return simplified(facts, rebuilt)
    if atom.word in ("//", "%"):
        found = _quotient(facts, atom.word, *operands)
    else:
        found = _choice(facts, atom.word, operands)
    if found is None:
        return atom.expr
    return simplified(facts, found)


def _glance(facts: KnownFacts, op: str, operands: Sequence[Dim]) -> bool:
    return facts.quick(RELATIONS[op](*operands)) is True


def _ask(facts: KnownFacts, op: str, operands: Sequence[Dim]) -> bool:
    return facts.ask(RELATIONS[op](*operands)) is True


def _rule(facts: KnownFacts, word: str, operands: Sequence[Dim]) -> Dim | None:
    ask = _glance if word == "broadcast" else _ask  # equalities are substituted before we get here
    return UNDER_FACTS.rewrite(word, operands, ARITHMETIC, lambda op, xs: ask(facts, op, xs))


def _choice(facts: KnownFacts, word: str, operands: Sequence[Dim]) -> Dim | None:
    """Two operands of a min, max or broadcast joined to one, if facts choose: of all but the last
    one, for which it is remembered, else the last one and another."""
    *others, last = operands
    if len(others) > 1:
        without = BUILDERS[word](*others)
        found = simplified(facts, without)
        if found is not without:
            return BUILDERS[word](found, last)
    for position, x in enumerate(others):
        joined = _rule(facts, word, (x, last))
        if joined is not None:
            return BUILDERS[word](joined, *others[:position], *others[position + 1 :])
    return None


def _quotient(facts: KnownFacts, word: str, a: Dim, b: Dim) -> Dim | None:
    """A simpler a // b or a % b."""
    if isinstance(b, int):
        found = _by_constant(facts, word, a, b) if isinstance(a, Expr) else None
    else:
        found = _by_expression(facts, word, a, b)
    return _rule(facts, word, (a, b)) if found is None else found


def _by_constant(facts: KnownFacts, word: str, a: Expr, b: int) -> Dim | None:
    """a % b where it is known, a // b where the range says it; (x + k) // b with the k for which
    x + k is known to be a multiple of b."""
    modulus, residue = congruence_of(facts, a)
    if modulus % b == 0:
        facts.use_all(a)
        if word == "%":
            return residue % b
        if residue % b:
            return floordiv(a - residue % b, b)
    lo, hi = bounds_of(facts, a)
    if lo is not None and hi is not None and lo // b == hi // b:
        return lo // b if word == "//" else a - b * (lo // b)
    return _without_rest(facts, a, b) if word == "//" and b > 0 else None


def _without_rest(facts: KnownFacts, a: Expr, b: int) -> Dim | None:
    """(c*x + y) // (c*d) => (x + y // c) // d, where the range of y tells y // c."""
    for c in sorted({gcd(b, coefficient) for coefficient in a.terms.values()} - {1, b}):
        part = total([a.space.term(m, k // c) for m, k in a.terms.items() if k % c == 0])
        lo, hi = bounds_of(facts, a - c * part)
        if lo is not None and hi is not None and lo // c == hi // c:
            return floordiv(part + lo // c, b // c)
    return None


def _by_expression(facts: KnownFacts, word: str, a: Dim, b: Expr) -> Dim | None:
    """(q*b + r) // b => q + r // b, (x*y) // (z*y) => x // z, if b or y is known not to be 0."""
    if isinstance(a, int):
        return 0 if a == 0 and not_zero(facts, b) else None
    if a.constant == -1 and facts.quick(ge(b, 1)) is True:  # (x - 1) // b, rounded up otherwise
        return -1 - floordiv(-a - 1, b) if word == "//" else b - 1 - mod(-a - 1, b)
    whole, rest = divide(a, b)
    if whole != 0 and not_zero(facts, b):
        return whole + floordiv(rest, b) if word == "//" else mod(rest, b)
    for atom in common_factor(a, b):
        if not_zero(facts, atom.expr):
            small_a, small_b = divide(a, atom.expr)[0], divide(b, atom.expr)[0]
            if word == "//":
                return floordiv(small_a, small_b)
            return atom.expr * mod(small_a, small_b)
    return None


def common_factor(*exprs: Expr) -> Monomial:
    """The atoms that divide every term of every expression."""
    if any(expr.constant for expr in exprs):
        return ()
    first, *others = [monomial for expr in exprs for monomial in expr.terms]
    common = list(first)
    for monomial in others:
        left = list(monomial)
        kept = []
        for atom in common:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        common = kept
        if not common:
            break
    return tuple(common)


def two_factors(form: Dim) -> tuple[Expr, Expr] | None:
    """x*y - x - z*y + z => (x - z, y - 1): a short form as a product of two sums, of which one is
    linear in some factor of the first product of two."""
    if isinstance(form, int) or not SUMS[0] <= len(form.terms) + bool(form.constant) <= SUMS[1]:
        return None
    pair = next((monomial for monomial in form.terms if len(monomial) == 2), ())
    for atom in pair:
        times: list[Dim] = []
        for monomial, c in form.terms.items():
            if atom in monomial:
                others = list(monomial)
                others.remove(atom)
                if atom in others:
                    break
                times.append(form.space.term(tuple(others), c) if others else c)
        else:
            factor = total(times)
            if isinstance(factor, Expr) and len(factor.terms) + bool(factor.constant) > 1:
                quotient, rest = divide(form - factor * atom.expr, factor)
                other = atom.expr + quotient
                if rest == 0 and isinstance(other, Expr):
                    return other, factor
    return None


def not_zero(facts: KnownFacts, dim: Dim) -> bool:
    """True when facts show dim != 0, for a product factor by factor."""
    if isinstance(dim, int):
        return dim != 0
    if facts.quick(ne(dim, 0)) is True:
        return True
    factors = common_factor(dim)
    if not factors or dim.atom is not None:
        return False
    rest = divide(dim, dim.space.term(factors))[0]
    return not_zero(facts, rest) and all(not_zero(facts, atom.expr) for atom in set(factors))


def _folded(facts: KnownFacts, expr: Expr) -> Dim:
    """b*(a // b) + a % b => a, b*(a // b) => a - r where a % b is known to be r,
    a + -a % b => b*((a + b - 1) // b), the first multiple of b from a on,
    (a + b - 1) // b - a // b => min(a % b, 1), min(a, b)*max(a, b) => a*b, and the same of sums."""
    for monomial, c in expr.ordered_terms():
        for atom in monomial:
            if atom.word not in FOLDS:
                continue
            better = FOLDS[atom.word](facts, expr, monomial, c, atom)
            if better is not None:
                return simplified(facts, better)
    return expr


def _unfolded(facts: KnownFacts, expr: Expr, monomial: Monomial, c: int, atom: Atom) -> Dim | None:
    a, b = atom.args
    rest = quotient_of(monomial, atom.unit) or ()
    if isinstance(b, int):
        scale, uneven = divmod(c, b)
        if uneven:
            return _up_and_down(expr, monomial, c, atom)
    else:
        divisor = next(iter(b.terms)) if len(b.terms) == 1 and not b.constant else None
        inside = quotient_of(rest, divisor) if divisor else None
        factor = next(iter(b.terms.values()))
        if inside is None or c % factor or not not_zero(facts, b):
            return None
        rest, scale = inside, c // factor
    others: Dim = expr.space.term(rest, scale) if rest else scale
    remainder = simplified(facts, mod(a, b))
    better = expr - expr.space.term(monomial, c) + others * (a - remainder)
    if isinstance(remainder, int):
        return better
    count = 0 if isinstance(better, int) else len(better.terms)
    return better if count < len(expr.terms) else None


def _up_and_down(expr: Expr, monomial: Monomial, c: int, atom: Atom) -> Dim | None:
    """The sum with min(a % b, 1) instead of (a + b - 1) // b - a // b."""
    a, b = atom.args
    if not isinstance(b, int) or isinstance(a, int) or a.constant < b - 1:
        return None
    down = floordiv(a - (b - 1), b)
    if isinstance(down, int) or down.atom is None:
        return None
    other = _with_atom(monomial, atom, down.atom)
    if expr.terms.get(other) != -c:
        return None
    space, rest = expr.space, quotient_of(monomial, atom.unit) or ()
    without = expr - space.term(monomial, c) + space.term(other, c)
    return without + (space.term(rest, c) if rest else c) * minimum(mod(a - (b - 1), b), 1)


def _paired(facts: KnownFacts, expr: Expr, monomial: Monomial, c: int, atom: Atom) -> Dim | None:
    """The sum with a*b instead of min(a, b)*max(a, b), or a + b in that of their sum."""
    if len(atom.args) != 2:
        return None
    a, b = atom.args
    most = maximum(a, b)
    partner = None if isinstance(most, int) else most.atom
    if partner is None:
        return None
    space, rest = expr.space, quotient_of(monomial, atom.unit) or ()
    without = expr - space.term(monomial, c)
    if partner in rest:
        left = quotient_of(rest, partner.unit) or ()
        return without + (space.term(left, c) if left else c) * a * b
    other = _with_atom(monomial, atom, partner)
    if expr.terms.get(other) != c:
        return None
    return without - space.term(other, c) + (space.term(rest, c) if rest else c) * (a + b)


def _with_atom(monomial: Monomial, old: Atom, new: Atom) -> Monomial:
    """The monomial with one of its atoms replaced by another, once."""
    return product_of(quotient_of(monomial, old.unit) or (), new.unit)


def _rounded(facts: KnownFacts, expr: Expr, monomial: Monomial, c: int, atom: Atom) -> Dim | None:
    """The sum with a - b*(a // b) instead of a % b, if it so gets shorter."""
    a, b = atom.args
    if isinstance(b, Expr) and not not_zero(facts, b):
        return None
    rest = quotient_of(monomial, atom.unit) or ()
    others: Dim = expr.space.term(rest, c) if rest else c
    without = expr - expr.space.term(monomial, c)
    for same in dict.fromkeys((a, _balanced(a, b))):
        better = without + others * (same - b * floordiv(same, b))
        if isinstance(better, int) or len(better.terms) < len(expr.terms):
            return better
    return None


def _balanced(a: Dim, b: Dim) -> Dim:
    """An expression with the same remainder, its coefficients from -b/2 to below b/2: of 3*x % 4
    it is that of -x."""
    if isinstance(a, int) or not isinstance(b, int):
        return a
    return total([a, *(-b * a.space.term(m, 1) for m, c in a.terms.items() if 2 * c >= b)])


FOLDS: Mapping[str, Callable[[KnownFacts, Expr, Monomial, int, Atom], Dim | None]] = {
    "//": _unfolded,
    "%": _rounded,
    "min": _paired,
}


def relation_simplified(facts: KnownFacts, relation: Relation) -> Relation | bool:
    """The relation with its form simplified."""
    form = simplified(facts, relation.form)
    return relation if form is relation.form else BUILD[relation.kind](form, relation.bound)


def alternatives_simplified(facts: KnownFacts, condition: Condition | bool) -> Condition | bool:
    """The alternatives in terms of what their symbols are known to equal."""
    if not isinstance(condition, AnyOf):
        return condition
    made = any_of(
        *(
            relation_simplified(facts, part) if isinstance(part, Relation) else part
            for part in condition.parts
        )
    )
    return condition if made == condition else made


def cleared(facts: KnownFacts, relation: Relation) -> Relation | bool | None:
    """The relation times a number, without quotients that leave no rest; None if there are none:
    s * (t // 16) == (s // 4) * (t // 4) => True, where 16 divides s and t."""
    scale = 1
    for monomial, c in relation.form.terms.items():
        divided = prod(b for atom in monomial if (b := _even_divisor(facts, atom)) > 1)
        scale = lcm(scale, divided // gcd(divided, c))
    if scale == 1:
        return None
    form = simplified(facts, relation.form * scale)
    return BUILD[relation.kind](form, relation.bound * scale)


def _even_divisor(facts: KnownFacts, atom: Atom) -> int:
    """The number by which a quotient is known to divide without a rest, else 1."""
    if atom.word != "//":
        return 1
    a, b = atom.args
    if isinstance(a, int) or not isinstance(b, int) or b < 1:
        return 1
    modulus, residue = congruence_of(facts, a)
    return b if modulus % b == residue % b == 0 else 1
