"""Sizes that satisfy facts, tried quickly: two that disagree about a relation show it is undecided.

A proof search that must fail is the dearest kind; most questions that facts do not decide are
settled here by a few assignments at the ends of the symbols' ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anyshape.symbolic.atoms import Atom, Symbol, age
from anyshape.symbolic.conditions import AnyOf, Relation
from anyshape.symbolic.expr import Expr
from anyshape.symbolic.knowledge import KnownFacts
from anyshape.symbolic.ranges import atom_bounds
from anyshape.symbolic.render import evaluate

FAR = 1000  # how far from the other end a missing bound is put
FACTS = 24  # with more, proof search comes first


def undecided(facts: KnownFacts, relation: Relation, core: Iterable[Expr | AnyOf]) -> bool:
    """True if sizes were found that satisfy the core with the relation true, and with it false."""
    core = list(core)
    if len(core) > FACTS:
        return False
    symbols = dict.fromkeys(sorted(relation.symbols, key=age))
    for fact in core:
        symbols.update(dict.fromkeys(sorted(fact.symbols, key=age)))
    ends = {symbol: _ends(facts, symbol) for symbol in symbols}
    if any(lo > hi or facts.value_of(symbol) is not None for symbol, (lo, hi) in ends.items()):
        return False
    seen: set[bool] = set()
    if any(isinstance(fact, AnyOf) for fact in core):  # most alternatives are about being 1
        ends = {symbol: (min(max(lo, 1), hi), hi) for symbol, (lo, hi) in ends.items()}
    for env in _candidates(relation, ends):
        truth = _truth(facts, relation, core, env)
        if truth is not None:
            seen.add(truth)
            if len(seen) == 2:
                return True
    return False


def _ends(facts: KnownFacts, symbol: Symbol) -> tuple[int, int]:
    lo, hi = atom_bounds(facts, symbol, 0)
    far = FAR + 7 * (symbol.index % 64)  # two sizes without a bound are not equal at their ends
    if hi is None:
        hi = far if lo is None else lo + far
    if lo is None:
        lo = hi - 2 * far
    congruence = facts.congruence_at(symbol.expr)
    if congruence is not None and congruence[0]:
        modulus, residue = congruence
        lo, hi = lo + (residue - lo) % modulus, hi - (hi - residue) % modulus
    holes = facts.holes_of(symbol.expr)
    while lo in holes:
        lo += 1
    while hi in holes:
        hi -= 1
    return lo, hi


def _candidates(
    relation: Relation, ends: Mapping[Symbol, tuple[int, int]]
) -> Iterator[dict[Symbol, int]]:
    """The form as large and as small as may be, then the bound itself and its neighbours met."""
    signs: dict[Symbol, int] = {}
    _directions(relation.form, 1, signs)
    extremes = [
        {
            symbol: pair[rest if symbol not in signs else ups if signs[symbol] > 0 else 1 - ups]
            for symbol, pair in ends.items()
        }
        for ups, rest in ((1, 1), (0, 1), (0, 0), (1, 0))
    ]
    yield from extremes[:2]
    terms = relation.form.terms
    pivot = next((symbol for symbol in signs if abs(terms.get(symbol.unit, 0)) == 1), None)
    if pivot is not None:
        lo, hi = ends[pivot]
        for env in extremes[:2]:
            for goal in (relation.bound, relation.bound + (-1 if relation.kind == "ge" else 1)):
                met = _met(relation.form, goal, pivot, terms[pivot.unit], env)
                if met is not None and lo <= met <= hi:
                    yield {**env, pivot: met}
    yield from extremes[2:]


def _directions(form: Expr, sign: int, signs: dict[Symbol, int]) -> None:
    """Guesses for each symbol whether the form grows or shrinks with it; looks at each operation
    once, however often it is an operand.
    """
    seen: set[Atom] = set()
    waiting = [(form, sign)]
    while waiting:
        part, direction = waiting.pop()
        inner: list[tuple[Expr, int]] = []
        for monomial, c in part.terms.items():
            for atom in monomial:
                if isinstance(atom, Symbol):
                    signs.setdefault(atom, direction * c)
                elif atom not in seen:
                    seen.add(atom)
                    args = atom.args[: 1 if atom.word in ("//", "%") else None]
                    inner += ((arg, direction * c) for arg in args if isinstance(arg, Expr))
        waiting += reversed(inner)


def _met(form: Expr, goal: int, pivot: Symbol, sign: int, env: Mapping[Symbol, int]) -> int | None:
    """The pivot's value at which the form is the goal, if it is linear in the pivot."""
    try:
        return env[pivot] + sign * (goal - evaluate(form, env))
    except (ZeroDivisionError, ValueError):
        return None


def _truth(
    facts: KnownFacts, relation: Relation, core: Iterable[Expr | AnyOf], env: Mapping[Symbol, int]
) -> bool | None:
    """The relation's truth at these sizes; None where they break a fact."""
    try:
        if all(_satisfied(facts, fact, env) for fact in core) and _allowed(facts, env):
            return bool(evaluate(relation, env))
    except (ZeroDivisionError, ValueError):
        pass
    return None


def _satisfied(facts: KnownFacts, fact: Expr | AnyOf, env: Mapping[Symbol, int]) -> bool:
    if isinstance(fact, AnyOf):
        return bool(evaluate(fact, env))
    value = evaluate(fact, env)
    lo, hi = facts.range_of(fact)
    if (lo is not None and value < lo) or (hi is not None and value > hi):
        return False
    congruence = facts.congruence_at(fact)
    if congruence is not None and congruence[0] and (value - congruence[1]) % congruence[0]:
        return False
    return value not in facts.holes_of(fact)


def _allowed(facts: KnownFacts, env: Mapping[Symbol, int]) -> bool:
    """Whether no size is excluded, and each has its residue."""
    for symbol, size in env.items():
        if size in facts.holes_of(symbol.expr):
            return False
        congruence = facts.congruence_at(symbol.expr)
        if congruence is not None and congruence[0] and (size - congruence[1]) % congruence[0]:
            return False
    return True
