"""Relations that their own form decides, with a question or two about their parts.

In: a relation that ranges do not decide. Out: True, False, or None where its form says nothing. The
ways are tried in order: by the signs of factors, by the operands of minima and maxima, by the order
of two quotients, by what sizes leave on division (`residues.py`), by both values of a choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyshape.symbolic.atoms import Atom, deep
from anyshape.symbolic.conditions import Relation, eq, ge, le
from anyshape.symbolic.expr import Dim, Expr, divide, symbols_of, total
from anyshape.symbolic.knowledge import KnownFacts
from anyshape.symbolic.linear import Steps
from anyshape.symbolic.ranges import bounds_of
from anyshape.symbolic.residues import least
from anyshape.symbolic.simplify import BUILD, common_factor, two_factors

FEW = 8  # terms
CASE = 512  # steps that count for the two questions of a choice
CHOICES = 64  # operands of extrema that are tried in one proof


def by_form(facts: KnownFacts, relation: Relation) -> bool | None:
    """The answer of the first way that has one."""
    if relation.bound == 0:
        found = _by_factors(facts, relation)
        if found is not None:
            return found
    if relation.kind not in ("ge", "le"):
        return _any_is_zero(facts, relation, two_factors(relation.excess()) or ())
    for way in (_by_choice, _by_order, _by_residues, _by_cases):
        found = way(facts, relation)
        if found is not None:
            return found
    return None


def _by_factors(facts: KnownFacts, relation: Relation) -> bool | None:
    """x*y == 0, x*y >= 0 and the like from the signs of x and of y."""
    form = relation.form
    factors = common_factor(form)
    if not factors or form.atom is not None:
        return None
    rest = divide(form, form.space.term(factors))[0]
    parts: list[Dim] = [atom.expr for atom in dict.fromkeys(factors)]
    if not isinstance(rest, int):
        parts.append(rest)
    if relation.kind in ("eq", "ne"):
        return _any_is_zero(facts, relation, parts)
    if isinstance(rest, int):
        return None
    lo = bounds_of(facts, form.space.term(factors))[0]
    if lo is None or lo < 0:
        return None
    answer = facts.known(ge(rest, 0) if relation.kind == "ge" else le(rest, 0))
    return answer if answer is True or lo >= 1 else None


def _any_is_zero(facts: KnownFacts, relation: Relation, parts: Sequence[Dim]) -> bool | None:
    """Whether a product is 0, or is not, from whether its factors are."""
    zeros = [facts.known(eq(part, 0)) for part in parts]
    same = True if True in zeros else None if None in zeros or not zeros else False
    return same if same is None or relation.kind == "eq" else not same


def _by_choice(facts: KnownFacts, relation: Relation) -> bool | None:
    """max(x, y) + z >= k from x + z >= k; min(x, y) + z >= k from x + z >= k and y + z >= k, where
    ranges answer for the operands: a difference of two extrema of the same operands needs no more.
    """
    excess = relation.excess()
    if len(relation.form.terms) > FEW or not relation.form.depth:
        return None
    if _at_least_0(facts, excess, Steps(CHOICES)):
        return True
    return False if _at_least_0(facts, -1 - excess, Steps(CHOICES)) else None


def _at_least_0(facts: KnownFacts, dim: Dim, tries: Steps) -> bool:
    if isinstance(dim, int):
        return dim >= 0
    tries.left -= 1
    if tries.left < 0:
        return False
    lo = bounds_of(facts, dim)[0]
    if lo is not None and lo >= 0:
        return True
    every, some = [], []  # operands: all of them are to do, or one of them
    for monomial, c in dim.terms.items():
        atom = monomial[0]
        if len(monomial) == 1 and atom.word in ("min", "max") and not deep(atom):
            rest = dim - dim.space.term(monomial, c)
            if (c > 0) != (atom.word == "max"):
                every.append([(rest, c, arg) for arg in atom.args])
            elif isinstance(rest, Expr):  # ranges have answered for what cancels nothing of it
                about = rest.symbols
                near = (arg for arg in atom.args if not about.isdisjoint(symbols_of(arg)))
                some += [rest + c * arg for arg in near]
    if any(isinstance(left, int) and left >= 0 for left in some):
        return True
    return any(
        all(_at_least_0(facts, rest + c * arg, tries) for rest, c, arg in operands)
        for operands in every
    ) or any(_at_least_0(facts, left, tries) for left in some)


def _by_order(facts: KnownFacts, relation: Relation) -> bool | None:
    """x // z - y // z >= k from x - y >= k*z, where z >= 1 is a symbol's; sums, and quotients by
    other divisors, as below."""
    form, k = relation.form, relation.bound
    if len(form.terms) != 2:
        return None
    (one, first), (other, second) = form.terms.items()
    if len(one) != 1 or len(other) != 1 or one[0].word != "//" or other[0].word != "//":
        return None
    if first == second == 1:
        return _by_their_sum(facts, relation, one[0], other[0])
    if {first, second} != {1, -1}:
        return None
    more, less = (one[0], other[0]) if first == 1 else (other[0], one[0])
    if more.args[1] is not less.args[1]:
        return _by_divisors(facts, relation, more, less)
    (x, z), (y, _) = more.args, less.args
    if isinstance(z, int) or facts.known(ge(z, 1)) is not True:
        return None
    if relation.kind == "ge":
        if facts.known(ge(x - y - k * z, 0)) is True:
            return True
        return False if facts.known(ge(y - x - (1 - k) * z, 0)) is True else None
    if facts.known(ge(y - x + k * z, 0)) is True:
        return True
    return False if facts.known(ge(x - y - (k + 1) * z, 0)) is True else None


def _by_their_sum(facts: KnownFacts, relation: Relation, one: Atom, other: Atom) -> bool | None:
    """x // z + y // z >= k from x + y >= (k + 1)*z, and <= k from x + y < (k + 1)*z: rounding takes
    less than 1 of each."""
    (x, z), (y, w) = one.args, other.args
    if z is not w or isinstance(z, int) or facts.known(ge(z, 1)) is not True:
        return None
    least = relation.bound if relation.kind == "ge" else relation.bound + 1
    if facts.known(ge(x + y - (least + 1) * z, 0)) is True:
        return relation.kind == "ge"
    return relation.kind == "le" if facts.known(le(x + y - least * z, -1)) is True else None


def _by_divisors(facts: KnownFacts, relation: Relation, more: Atom, less: Atom) -> bool | None:
    """x // z >= y // w from x >= y >= 0 and w >= z >= 1, where one of these is a symbol's."""
    if isinstance(more.args[1], int) and isinstance(less.args[1], int):
        return None
    least = relation.bound if relation.kind == "ge" else relation.bound + 1
    if least <= 0 and _is_more(facts, more, less):
        return relation.kind == "ge"
    return relation.kind == "le" if least >= 1 and _is_more(facts, less, more) else None


def _is_more(facts: KnownFacts, more: Atom, less: Atom) -> bool:
    (x, z), (y, w) = more.args, less.args
    needed = (ge(z, 1), ge(w - z, 0), ge(y, 0), ge(x - y, 0))
    return all(facts.known(condition) is True for condition in needed)


def _by_residues(facts: KnownFacts, relation: Relation) -> bool | None:
    """x // 8 >= 4 * (x // 32) and the like, in products too (`residues.py`)."""
    form, excess, steps = relation.form, relation.excess(), facts.allowance
    if steps is None or not form.depth or not 2 <= len(form.terms) <= FEW:
        return None
    assert isinstance(excess, Expr)
    for claim, answer in ((excess, True), (-1 - excess, False)):
        if isinstance(claim, Expr) and least(facts, claim, steps, 0) is not None:
            return answer
    return None


def _by_cases(facts: KnownFacts, relation: Relation) -> bool | None:
    """p*x + (1 - p)*y >= z from y >= z and x >= z, where p is 0 or 1: a choice between the two."""
    form, steps = relation.form, facts.allowance
    if steps is None or not form.depth or len(form.terms) > FEW:
        return None
    for atom in dict.fromkeys(a for m in form.terms if len(m) > 1 for a in m if a.word):
        lo, hi = bounds_of(facts, atom.expr)
        if lo is None or hi != lo + 1 or deep(atom):
            continue
        steps.left -= CASE
        if steps.left < 0:
            return None
        answers = {facts.known(_with_value(relation, atom, value)) for value in (lo, hi)}
        return answers.pop() if len(answers) == 1 else None
    return None


def _with_value(relation: Relation, atom: Atom, value: int) -> Relation | bool:
    """The relation with a number instead of the atom, where it is not inside another one."""
    parts: list[Dim] = [relation.form.constant]
    for monomial, c in relation.form.terms.items():
        product: Dim = c
        for factor in monomial:
            product = product * (value if factor is atom else factor.expr)
        parts.append(product)
    return BUILD[relation.kind](total(parts), relation.bound)
