"""Choices, extrema in pairs and what is rounded up: one form for each, and few steps to see it.

Each line is tried at many sizes, and proved by z3 where both sides are polynomials of operations.
"""

from __future__ import annotations

from itertools import product

import pytest
import z3

from anyshape.symbolic import (
    Facts,
    Relation,
    Space,
    any_of,
    eq,
    evaluate,
    ge,
    indicator,
    le,
    maximum,
    minimum,
    mod,
)
from tests.symbolic.proofs import of_condition

STEPS = 2500


class Unknowns:
    """x, y, a, b are sizes with y >= 1, i and j are any integers; p is 1 where x <= 3, else 0."""

    def __init__(self) -> None:
        self.space = Space()
        self.x, self.y, self.a, self.b = (self.space.symbol(name) for name in "xyab")
        self.i, self.j = (self.space.symbol(name, signed=True) for name in "ij")
        self.facts = Facts(self.space)
        self.facts.assume(ge(self.y, 1))
        self.p = indicator(le(self.x, 3))

    def choice(self):
        return self.p * self.a + (1 - self.p) * self.b


ALWAYS = {
    "product of extrema": lambda w: eq(minimum(w.i, w.j) * maximum(w.i, w.j), w.i * w.j),
    "times another": lambda w: eq(w.a * minimum(w.i, w.j) * maximum(w.i, w.j), w.a * w.i * w.j),
    "sum of extrema": lambda w: eq(minimum(w.i, w.j) + maximum(w.i, w.j), w.i + w.j),
    "up and down by two": lambda w: eq((w.i + 1) // 2 - w.i // 2, w.i % 2),
    "up and down by five": lambda w: eq((w.i + 4) // 5 - w.i // 5, minimum(w.i % 5, 1)),
    "rounded up by a size": lambda w: eq((w.x + w.y - 1) // w.y * w.y, w.x + mod(-w.x, w.y)),
    "rounded up is divided": lambda w: eq((w.x + mod(-w.x, w.y)) % w.y, 0),
    "rounded up is no less": lambda w: ge((w.x + w.y - 1) // w.y * w.y, w.x),
    "negative quotient": lambda w: eq(-((-w.x) // w.y), (w.x + w.y - 1) // w.y),
    "rounded down is divided": lambda w: eq((w.x - w.x % w.y) % w.y, 0),
    "a choice is no less": lambda w: ge(w.choice(), minimum(w.a, w.b)),
    "a choice is no more": lambda w: le(w.choice(), maximum(w.a, w.b)),
    "a choice of sizes": lambda w: ge(w.choice(), 0),
    "a choice of larger": lambda w: le(w.choice(), w.a + w.b),
    "quotients in order": lambda w: ge((w.a + w.b) // w.y, w.a // w.y),
}


@pytest.mark.parametrize("name", ALWAYS)
def test_what_always_holds_is_known_in_few_steps(name):
    w = Unknowns()
    relation = ALWAYS[name](w)
    if isinstance(relation, Relation):
        assert w.facts.known(relation) is True
        assert w.facts.known(~relation) is False
    else:
        assert relation is True
    assert w.space.work.steps < STEPS


@pytest.mark.parametrize("name", ALWAYS)
def test_it_holds(name):
    w = Unknowns()
    relation = ALWAYS[name](w)
    if not isinstance(relation, Relation):
        return
    symbols = sorted(relation.symbols, key=str)
    ranges = [range(-6, 7) if s.signed else range(1 if s.name == "y" else 0, 8) for s in symbols]
    for values in product(*ranges):
        assert evaluate(relation, dict(zip(symbols, values, strict=True)))
    solver = z3.Solver()
    solver.set("timeout", 5000)
    names, side = {s: z3.Int(s.name) for s in symbols}, []
    question = of_condition(relation, names, side)
    least = [names[s] >= (s.name == "y") for s in symbols if not s.signed]
    solver.add(*least, *side, z3.Not(question))
    assert solver.check() != z3.sat


def test_forms_and_bounds_of_what_is_rounded():
    w = Unknowns()
    up_and_down = (w.i + 1) // 2 - w.i // 2
    assert w.facts.simplify(up_and_down) is w.i % 2
    assert w.facts.bounds((w.x + 6) // 7 - w.x // 7) == (0, 1)
    assert w.facts.bounds(3 * ((w.x + 6) // 7) - 3 * (w.x // 7) + 2) == (2, 5)
    assert w.facts.bounds(w.x // 3 - 2 * (w.x // 6)) == (0, 1)
    assert w.facts.under(ge(w.a, 1)).bounds(w.a - w.a // 2) == (1, None)
    assert w.facts.under(le(w.b, 3)).simplify((4 * w.a + w.b) // 12) is w.a // 3


def test_a_choice_is_what_is_chosen():
    w = Unknowns()
    assert w.facts.under(le(w.x, 3)).simplify(w.choice()) is w.a
    assert w.facts.under(ge(w.x, 4)).simplify(w.choice()) is w.b
    assert w.facts.known(ge(w.choice(), w.a)) is None
    assert w.facts.known(ge(w.choice(), 1)) is None
    assert w.facts.under(eq(w.a * w.b, 0)).known(any_of(eq(w.a, 0), eq(w.b, 0))) is True
