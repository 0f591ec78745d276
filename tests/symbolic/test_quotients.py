"""Quotients: split where a remainder is small, bounded beside what they are made of, in order where
their numerators are. Each answer is compared with every small number that the facts allow."""

from __future__ import annotations

import itertools
import random

import pytest

from anyshape.symbolic import Facts, Space, ceildiv, eq, evaluate, ge, le


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


def test_a_larger_divisor_gives_no_more() -> None:
    space = Space()
    a, b, c, d = (space.fresh("s") for _ in range(4))
    facts = Facts(space)
    facts.assume(ge(b, 1))
    facts.assume(le(b, c))
    assert facts.known(le(a // c, a // b)) is True
    assert facts.known(le(a // c, (a + d) // b)) is True
    assert facts.known(ge(a // c, a // b + 1)) is False
    assert facts.known(le(a // b, a // c)) is None
    assert facts.known(le((a - d) // c, (a - d) // b)) is None  # below 0 it is the other way round
    facts.assume(ge(d, 1))
    assert facts.known(le(a // (b * d), a // b)) is True


def test_two_quotients_are_at_most_one_less_than_that_of_the_sum() -> None:
    space = Space()
    x, y = space.fresh("s"), space.fresh("s")
    facts = Facts(space)
    assert facts.known(le(ceildiv(x, y) - x // y, 1)) is None  # y may be 0
    facts.assume(ge(y, 1))
    assert facts.known(le(ceildiv(x, y) - x // y, 1)) is True
    assert facts.known(ge(ceildiv(x, y), x // y)) is True
    assert facts.known(ge(ceildiv(x, y), x // y + 1)) is None
    assert facts.known(ge(ceildiv(x, y), x // y + 2)) is False


@pytest.mark.parametrize("seed", range(60))
def test_two_quotients_by_sizes_are_right_for_all_small_numbers(seed: int) -> None:
    """Of two sizes, of any sign, by two divisors of which something is known."""
    draw = random.Random(seed)
    space = Space()
    x, y = space.fresh("i", signed=True), space.fresh("i", signed=True)
    z, w = space.fresh("s"), space.fresh("s")
    known = [ge(z, 1), ge(w, 1)]
    known += draw.sample([le(z, w), le(x, y), ge(x, 0), ge(y, 0), le(x + y, z), ge(x + y, -z)], 3)
    facts = Facts(space)
    for fact in known:
        facts.assume(fact)
    divisor = draw.choice((z, w, z * w))
    for sign, k in itertools.product((1, -1), range(-3, 4)):
        asked = ge((x + draw.randint(-1, 1)) // z + sign * ((y - draw.randint(0, 1)) // divisor), k)
        answer = asked if isinstance(asked, bool) else facts.known(asked)
        if answer is None:
            continue
        for sizes in itertools.product(range(-3, 4), range(-3, 4), range(1, 4), range(1, 4)):
            env = dict(zip((x.symbol, y.symbol, z.symbol, w.symbol), sizes, strict=True))
            if all(evaluate(fact, env) for fact in known):
                assert evaluate(asked, env) is answer


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
