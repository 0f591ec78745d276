"""Quotients: split where a remainder is small, bounded beside what they are made of, in order where
their numerators are. Each answer is compared with every small number that the facts allow."""

from __future__ import annotations

import itertools
import random

import pytest

from anyshape.symbolic import Facts, Space, eq, evaluate, ge, le


def test_a_rest_below_the_factor_goes() -> None:
    space = Space()
    facts, a, b = Facts(space), space.fresh("s"), space.fresh("s")
    facts.assume(le(b, 3))
    assert facts.simplify((4 * a + b) // 12) == a // 3
    assert facts.simplify((4 * a + b + 9) // 12) != a // 3
    assert facts.simplify((4 * a + b + 8) // 12) == (a + 2) // 3
    assert facts.simplify((4 * a + b + 1) // 12) == (4 * a + b + 1) // 12  # b + 1 may be 4


def test_what_is_left_of_a_size_has_a_bound() -> None:
    space = Space()
    facts, a = Facts(space), space.fresh("s")
    facts.assume(ge(a, 1))
    assert facts.bounds(a - a // 2) == (1, None)
    assert facts.bounds(a // 2 - a)[1] == -1
    assert facts.bounds(3 * (a // 3) - a) == (-2, 0)


def test_division_keeps_the_order() -> None:
    space = Space()
    a, b, c = (space.fresh("s") for _ in range(3))
    facts = Facts(space)
    facts.assume(le(a, b))
    assert facts.known(le(a // c, b // c)) is None  # c may be 0
    facts.assume(ge(c, 1))
    assert facts.known(le(a // c, b // c)) is True
    assert facts.known(ge(b // c, a // c + 1)) is None
    assert facts.known(ge((b + c) // c, a // c + 1)) is True
    assert facts.known(le((b + c) // c, a // c)) is False


@pytest.mark.parametrize("seed", range(40))
def test_answers_are_right_for_all_small_numbers(seed: int) -> None:
    draw = random.Random(seed)
    space = Space()
    a, b = space.fresh("i", signed=True), space.fresh("s")
    z = space.fresh("s")
    facts = Facts(space)
    low, high = sorted(draw.choices(range(5), k=2))
    for fact in (ge(b, low), le(b, high), ge(z, 1), le(a, b)):
        facts.assume(fact)
    divisor, factor = draw.choice((4, 6, 12)), draw.choice((2, 3, 4))
    x = draw.randint(-4, 4) * factor * a + draw.choice((-1, 1, 2)) * b + draw.randint(-9, 9)
    asked = draw.randint(-2, 2) * a + draw.randint(-3, 3) * (x // divisor) + draw.choice((0, b))
    order = (b + draw.randint(-1, 2) * z) // z - a // z
    k = draw.randint(-2, 3)
    simple, bounds = facts.simplify(x // divisor), facts.bounds(asked)
    at_least, at_most = facts.known(ge(order, k)), facts.known(le(order, k))
    for i, j, n in itertools.product(range(-13, high + 1), range(low, high + 1), range(1, 6)):
        if i > j:
            continue
        values = {a.symbol: i, b.symbol: j, z.symbol: n}
        assert evaluate(simple, values) == evaluate(x // divisor, values)
        value = evaluate(asked, values)
        assert bounds[0] is None or bounds[0] <= value
        assert bounds[1] is None or value <= bounds[1]
        now = evaluate(order, values)
        assert at_least in (None, now >= k) and at_most in (None, now <= k)


EVEN = {
    "sides of patches": (16, 16, lambda s, t: eq(s * (t // 16), s // 4 * (t // 4)), True),
    "half as many": (16, 16, lambda s, t: eq(s * (t // 16), s // 4 * (t // 8)), False),
    "one more": (16, 16, lambda s, t: le(s * (t // 16) + 1, s // 4 * (t // 4)), False),
    "a side with a rest": (2, 16, lambda s, t: eq(s * (t // 16), s // 4 * (t // 4)), None),
    "by one side": (4, 8, lambda s, t: ge(3 * s * (t // 8), 4 * (s // 4) * (t // 4)), True),
}


@pytest.mark.parametrize("case", EVEN)
def test_products_of_quotients_without_rest_are_compared_in_few_steps(case: str) -> None:
    """As long as they were unknowns of their own, no proof was found, after 2,000 steps."""
    by, of, asked, expected = EVEN[case]
    space = Space()
    facts, s, t = Facts(space), space.fresh("s"), space.fresh("s")
    for fact in (eq(s % by, 0), eq(t % of, 0), ge(s, 1), ge(t, 1)):
        facts.assume(fact)
    before = space.work.steps
    relation = asked(s, t)
    answer = facts.known(relation)
    assert answer is expected
    if expected is not None:
        assert space.work.steps - before < 200
    for i, j in itertools.product(range(by, 12 * by, by), range(of, 12 * of, of)):
        truth = evaluate(relation, {s.symbol: i, t.symbol: j})
        assert answer in (None, truth)


def test_why_quotients_without_rest_are_equal() -> None:
    space = Space()
    facts, s, t = Facts(space), space.fresh("s"), space.fresh("s")
    facts.assume(eq(s % 4, 0), "rows")
    facts.assume(eq(t % 16, 0), "columns")
    facts.assume(ge(t, 32), "large")
    assert set(facts.why(eq(s * (t // 16), s // 4 * (t // 4)))) == {"rows", "columns"}
