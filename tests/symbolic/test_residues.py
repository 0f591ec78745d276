"""Relations between quotients of the same sizes: always right, and found without search."""

from __future__ import annotations

import random
from itertools import product

import pytest

from anyshape.symbolic import Dim, Expr, Facts, Relation, Space, eq, evaluate, ge, le

STEPS = 400  # of a question; elimination took all 16,384 and found nothing


class Unknowns:
    def __init__(self) -> None:
        self.space = Space()
        self.facts = Facts(self.space)
        self.s = [self.space.fresh("s") for _ in range(3)]


@pytest.fixture
def w() -> Unknowns:
    return Unknowns()


def relations(w: Unknowns) -> list[Relation | bool]:
    b, x, y = w.s
    return [
        ge(b * (x // 4) * (y // 4), 16 * b * (x // 16) * (y // 16)),
        le(4 * b * (x // 16) * (y // 16), b * (x // 8) * (y // 8)),
        le(b * (x // 32) * (y // 32), 1024 * b * ((x + 96) // 128) * ((y + 96) // 128)),
        ge(x * y, 16 * (x // 4) * (y // 4)),
        ge(9 * (x // 4) * (y // 4) + (x // 4), (x // 8) * (y // 8) + 2 * (x // 8)),
        ge((x // 2) * (y // 3), (x // 6) * (y // 6)),
        le((x // 32) * (y // 32), ((x + 32) // 64 + (x // 64)) * ((y + 31) // 32)),
    ]


@pytest.mark.parametrize("number", range(7))
def test_what_always_holds_is_proved_in_few_steps(w: Unknowns, number: int) -> None:
    relation = relations(w)[number]
    assert isinstance(relation, Relation)
    assert w.facts.known(relation) is True
    assert w.facts.known(~relation) is False
    assert w.space.work.steps < STEPS


def test_least_values_are_those_of_the_facts(w: Unknowns) -> None:
    b, x, y = w.s
    claim = ge(b * (x // 4) * (y // 4), 16 * b * (x // 16) * (y // 16) + 3 * b)
    assert w.facts.known(claim) is None
    assert w.facts.under(ge(x, 32)).known(claim) is None
    assert w.facts.under(ge(x, 24)).under(ge(y, 7)).known(claim) is None


def random_form(rng: random.Random, sizes: list[Expr]) -> Dim:
    form: Dim = rng.randint(-3, 3)
    for _ in range(rng.randint(2, 4)):
        term: Dim = rng.choice([-4, -2, -1, 1, 2, 4, 9])
        for size in rng.sample(sizes, rng.randint(1, 2)):
            divisor = rng.choice([1, 2, 3, 4, 6])
            term = term * ((size + rng.choice([0, 0, 1, divisor - 1])) // divisor)
        form = form + term
    return form


@pytest.mark.parametrize("seed", range(6))
def test_answers_hold_for_every_small_size(seed: int) -> None:
    rng, found = random.Random(seed), 0
    for _ in range(120):
        w = Unknowns()
        least = [rng.randint(0, 5) for _ in w.s]
        for size, low in zip(w.s, least, strict=True):
            w.facts.assume(ge(size, low))
        relation = ge(random_form(rng, w.s), 0)
        answer = w.facts.known(relation)
        if answer is None or isinstance(relation, bool):
            continue
        found += 1
        used = sorted(relation.symbols, key=str)
        lows = dict(zip([s.symbol for s in w.s], least, strict=True))
        for values in product(*(range(lows[s], lows[s] + 14) for s in used)):
            assert evaluate(relation, dict(zip(used, values, strict=True))) is answer, relation
    assert found > 20


def test_many_classes_are_left_to_search(w: Unknowns) -> None:
    _, x, y = w.s
    claim = ge((x // 97) * (y // 89), (x // 101) * (y // 103))
    assert w.facts.known(claim) in (True, None)
    assert w.facts.known(eq((x // 7) * (y // 7), 3)) is None
