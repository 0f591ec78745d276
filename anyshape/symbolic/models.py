"""Sizes that satisfy facts: two that disagree about a relation show that it is undecided.

A proof search that must fail is the dearest kind; most questions that facts do not decide are
settled here. The sizes that satisfied the facts of an earlier question are where the next search
begins; what they break is repaired, one symbol moved at a time, where that breaks the least
(WalkSAT: Selman, Kautz and Cohen, 1994). No answer depends on what is found: only how soon.

An operation that proof search does not look into is an unknown here too, as are symbols: what is
found is about what a proof could use, and does not grow with how far operations are nested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import prod

from anyshape.nouns import mutable
from anyshape.symbolic.atoms import Atom, Monomial, age
from anyshape.symbolic.conditions import AnyOf, Condition, Relation
from anyshape.symbolic.expr import Expr
from anyshape.symbolic.knowledge import KnownFacts
from anyshape.symbolic.ranges import atom_bounds
from anyshape.symbolic.render import COMPARE, evaluator, unknowns

FAR = 1000  # how far from the other end a missing bound is put
FACTS = 64  # with more, proof search comes first
MOVES = 24  # repairs in one search
PATIENCE = (
    6  # repairs with no fewer broken claims after which there will be none: of 1,250 one had 9
)
STEPS = 4096  # symbols of claims that are looked at in one search
TRIES = 8  # moves that may mend one broken claim

Sizes = dict[Atom, int]
"""Of symbols, and of operations that are not looked into."""
Seen = dict[Atom, int]
"""The values of operations under some sizes: nested forms share most of theirs."""


def _seen(env: Sizes) -> Seen:
    """The values of operations under these sizes before any is worked out."""
    return {atom: size for atom, size in env.items() if atom.word}


@mutable(eq=False)
class _Claim:
    """lo <= form <= hi, with a residue and without some values."""

    form: Expr
    lo: int | None
    hi: int | None
    congruence: tuple[int, int] | None = None
    holes: Sequence[int] = ()

    @property
    def unknowns(self) -> frozenset[Atom]:
        return unknowns(self.form)

    def goals(self, env: Sizes, seen: Seen) -> list[tuple[Expr, int]]:
        """Values that forms should have instead; none where the claim holds."""
        value = evaluator(self.form)(env, seen)
        return [(self.form, goal) for goal in self._nearest(value) if goal != value]

    def distance(self, env: Sizes) -> int:
        """How far these sizes are from what is claimed."""
        seen = _seen(env)
        value = evaluator(self.form)(env, seen)
        return min((abs(goal - value) for _, goal in self.goals(env, seen)), default=0)

    def _nearest(self, value: int) -> Iterator[int]:
        """The value itself, if it may be; else some that may, though perhaps past an end."""
        goal = value
        if self.lo is not None and goal < self.lo:
            goal = self.lo
        elif self.hi is not None and goal > self.hi:
            goal = self.hi
        step = 1
        if self.congruence is not None and self.congruence[0]:
            step, residue = self.congruence
            goal += (residue - goal) % step
            if self.hi is not None and goal > self.hi:
                goal -= step
        if goal in self.holes:
            yield from (goal + step, goal - step)
        else:
            yield goal


@mutable(eq=False)
class _Either:
    """One of several cases, each of which is claims that hold together."""

    cases: Sequence[Sequence[_Claim]]

    @property
    def unknowns(self) -> frozenset[Atom]:
        return frozenset().union(*[claim.unknowns for case in self.cases for claim in case])

    def goals(self, env: Sizes, seen: Seen) -> list[tuple[Expr, int]]:
        """The first goal of each case, if none of them holds."""
        found = []
        for case in self.cases:
            broken = [goals for claim in case if (goals := claim.goals(env, seen))]
            if not broken:
                return []
            found += broken[0]
        return found


class _Search:
    """Sizes of what claims are about."""

    def __init__(self, facts: KnownFacts, claims: list[_Claim | _Either]) -> None:
        self.claims = claims
        self.left = STEPS
        self.about: dict[Atom, list[_Claim | _Either]] = {}
        self.counts: dict[_Claim | _Either, int] = {}
        for claim in claims:
            found = claim.unknowns
            self.counts[claim] = len(found)
            for unknown in found:
                self.about.setdefault(unknown, []).append(claim)
        self.ends = {atom: _ends(facts, atom) for atom in sorted(self.about, key=age)}

    def start(self, kept: Sizes, far: bool) -> Sizes:
        """The sizes that were kept, where they are in range, else those of one end."""
        env: Sizes = {}
        for unknown, (lo, hi) in self.ends.items():
            size = kept.get(unknown, hi if far else lo)
            env[unknown] = min(max(size, lo), hi)
        return env

    def repaired(self, env: Sizes, goal: _Claim | None = None) -> Sizes | None:
        """Sizes near these that satisfy every claim, and the goal; None if none were found."""
        env = dict(env)
        wanted = [*self.claims] if goal is None else [goal, *self.claims]
        at = dict(zip(wanted, self._goals(wanted, env), strict=True))
        moved: Atom | None = None
        fewest, patience = len(wanted) + 1, PATIENCE
        for number in range(MOVES):
            broken = [goals for goals in at.values() if goals]
            if not broken:
                return env
            patience = patience - 1 if len(broken) >= fewest else PATIENCE
            fewest = min(fewest, len(broken))
            if self.left < 0 or patience < 0:
                return None
            moved = self._move(env, broken[number % len(broken)], goal, moved)
            if moved is None:
                return None
            again = self._about(moved, goal)  # no other claim hears of the move
            at.update(zip(again, self._goals(again, env), strict=True))
        return None

    def _about(self, unknown: Atom, goal: _Claim | None) -> list[_Claim | _Either]:
        """The claims about the unknown, the goal among them."""
        found = [*self.about.get(unknown, ())]
        if goal is not None and unknown in goal.unknowns:
            found.append(goal)
        return found

    def _move(
        self, env: Sizes, goals: list[tuple[Expr, int]], goal: _Claim | None, last: Atom | None
    ) -> Atom | None:
        """Gives one unknown the size with which most claims hold."""
        best: tuple[int, Atom, int] | None = None
        seen = _seen(env)
        for form, value in goals:
            for unknown, wanted in _tried(env, seen, form, value):
                lo, hi = self.ends[unknown]
                size = min(max(wanted, lo), hi)
                if size == env[unknown]:
                    continue
                score = 2 * self._broken(env, unknown, size, goal) + (unknown is last)
                if best is None or score < best[0]:
                    best = score, unknown, size
        if best is None:
            return None
        env[best[1]] = best[2]
        return best[1]

    def _goals(
        self, claims: Sequence[_Claim | _Either], env: Sizes
    ) -> list[list[tuple[Expr, int]]]:
        """What is wanted instead by each claim: nothing where it holds."""
        self.left -= sum([self.counts.get(claim, 1) for claim in claims])
        seen = _seen(env)
        return [claim.goals(env, seen) for claim in claims]

    def _broken(self, env: Sizes, unknown: Atom, size: int, goal: _Claim | None) -> int:
        """How many claims about the unknown do not hold when it has this size."""
        before, env[unknown] = env[unknown], size
        try:
            return sum(map(bool, self._goals(self._about(unknown, goal), env)))
        except (ZeroDivisionError, ValueError):  # undefined at these sizes
            return len(self.claims) + 1
        finally:
            env[unknown] = before


def _tried(env: Sizes, seen: Seen, form: Expr, goal: int) -> Iterator[tuple[Atom, int]]:
    """The first of the moves below; where operations are nested, the oldest unknown too: in
    min(min(s + u, 16) + v, 16), with u <= s, nothing else makes it small."""
    yield from islice(_moves(env, seen, form, goal), TRIES)
    if form.depth > 1:
        oldest = min(unknowns(form), key=age)
        yield oldest, env[oldest] + goal - evaluator(form)(env, seen)


def _moves(env: Sizes, seen: Seen, form: Expr, goal: int) -> Iterator[tuple[Atom, int]]:
    """Sizes of single unknowns with which the form comes near to the goal, those of the youngest
    terms first; of an operation, those with which an operand does. Each term has its turn: of
    the operands of one there may be many."""
    change = goal - evaluator(form)(env, seen)
    waiting = deque(
        _term_moves(env, seen, monomial, c, change) for monomial, c in reversed(form.terms.items())
    )
    while waiting:
        moves = waiting.popleft()
        for move in moves:
            yield move
            waiting.append(moves)
            break


def _term_moves(
    env: Sizes, seen: Seen, monomial: Monomial, c: int, change: int
) -> Iterator[tuple[Atom, int]]:
    """Moves with which the value of a term changes by so much."""
    for atom in dict.fromkeys(reversed(monomial)):
        others = [evaluator(other.expr)(env, seen) for other in monomial if other is not atom]
        slope = c * prod(others)
        if not slope:
            continue
        step = change // slope if (change > 0) == (slope < 0) else -(-change // slope)
        if atom in env:
            yield atom, env[atom] + step
        else:
            yield from _operand_moves(env, seen, atom, step)


def _operand_moves(env: Sizes, seen: Seen, atom: Atom, step: int) -> Iterator[tuple[Atom, int]]:
    """Moves with which an operation's value changes by so much."""
    value = evaluator(atom.expr)(env, seen) + step
    a, b = atom.args[:2]
    match atom.word:
        case "//":
            if isinstance(a, Expr):
                divisor = b if isinstance(b, int) else evaluator(b)(env, seen)
                yield from _moves(env, seen, a, value * divisor)
        case "%":
            if isinstance(a, Expr):
                yield from _moves(env, seen, a, evaluator(a)(env, seen) + step)
        case _:
            for arg in reversed(atom.args):
                if isinstance(arg, Expr):
                    yield from _moves(env, seen, arg, value)


def undecided(facts: KnownFacts, relation: Relation, core: Iterable[Expr | AnyOf]) -> bool:
    """True if sizes were found that satisfy the core with the relation true, and with it false."""
    core = list(core)
    steps = facts.allowance
    if len(core) > FACTS or steps is None or steps.left <= 0:
        return False
    search = _Search(facts, _claims(facts, relation, core))
    try:
        return _disagree(facts, relation, search)
    except (ZeroDivisionError, ValueError):  # undefined at these sizes
        return False
    finally:
        steps.left -= STEPS - search.left


def _disagree(facts: KnownFacts, relation: Relation, search: _Search) -> bool:
    if any(lo > hi for lo, hi in search.ends.values()):
        return False
    found: list[Sizes] = []
    for kept, far in zip(facts.sizes, (True, False), strict=True):
        sizes = search.repaired(search.start(kept, far))
        if sizes is not None:
            kept.update(sizes)
            found.append(sizes)
    value = evaluator(relation.form)
    truths = [COMPARE[relation.kind](value(sizes, _seen(sizes)), relation.bound) for sizes in found]
    if not truths or truths[0] is not truths[-1]:
        return bool(truths)
    goals = list(_turned(relation, truths[0]))
    near = sorted(
        ((s, goal) for s in found for goal in goals), key=lambda at: at[1].distance(at[0])
    )
    return any(search.repaired(sizes, goal) is not None for sizes, goal in near)


def _turned(relation: Relation, truth: bool) -> Iterator[_Claim]:
    """Claims that say that the relation is not as true as that."""
    form, bound = relation.form, relation.bound
    if relation.kind in ("eq", "ne"):
        if (relation.kind == "eq") is not truth:
            yield _Claim(form, bound, bound)
        else:
            yield _Claim(form, bound + 1, None)
            yield _Claim(form, None, bound - 1)
    elif (relation.kind == "ge") is truth:
        yield _Claim(form, None, bound - 1 if truth else bound)
    else:
        yield _Claim(form, bound + 1 if truth else bound, None)


def _claims(
    facts: KnownFacts, relation: Relation, core: Iterable[Expr | AnyOf]
) -> list[_Claim | _Either]:
    """What the core says, and what equalities say of the unknowns in it."""
    found: list[_Claim | _Either] = [_Claim(relation.form, None, None)]
    for fact in core:
        if isinstance(fact, AnyOf):
            found.append(_Either([list(_case(part)) for part in fact.parts]))
        else:
            found.append(_stated(facts, fact))
    about = frozenset().union(*[claim.unknowns for claim in found])
    waiting = sorted(about, key=age)
    for atom in waiting:  # grows while it is read
        value = facts.value_of(atom)
        if value is not None:
            difference = atom.expr - value
            if isinstance(difference, Expr):
                found.append(_Claim(difference, 0, 0))
                new = unknowns(difference) - about
                waiting += sorted(new, key=age)
                about |= new
        elif facts.holes_of(atom.expr) or facts.congruence_at(atom.expr) is not None:
            found.append(_stated(facts, atom.expr))
    return found


def _stated(facts: KnownFacts, form: Expr) -> _Claim:
    lo, hi = facts.range_of(form)
    return _Claim(form, lo, hi, facts.congruence_at(form), facts.holes_of(form))


def _case(condition: Condition) -> Iterator[_Claim]:
    """Claims that hold together where the condition does; of alternatives, the first."""
    if isinstance(condition, Relation):
        bound = condition.bound
        match condition.kind:
            case "eq":
                yield _Claim(condition.form, bound, bound)
            case "ne":
                yield _Claim(condition.form, None, None, None, (bound,))
            case "ge":
                yield _Claim(condition.form, bound, None)
            case "le":
                yield _Claim(condition.form, None, bound)
    elif isinstance(condition, AnyOf):
        yield from _case(condition.parts[0])
    else:
        for part in condition.parts:
            yield from _case(part)


def _ends(facts: KnownFacts, atom: Atom) -> tuple[int, int]:
    lo, hi = atom_bounds(facts, atom, 0)
    far = FAR + 7 * (atom.index % 64)  # two sizes without a bound are not equal at their ends
    if hi is None:
        hi = far if lo is None else lo + far
    if lo is None:
        lo = hi - 2 * far
    return lo, hi
