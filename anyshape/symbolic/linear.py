"""Systems of linear equations and inequalities over the integers, refuted.

In: constraints `sum of coefficient * variable + constant` that are 0 or at least 0. Out: which of
them contradict each other, if that was found. Equations are solved by Euclid's algorithm,
inequalities by Fourier and Motzkin's with every constraint divided by its common factor and
rounded: the Omega test (Pugh, 1991) without its dark shadow. "Contradiction" is always right; None
may be either. Work is counted in steps, a step for each term of a constraint that is looked at, and
stops where they are used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import NamedTuple

from anyshape.nouns import mutable


class Constraint(NamedTuple):
    """A linear form; `why` has a bit for each given constraint that it was derived from."""

    terms: dict[int, int]
    constant: int
    why: int


class _Refuted(Exception):
    def __init__(self, why: int) -> None:
        self.why = why


class _Spent(Exception):
    """No steps are left."""


PATIENCE = 1 << 11  # steps of one search; of 1,430 contradictions the longest took 1,597


@mutable(eq=False)
class Steps:
    """How much work may still be done for one question."""

    left: int

    def take(self, constraints: Iterable[Constraint]) -> None:
        """Counts constraints that are looked at."""
        self.left -= sum([len(constraint.terms) + 1 for constraint in constraints])
        if self.left < 0:
            raise _Spent


def refute(
    equations: Iterable[Constraint],
    inequalities: Iterable[Constraint],
    steps: Steps,
    limit: int = 160,
) -> int | None:
    """The `why` bits of constraints that cannot all hold, None if no contradiction was found.

    `limit` bounds the number of inequalities at any time, `steps` and `PATIENCE` the work: with
    more of any the answer is None.
    """
    allowed = min(steps.left, PATIENCE)
    own = Steps(allowed)
    try:
        _search(list(equations), list(inequalities), own, limit)
    except _Refuted as refuted:
        return refuted.why
    except _Spent:
        return None
    finally:
        steps.left -= allowed - own.left
    return None


def _search(
    equations: list[Constraint], inequalities: list[Constraint], steps: Steps, limit: int
) -> None:
    fresh = -1
    while True:
        while equations:
            steps.take(equations[:1])
            equations, inequalities, fresh = _solve_one(equations, inequalities, fresh)
        steps.take(inequalities)
        constraints, implied = _tightened(inequalities)
        if implied is not None:
            equations = [implied]
            inequalities = list(constraints)
            continue
        shorter = _eliminate_one(constraints, limit)
        if shorter is None:
            return
        inequalities = shorter


def _solve_one(
    equations: list[Constraint], inequalities: list[Constraint], fresh: int
) -> tuple[list[Constraint], list[Constraint], int]:
    """Uses one equation to remove a variable, or makes its coefficients smaller."""
    constraint, *others = equations
    terms, constant, why = constraint
    if not terms:
        if constant:
            raise _Refuted(why)
        return others, inequalities, fresh
    common = gcd(*terms.values())
    if constant % common:
        raise _Refuted(why)
    variable = min(terms, key=lambda v: abs(terms[v]))
    scale = terms[variable]
    if abs(scale) == common:
        sign = scale // common
        value = {v: -sign * (c // common) for v, c in terms.items() if v != variable}
        shift = -sign * (constant // common)
        replaced = _Replacement(variable, value, shift, why)
        return replaced.all(others), replaced.all(inequalities), fresh
    value = {v: -_nearest(c, scale) for v, c in terms.items() if v != variable}
    value = {fresh: 1, **{v: c for v, c in value.items() if c}}
    replaced = _Replacement(variable, value, 0, 0)
    return replaced.all(equations), replaced.all(inequalities), fresh - 1


def _nearest(a: int, b: int) -> int:
    return (2 * a + b) // (2 * b)


class _Replacement(NamedTuple):
    """variable := value + shift."""

    variable: int
    value: dict[int, int]
    shift: int
    why: int

    def all(self, constraints: list[Constraint]) -> list[Constraint]:
        return [
            self.one(constraint) if self.variable in constraint.terms else constraint
            for constraint in constraints
        ]

    def one(self, constraint: Constraint) -> Constraint:
        terms = dict(constraint.terms)
        factor = terms.pop(self.variable)
        for variable, coefficient in self.value.items():
            total = terms.get(variable, 0) + factor * coefficient
            if total:
                terms[variable] = total
            else:
                terms.pop(variable, None)
        return Constraint(
            terms, constraint.constant + factor * self.shift, constraint.why | self.why
        )


def _tightened(inequalities: list[Constraint]) -> tuple[list[Constraint], Constraint | None]:
    """The strongest of each direction, and an equation that two opposite ones imply, if any."""
    best: dict[tuple[tuple[int, int], ...], Constraint] = {}
    for terms, constant, why in inequalities:
        if not terms:
            if constant < 0:
                raise _Refuted(why)
            continue
        common = gcd(*terms.values())
        if common != 1:
            terms = {v: c // common for v, c in terms.items()}
            constant //= common
        key = tuple(sorted(terms.items()))
        old = best.get(key)
        if old is None or constant < old.constant:
            best[key] = Constraint(terms, constant, why)
    implied: Constraint | None = None
    for key, constraint in best.items():
        other = best.get(tuple([(v, -c) for v, c in key]))
        if other is not None:
            slack = constraint.constant + other.constant
            if slack < 0:
                raise _Refuted(constraint.why | other.why)
            if slack == 0:
                implied = Constraint(
                    constraint.terms, constraint.constant, constraint.why | other.why
                )
    return list(best.values()), implied


def _eliminate_one(constraints: list[Constraint], limit: int) -> list[Constraint] | None:
    """Those without the cheapest variable; None when none is left or it would be too much."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for constraint in constraints:
        for variable, coefficient in constraint.terms.items():
            (above if coefficient > 0 else below).setdefault(variable, []).append(coefficient)
    if not above and not below:
        return None
    variable = min([*above, *below], key=lambda v: _cost(above.get(v, ()), below.get(v, ())))
    kept: list[Constraint] = []
    positive: list[Constraint] = []
    negative: list[Constraint] = []
    for constraint in constraints:
        coefficient = constraint.terms.get(variable, 0)
        (positive if coefficient > 0 else negative if coefficient else kept).append(constraint)
    if len(kept) + len(positive) * len(negative) > limit:
        return None
    for up in positive:
        for down in negative:
            kept.append(_sum(up, -down.terms[variable], down, up.terms[variable]))
    return kept


def _cost(above: Sequence[int], below: Sequence[int]) -> tuple[bool, int]:
    """Whether integer solutions are gained by removing the variable, and how many are added."""
    exact = max(above, default=1) == 1 or min(below, default=-1) == -1
    return not exact, len(above) * len(below) - len(above) - len(below)


def _sum(a: Constraint, x: int, b: Constraint, y: int) -> Constraint:
    common = gcd(x, y)
    x, y = x // common, y // common
    terms = {v: c * x for v, c in a.terms.items()}
    for variable, coefficient in b.terms.items():
        total = terms.get(variable, 0) + coefficient * y
        if total:
            terms[variable] = total
        else:
            del terms[variable]
    return Constraint(terms, a.constant * x + b.constant * y, a.why | b.why)
