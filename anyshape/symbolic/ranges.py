"""Bounds and residues of expressions under facts.

Each answer is valid for ever; a later one may be tighter. Intervals are (lo, hi) with None for
unbounded; a congruence (m, r) says that the value is r modulo m, and m == 0 that it is r.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import gcd
from typing import TypeAlias, cast

from anyshape.symbolic.atoms import Atom, Monomial, Symbol, age, deep
from anyshape.symbolic.expr import Dim, Expr
from anyshape.symbolic.knowledge import KnownFacts, linear
from anyshape.symbolic.polynomial import (
    LONG,
    divide_exactly,
    negative,
    without_constant,
)

Bounds: TypeAlias = tuple[int | None, int | None]
Congruence: TypeAlias = tuple[int, int]

UNBOUNDED: Bounds = (None, None)
LINKS = 6  # linear facts tried to refine a bound
SHORT = 8  # terms of a sum whose bound is refined


def highest(a: int | None, b: int | None) -> int | None:
    """The stronger of two lower bounds."""
    return b if a is None else a if b is None or a >= b else b


def lowest(a: int | None, b: int | None) -> int | None:
    """The stronger of two upper bounds."""
    return b if a is None else a if b is None or a <= b else b


def meet(a: Bounds, b: Bounds) -> Bounds:
    """What satisfies both."""
    return highest(a[0], b[0]), lowest(a[1], b[1])


def bounds_of(facts: KnownFacts, dim: Dim, depth: int = 0) -> Bounds:
    """The interval of a dim; `depth` linear facts may be used one after the other."""
    if isinstance(dim, int):
        return dim, dim
    atom = dim.atom
    if atom is not None and not atom.word:
        return atom_bounds(facts, atom, 0)
    key = (dim, depth)
    found = facts.recall(key, dim)
    return facts.derive(key, partial(_bounds, facts, dim, depth)) if found is None else found


def _bounds(facts: KnownFacts, expr: Expr, depth: int) -> Bounds:
    found = interval(facts, expr, 0)
    if None in found and expr.depth and len(expr.terms) > 1:
        found = _with_separate_quotients(facts, expr, found)
    if depth and len(expr.terms) <= SHORT and (None in found or found[0] != found[1]):
        return _refined(facts, expr, depth, found)
    return found


def _with_separate_quotients(facts: KnownFacts, expr: Expr, found: Bounds) -> Bounds:
    """x - x // 2 from 2*x - x: b*(x // b) lies between x - b + 1 and x."""
    for monomial, k in expr.terms.items():
        if len(monomial) != 1 or monomial[0].word != "//":
            continue
        x, b = monomial[0].args
        rest = expr - expr.space.term(monomial, k)
        if not isinstance(b, int) or b < 1 or isinstance(x, int) or isinstance(rest, int):
            continue
        if x.symbols.isdisjoint(rest.symbols):
            continue
        scaled = b * rest + k * x
        lo, hi = (scaled, scaled) if isinstance(scaled, int) else interval(facts, scaled, 0)
        lo = None if lo is None else -((max(k, 0) * (b - 1) - lo) // b)
        hi = None if hi is None else (hi - min(k, 0) * (b - 1)) // b
        found = highest(found[0], lo), lowest(found[1], hi)
    return found


def interval(facts: KnownFacts, expr: Expr, depth: int) -> Bounds:
    """The interval of a sum from those of its terms, and of its form as a whole."""
    if expr.atom is not None:
        return atom_bounds(facts, expr.atom, depth)
    lo, hi = _of_terms(facts, expr, depth)
    lo = None if lo is None else lo + expr.constant
    hi = None if hi is None else hi + expr.constant
    if not facts.linked(expr):
        return lo, hi
    form, scale = canonical(expr)
    low, high = facts.range_of(form)
    if scale < 0:
        low, high = high, low
    low = None if low is None else low * scale + expr.constant
    high = None if high is None else high * scale + expr.constant
    return highest(lo, low), lowest(hi, high)


def _of_terms(facts: KnownFacts, expr: Expr, depth: int) -> Bounds:
    """The interval of a sum without its constant; of partial sums only what was added is looked
    at, as long as no range of the others has changed."""
    known = _remembered(facts, expr)
    if known is not None:
        return known
    made: list[Expr] = []
    part = expr
    while known is None and _is_partial(facts, part):
        made.append(part)
        part = cast("tuple[Expr, Expr, int]", part.parts)[0]
        known = _remembered(facts, part)
    lo, hi = _each_term(facts, part, depth) if known is None else known
    for later in reversed(made):
        _, short, sign = cast("tuple[Expr, Expr, int]", later.parts)
        low, high = _each_term(facts, short, depth)
        if sign < 0:
            low, high = (None if high is None else -high), (None if low is None else -low)
        lo = None if lo is None or low is None else lo + low
        hi = None if hi is None or high is None else hi + high
        facts.intervals[later] = facts.moves, lo, hi
    return lo, hi


def _is_partial(facts: KnownFacts, expr: Expr) -> bool:
    """Is this a long sum of symbols, as is the sum that it was made of, and does nothing cancel?"""
    if facts.used is not None or expr.parts is None or expr.parts[0].least < LONG:
        return False
    long, short, _ = expr.parts
    return expr.depth == 0 and linear(short) and short.symbols.isdisjoint(long.symbols)


def _remembered(facts: KnownFacts, expr: Expr) -> Bounds | None:
    if facts.used is not None or expr.least < LONG:
        return None
    found = facts.intervals.get(expr)
    if found is None or facts.moved_since(found[0], expr.symbols):
        return None
    return found[1:]


def _each_term(facts: KnownFacts, expr: Expr, depth: int) -> Bounds:
    lo: int | None = 0
    hi: int | None = 0
    stated = facts.ranges.get
    tracing = facts.used is not None
    for monomial, c in expr.terms.items():
        atom = monomial[0]
        if len(monomial) == 1 and isinstance(atom, Symbol):
            found = stated(atom.expr)
            if found is None:
                low, high = (None if atom.signed else 0), None
            else:
                low, high, why = found
                if tracing:
                    facts.use(why)
        else:
            low, high = monomial_bounds(facts, monomial, depth)
        if c < 0:
            low, high = high, low
        lo = None if lo is None or low is None else lo + c * low
        hi = None if hi is None or high is None else hi + c * high
        if lo is None and hi is None:
            break
    return lo, hi


def canonical(expr: Expr) -> tuple[Expr, int]:
    """(form, scale) with expr == scale * form + constant, the form as in relations."""
    scale = gcd(*expr.terms.values())
    if negative(expr):
        scale = -scale
    return divide_exactly(without_constant(expr), scale), scale


def _refined(facts: KnownFacts, expr: Expr, depth: int, best: Bounds) -> Bounds:
    """Adds multiples of known linear facts that cancel a term: u <= s bounds u by what bounds s."""
    for form in facts.links_of(expr, LINKS):
        if form.terms.keys() == expr.terms.keys() or len(form.terms) < 2:
            continue
        low, high = facts.range_of(form)
        for monomial, c in form.terms.items():
            wanted = expr.terms.get(monomial)
            if wanted is None:
                continue
            scale = abs(c)
            factor = wanted if c > 0 else -wanted
            rest = scale * expr - factor * form
            if not isinstance(rest, int) and len(rest.terms) > len(expr.terms) + 1:
                continue
            rest_low, rest_high = bounds_of(facts, rest, depth - 1)
            low_part, high_part = (low, high) if factor > 0 else (high, low)
            if rest_low is not None and low_part is not None:
                best = meet(best, (-((-rest_low - factor * low_part) // scale), None))
            if rest_high is not None and high_part is not None:
                best = meet(best, (None, (rest_high + factor * high_part) // scale))
    return best


def monomial_bounds(facts: KnownFacts, monomial: Monomial, depth: int) -> Bounds:
    """The interval of a product."""
    if len(monomial) == 1:
        return bounds_of(facts, monomial[0].expr, depth)
    found: Bounds = (1, 1)
    position = 0
    while position < len(monomial):
        atom = monomial[position]
        power = monomial.count(atom)
        position += power
        one = bounds_of(facts, atom.expr, depth)
        for _ in range(power % 2):
            found = _product(found, one)
        if power > 1:
            square = _product(one, one)
            for _ in range(power // 2):
                found = _product(found, (highest(square[0], 0), square[1]))
    if not facts.linked(atom.expr):
        return found
    whole = atom.space.term(monomial)
    return meet(found, facts.range_of(whole))


INFINITY = float("inf")


def _times(x: float, y: float) -> float:
    if x == 0 or y == 0:
        return 0
    if abs(x) == INFINITY or abs(y) == INFINITY:
        return INFINITY if (x > 0) == (y > 0) else -INFINITY
    return x * y


def _product(a: Bounds, b: Bounds) -> Bounds:
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        most = _times(INFINITY if a[1] is None else a[1], INFINITY if b[1] is None else b[1])
        return a[0] * b[0], _finite(most)
    ends = [
        _times(x, y)
        for x in (-INFINITY if a[0] is None else a[0], INFINITY if a[1] is None else a[1])
        for y in (-INFINITY if b[0] is None else b[0], INFINITY if b[1] is None else b[1])
    ]
    return _finite(min(ends)), _finite(max(ends))


def _finite(end: float) -> int | None:
    return None if abs(end) == INFINITY else cast("int", end)


def atom_bounds(facts: KnownFacts, atom: Atom, depth: int) -> Bounds:
    """The interval of an atom from its kind, its operands and what is known of itself."""
    own = facts.range_of(atom.expr)
    if isinstance(atom, Symbol):
        return own if atom.signed else (highest(own[0], 0), own[1])
    if deep(atom):
        operands = [_anyway(arg) for arg in atom.args]
    else:
        operands = [bounds_of(facts, arg, depth) for arg in atom.args]
    return meet(own, BY_WORD[atom.word](*operands))


def _anyway(dim: Dim) -> Bounds:
    """The interval of a dim whatever its sizes are, which no fact changes: worked out once for each
    operation, those inside first, so that chains of them may be long."""
    if isinstance(dim, int):
        return dim, dim
    table = dim.space.anyway
    found: set[Atom] = set()
    waiting = [dim]
    while waiting:
        inside = {atom for monomial in waiting.pop().terms for atom in monomial if atom.word}
        for atom in inside.difference(found, table):
            found.add(atom)
            waiting += [arg for arg in atom.args if not isinstance(arg, int)]
    for atom in sorted(found, key=age):
        table[atom] = BY_WORD[atom.word](*map(_anyway_of_terms, atom.args))
    return _anyway_of_terms(dim)


def _anyway_of_terms(dim: Dim) -> Bounds:
    """The same, once it is known of the operations in it."""
    if isinstance(dim, int):
        return dim, dim
    lo: int | None = dim.constant
    hi: int | None = dim.constant
    for monomial, c in dim.terms.items():
        term: Bounds = c, c
        for atom in monomial:
            term = _product(term, _anyway_of_atom(atom))
        lo = None if lo is None or term[0] is None else lo + term[0]
        hi = None if hi is None or term[1] is None else hi + term[1]
    return lo, hi


def _anyway_of_atom(atom: Atom) -> Bounds:
    if isinstance(atom, Symbol):
        return (None if atom.signed else 0), None
    return atom.space.anyway[atom]


def _floordiv_bounds(a: Bounds, b: Bounds) -> Bounds:
    if b[1] is not None and b[1] < 0:
        return _floordiv_bounds(_negated(a), _negated(b))
    if b[0] is None or b[0] <= 0:
        return UNBOUNDED
    lo = hi = None
    if a[0] is not None:
        lo = a[0] // b[0] if a[0] < 0 else 0 if b[1] is None else a[0] // b[1]
    if a[1] is not None:
        hi = a[1] // b[0] if a[1] >= 0 else -1 if b[1] is None else a[1] // b[1]
    return lo, hi


def _mod_bounds(a: Bounds, b: Bounds) -> Bounds:
    if b[1] is not None and b[1] < 0:
        return _negated(_mod_bounds(_negated(a), _negated(b)))
    if b[0] is None or b[0] <= 0:
        lo = None if b[0] is None else min(b[0] + 1, 0)
        return lo, None if b[1] is None else max(b[1] - 1, 0)
    if a[0] is not None and a[1] is not None and a[0] >= 0 and a[1] < b[0]:
        return a
    if a[0] is not None and a[1] is not None and b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    hi = None if b[1] is None else b[1] - 1
    return 0, hi if a[0] is None or a[0] < 0 else lowest(hi, a[1])


def _negated(a: Bounds) -> Bounds:
    return None if a[1] is None else -a[1], None if a[0] is None else -a[0]


def _min_bounds(*operands: Bounds) -> Bounds:
    lows = [lo for lo, _ in operands if lo is not None]
    highs = [hi for _, hi in operands if hi is not None]
    return min(lows) if len(lows) == len(operands) else None, min(highs, default=None)


def _max_bounds(*operands: Bounds) -> Bounds:
    return _negated(_min_bounds(*map(_negated, operands)))


def _broadcast_bounds(*operands: Bounds) -> Bounds:
    for one in operands:
        if one[0] is not None and one[0] >= 2:
            return one
    lows = [lo for lo, _ in operands if lo is not None]
    highs = [hi for _, hi in operands if hi is not None]
    return (
        min(lows) if len(lows) == len(operands) else None,
        max(highs) if len(highs) == len(operands) else None,
    )


BY_WORD: Mapping[str, Callable[..., Bounds]] = {
    "//": _floordiv_bounds,
    "%": _mod_bounds,
    "min": _min_bounds,
    "max": _max_bounds,
    "broadcast": _broadcast_bounds,
}


def congruence_of(facts: KnownFacts, dim: Dim) -> Congruence:
    """The strongest known (m, r) with dim == r modulo m."""
    if isinstance(dim, int):
        return 0, dim
    modulus, residue = 0, dim.constant
    for monomial, c in dim.terms.items():
        m, r = 0, c
        for atom in monomial:
            m, r = _congruent_product((m, r), _atom_congruence(facts, atom))
        modulus = gcd(modulus, m)
        residue += r
    if len(dim.terms) > 1 and facts.linked(dim):
        form, scale = canonical(dim)
        own = facts.congruence_at(form)
        if own is not None:
            other = (own[0] * abs(scale), own[1] * scale + dim.constant)
            return intersect((modulus, residue), other) or (modulus, residue)
    return _reduced(modulus, residue)


def _reduced(modulus: int, residue: int) -> Congruence:
    return modulus, residue % modulus if modulus else residue


def intersect(a: Congruence, b: Congruence) -> Congruence | None:
    """What satisfies both congruences (Chinese remainders); None if nothing does."""
    (m, r), (n, s) = a, b
    common = gcd(m, n)
    if common == 0:
        return a if r == s else None
    if (r - s) % common:
        return None
    if not m or not n:
        return a if not m else b
    steps = (s - r) // common * pow(m // common, -1, n // common) if n != common else 0
    return _reduced(m // common * n, r + m * steps)


def _congruent_product(a: Congruence, b: Congruence) -> Congruence:
    (m, r), (n, s) = a, b
    return _reduced(gcd(m * n, m * s, n * r), r * s)


def _atom_congruence(facts: KnownFacts, atom: Atom) -> Congruence:
    """That of an operation is remembered: nested ones share their operands."""
    if not atom.word:
        return _worked_out_congruence(facts, atom)
    key = (congruence_of, atom)
    found: Congruence | None = facts.recall(key, atom)
    if found is None:
        found = facts.derive(key, partial(_worked_out_congruence, facts, atom))
    return found


def _worked_out_congruence(facts: KnownFacts, atom: Atom) -> Congruence:
    own = facts.congruence_at(atom.expr)
    found = (1, 0)
    match "" if deep(atom) else atom.word:
        case "//" | "%" if isinstance(atom.args[1], int):
            m, r = congruence_of(facts, atom.args[0])
            divisor = atom.args[1]
            if atom.word == "%":
                found = _reduced(gcd(m, divisor), r)
            elif m % divisor == 0:
                found = _reduced(m // divisor, r // divisor)
        case "min" | "max" | "broadcast":
            first, *others = (congruence_of(facts, arg) for arg in atom.args)
            m, r = first
            for n, s in others:
                m = gcd(m, n, r - s)
            found = _reduced(m, r)
    return found if own is None else intersect(found, own) or found
