"""What facts say: three answers, each with its reasons, for ever."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from anyshape.symbolic import (
    AnyOf,
    Contradiction,
    Facts,
    Space,
    all_of,
    any_of,
    broadcast,
    ceildiv,
    eq,
    evaluate,
    ge,
    gt,
    le,
    learn,
    lt,
    maximum,
    minimum,
    mod,
    ne,
    total,
)


class Unknowns:
    """A space with backed sizes s0.., data's sizes u0.. and signed integers i0.."""

    def __init__(self) -> None:
        self.space = Space()
        self.s = [self.space.fresh("s") for _ in range(5)]
        self.u = [self.space.fresh("u", policy="unbacked", knowledge="midrun") for _ in range(4)]
        self.i = [
            self.space.fresh("i", policy="unbacked", knowledge="midrun", signed=True)
            for _ in range(3)
        ]
        self.facts = Facts(self.space)


@pytest.fixture
def w():
    return Unknowns()


def knowing(w, *conditions):
    facts = w.facts.fork()
    for condition in conditions:
        facts.assume(condition)
    return facts


# --- without facts


def test_a_size_is_not_negative_and_may_be_zero(w):
    s0 = w.s[0]
    assert w.facts.known(ge(s0, 0)) is True
    assert w.facts.known(lt(s0, 0)) is False
    assert w.facts.known(eq(s0 * 64, 0)) is None
    assert w.facts.known(eq(s0, 1)) is None
    assert w.facts.known(ge(w.i[0], 0)) is None


def test_relations_that_hold_for_all_integers_need_no_facts(w):
    a, b = w.s[:2]
    assert eq(a + b, b + a) is True
    assert ne(2 * a, 2 * b + 1) is True
    assert eq(4 * a, 6 * b + 1) is False
    assert ge(a + 3, a + 4) is False
    assert lt(a, a + 1) is True


def test_two_spellings_of_a_relation_are_one_object(w):
    a, b = w.s[:2]
    assert gt(a, b) is lt(b, a) is ge(a, b + 1) is ge(2 * a, 2 * b + 1)
    assert eq(a, b) is eq(2 * b, 2 * a)
    assert ~lt(a, b) is ge(a, b)
    assert ~~eq(a, b) is eq(a, b)


def test_relations_have_no_truth(w):
    a, b = w.s[:2]
    for condition in (lt(a, b), all_of(lt(a, b), ge(a, 3)), any_of(eq(a, 1), eq(b, 1))):
        with pytest.raises(TypeError, match="facts.known"):
            bool(condition)


def test_conditions_join_and_negate(w):
    a, b = w.s[:2]
    assert all_of() is True and any_of() is False
    assert all_of(ge(a, 3), True) is ge(a, 3)
    assert all_of(ge(a, 3), False) is False
    assert any_of(ge(a, 3), lt(a, 3)) is True
    assert all_of(ge(a, 3), lt(a, 3)) is False
    either = any_of(ge(a, 3), any_of(eq(b, 1), ge(a, 3)))
    assert either is any_of(eq(b, 1), ge(a, 3))
    assert ~either is all_of(ne(b, 1), lt(a, 3))
    assert either.symbols == {a.symbol, b.symbol}


def test_remainders_and_quotients_keep_python_s_promises(w):
    a, i = w.s[0], w.i[0]
    for x in (a, i, 3 * i - 5):
        assert w.facts.known(ge(x % 4, 0)) is True
        assert w.facts.known(lt(x % 4, 4)) is True
        assert w.facts.known(le(x // 4 * 4, x)) is True
        assert w.facts.known(gt(x // 4 * 4, x - 4)) is True
        assert w.facts.simplify(x // 4 * 4 + x % 4) is x
    assert w.facts.known(ge(i // 4, 0)) is None
    assert w.facts.known(lt(i % -4, 1)) is True


def test_rounding_up_to_a_multiple_gives_a_multiple_that_is_enough(w):
    a = w.s[0]
    padded = ceildiv(a, 64) * 64
    assert w.facts.known(ge(padded, a)) is True
    assert w.facts.known(lt(padded, a + 64)) is True
    assert w.facts.known(eq(padded % 64, 0)) is True
    assert w.facts.divisor(padded) == 64


def test_minimum_and_maximum_bound_their_operands(w):
    a, b, i = w.s[0], w.s[1], w.i[0]
    assert w.facts.known(le(minimum(a, b), a)) is True
    assert w.facts.known(ge(maximum(a, i), i)) is True
    assert w.facts.known(ge(maximum(a, i), 0)) is True
    assert w.facts.known(gt(minimum(a, i), i)) is False
    start = minimum(maximum(i, 0), a)
    stop = maximum(minimum(maximum(w.i[1], 0), a), start)
    assert w.facts.known(ge(stop - start, 0)) is True
    assert w.facts.known(le(stop, a)) is True
    assert w.facts.known(eq(stop, start)) is None


def test_a_broadcast_is_one_of_its_operands(w):
    a, b = w.s[:2]
    both = broadcast(a, b)
    assert w.facts.known(any_of(eq(both, a), eq(both, b))) is True
    assert w.facts.known(any_of(eq(a, 1), eq(a, both))) is True
    assert w.facts.known(ge(both, 0)) is True
    assert w.facts.known(ge(both, a)) is None  # 1 with 0 is 0


# --- assuming


def test_true_and_false_hold_for_ever_and_unknown_until_facts_grow(w):
    a, b = w.s[:2]
    assert w.facts.known(ge(a, 5)) is None
    w.facts.assume(ge(a, b))
    assert w.facts.known(ge(a, 5)) is None
    w.facts.assume(ge(b, 7))
    assert w.facts.known(ge(a, 5)) is True
    assert w.facts.known(lt(a, 7)) is False


def test_a_child_learns_without_its_parent(w):
    a = w.s[0]
    child = w.facts.fork()
    child.assume(ge(a, 3), "child")
    w.facts.assume(le(a, 9), "parent")
    assert child.known(ge(a, 2)) is True and w.facts.known(ge(a, 2)) is None
    assert w.facts.known(le(a, 9)) is True and child.known(le(a, 9)) is None
    assert [reason for _, reason in child.all()] == ["child"]
    grandchild = child.fork()
    grandchild.assume(eq(a, 4))
    assert grandchild.simplify(a + 1) == 5 and child.simplify(a + 1) is a + 1


def test_what_is_refuted_cannot_be_assumed(w):
    a, b = w.s[:2]
    w.facts.assume(ge(a, 5), "long enough")
    w.facts.assume(lt(a, b), "shorter than b")
    with pytest.raises(Contradiction, match="long enough") as caught:
        w.facts.assume(lt(b, 6), "no")
    assert caught.value.reasons == ["long enough", "shorter than b"]
    assert w.facts.known(lt(b, 6)) is False


def test_a_refuted_assumption_leaves_no_trace(w):
    a, b, c = w.s[:3]
    w.facts.assume(le(a * b, 3), "small")
    w.facts.assume(any_of(eq(a, 2), eq(a, 4)), "even")
    before = w.facts.all()
    impossible = all_of(ge(c, 7), eq(b, c + 1), eq(a, b))
    with pytest.raises(Contradiction):
        w.facts.assume(impossible)
    assert w.facts.all() == before
    assert w.facts.simplify(b) is b and w.facts.known(ge(c, 7)) is None
    w.facts.assume(eq(b, 1))
    assert w.facts.known(le(a, 3)) is True


def test_no_integer_lies_between_zero_and_one(w):
    a, i = w.s[0], w.i[0]
    assert w.facts.known(ge(i * i, i)) is True
    assert w.facts.known(eq(a * a, 2 * a + 1)) is None
    assert w.facts.known(le(a * a + 1, a)) is False


def test_why_names_the_facts_that_were_needed_and_no_others(w):
    a, b, c = w.s[:3]
    w.facts.assume(le(a, b), "a <= b")
    w.facts.assume(le(c, 100), "c <= 100")
    w.facts.assume(le(b, 10), "b <= 10")
    assert w.facts.why(le(a, 12)) == ["a <= b", "b <= 10"]
    assert w.facts.why(ge(a, 0)) == []
    assert w.facts.why(ge(a, 5)) == []
    w.facts.assume(eq(c % 8, 0), "8 divides c")
    assert w.facts.why(ne(c, 12)) == ["8 divides c"]
    w.facts.assume(ge(b, 9))
    assert w.facts.why(ge(b, 2)) == [ge(b, 9)]


def test_all_lists_what_was_assumed_in_order(w):
    a = w.s[0]
    w.facts.assume(ge(a, 2), "one")
    w.facts.assume(ge(a, 1), "known already")
    w.facts.assume(le(a, 5), "two")
    assert w.facts.all() == [(ge(a, 2), "one"), (le(a, 5), "two")]


# --- equalities


def test_an_equality_substitutes_everywhere(w):
    a, b = w.s[:2]
    facts = knowing(w, eq(b, a))
    assert facts.simplify(b * 4 + 1) is a * 4 + 1
    assert facts.simplify(minimum(a, b)) is a
    assert facts.simplify(b // 8) is a // 8
    assert facts.simplify(broadcast(a, b)) is a
    assert facts.known(eq(a * 64, b * 64)) is True


def test_what_data_decides_is_replaced_by_what_is_known_at_entry(w):
    facts = knowing(w, eq(w.s[1], w.u[0]), eq(w.u[1], 2 * w.s[0] + 1))
    assert facts.simplify(w.u[0]) is w.s[1]
    assert facts.simplify(w.u[1] + 1) is 2 * w.s[0] + 2


def test_a_size_equal_to_an_expression_passes_its_range_on(w):
    a, b = w.s[:2]
    facts = knowing(w, le(b, 10), eq(b, 3 * a - 6))
    assert facts.bounds(a) == (2, 5)


def test_equal_ends_of_a_range_are_an_equality(w):
    a = w.s[0]
    assert knowing(w, ge(a, 5), lt(a, 6)).simplify(a * 2) == 10
    assert knowing(w, le(a, 0)).simplify(a) == 0
    assert knowing(w, le(a, 1), ne(a, 0)).simplify(a) == 1


def test_numbers_of_elements_agree(w):
    a, b, c, d = w.s[:4]
    facts = knowing(w, eq(a * b, c * d))
    assert facts.known(eq(a * b * 64, 64 * c * d)) is True
    assert facts.known(eq(a, c)) is None
    facts.assume(eq(b, d))
    assert facts.known(eq(a, c)) is None  # b may be 0
    facts.assume(ge(b, 1))
    assert facts.known(eq(a, c)) is True


def test_a_cache_that_grows(w):
    past, new, full = w.s[:3]
    facts = knowing(w, eq(full, past + new))
    assert facts.simplify(full * 64 - past * 64) is new * 64
    facts.assume(ge(new, 1))
    assert facts.known(gt(full, past)) is True
    assert facts.simplify((w.s[3] * full * 64) // (full * 64)) is w.s[3]


# --- division


def test_products_cancel_only_where_the_divisor_is_not_zero(w):
    a, b, c = w.s[:3]
    whole, part = a * b * 64, b * 64
    assert str(w.facts.simplify(whole // part)) == "(s0*s1)//s1"
    facts = knowing(w, gt(b, 0))
    assert facts.simplify(whole // part) is a
    assert facts.simplify(whole % part) == 0
    assert facts.simplify((a * b + b * c) // b) is a + c
    assert facts.simplify((a * (b + c) * 8) // (4 * b + 4 * c)) is 2 * a
    assert facts.simplify((a * b + 3) % b) is mod(3, b)


def test_a_numel_that_is_not_zero_has_no_zero_factor(w):
    a, b, c = w.s[:3]
    facts = knowing(w, ge(a * b * c, 1))
    assert facts.known(ge(a, 1)) is True
    assert facts.simplify((a * b) // b) is a


def test_a_known_remainder_makes_division_exact(w):
    a, b = w.s[:2]
    facts = knowing(w, eq(a % 8, 0))
    assert facts.simplify(a // 8 * 8) is a
    assert facts.simplify(a // 8 * 16) is 2 * a
    assert facts.simplify((a + 3) % 8) == 3
    assert facts.simplify(a % 4) == 0
    assert facts.divisor(3 * a) == 24
    assert facts.divisor(a * b) == 8
    assert facts.known(eq(a, 12)) is False
    assert facts.known(ne(2 * a, 24)) is True
    assert knowing(facts_world(w, facts), eq(b, a // 8)).simplify(a) is a


def facts_world(w, facts):
    other = Unknowns.__new__(Unknowns)
    other.__dict__.update(w.__dict__, facts=facts)
    return other


def test_remainders_combine(w):
    a = w.s[0]
    facts = knowing(w, eq(a % 4, 3), eq(a % 3, 1))
    assert facts.simplify(a % 12) == 7
    assert facts.bounds(a) == (7, None)
    with pytest.raises(Contradiction):
        facts.assume(eq(a % 6, 2))


def test_an_equation_without_a_unit_coefficient_leaves_residues(w):
    a, b = w.s[:2]
    facts = knowing(w, eq(2 * a, 3 * b))
    assert facts.divisor(a) == 3 and facts.divisor(b) == 2
    assert facts.known(eq(a, 4)) is False


def test_divisors_of_zero_and_constants(w):
    assert w.facts.divisor(12) == 12
    assert w.facts.divisor(0) % 2**20 == 0
    assert w.facts.divisor(8 * w.s[0] + 12) == 4


def test_small_dividends(w):
    a, b = w.s[:2]
    facts = knowing(w, lt(a, b))
    assert facts.simplify(a % b) is a
    assert facts.simplify(a // b) == 0
    assert facts.known(ge(b, 1)) is True


# --- choices


def test_ranges_choose(w):
    a, b = w.s[:2]
    assert knowing(w, le(a, 2048)).simplify(minimum(a, 2048)) is a
    assert knowing(w, ge(a, 2048)).simplify(minimum(a, 2048)) == 2048
    assert w.facts.simplify(maximum(a, 0)) is a
    assert knowing(w, le(a, b)).simplify(minimum(a, b) + maximum(a, b)) is a + b


def test_broadcasts_are_decided_by_ones(w):
    a, b, c = w.s[:3]
    assert knowing(w, eq(a, 1)).simplify(broadcast(a, b)) is b
    assert knowing(w, ge(a, 2)).simplify(broadcast(a, b)) is a
    assert knowing(w, eq(a, 1)).simplify(broadcast(a, b, c)) is broadcast(b, c)
    assert w.facts.simplify(broadcast(a, b)) is broadcast(a, b)


def test_alternatives_hold_without_one_that_is_false_by_now(w):
    a, b, u = w.s[0], w.s[1], w.u[0]
    low = minimum(a * b, mod(u, 7))
    facts = knowing(w, any_of(eq(b, 1), eq(low, 1), eq(b, low)), ne(b, 1))
    assert facts.known(any_of(eq(b, low), eq(low, 1))) is True
    assert facts.known(any_of(eq(a, low), eq(low, 1))) is None
    assert len(facts.why(any_of(eq(b, low), eq(low, 1)))) == 2


def test_alternatives_are_those_of_sizes_that_are_equal(w):
    a, b, u = w.s[0], w.s[1], w.u[0]
    stated = any_of(eq(b, 1), eq(u, 1), eq(b, u))
    for conditions in ((eq(a, b), stated), (stated, eq(a, b))):
        facts = knowing(w, *conditions)
        for size in (a, b):
            assert facts.known(any_of(eq(size, 1), eq(u, 1), eq(size, u))) is True
        assert facts.known(any_of(eq(a, 1), eq(a, u))) is None
        assert len(facts.why(any_of(eq(a, 1), eq(u, 1), eq(a, u)))) in (1, 2)


def test_alternatives_may_hold_in_a_part_what_is_asked(w):
    a, b, c, d = w.s[:4]
    either, other = any_of(eq(a, 1), eq(d, 0)), any_of(eq(c, 1), eq(a * d, 6))
    facts = knowing(w, any_of(all_of(either, ne(c, a)), eq(d, 0)))
    assert facts.known(either) is True
    assert len(facts.why(either)) == 1
    around = any_of(all_of(other, ne(b, 7)), eq(a, 1)), any_of(all_of(either, ne(b, 8)), eq(c, 1))
    facts = knowing(w, *around)
    assert facts.known(either) is facts.known(other) is None
    assert knowing(w, *around, eq(b, 7)).known(either) is True
    assert knowing(w, *around, eq(b, 8)).known(other) is True


def test_alternatives_are_used_when_all_but_one_are_gone(w):
    a, b = w.s[:2]
    facts = knowing(w, any_of(eq(a, 1), eq(b, 1), eq(a, b)), ge(a, 2), ne(b, 1))
    assert facts.known(eq(a, b)) is True


def test_alternatives_decide_what_follows_from_each(w):
    a, b = w.s[:2]
    facts = knowing(w, any_of(all_of(eq(a, 3), le(b, 4)), eq(a, 5)))
    assert facts.known(ge(a, 3)) is True
    assert facts.known(eq(a, 4)) is False
    assert facts.known(eq(a, 3)) is None


def test_disjunctions_are_known_when_their_opposite_is_impossible(w):
    a, b = w.s[:2]
    facts = knowing(w, le(a, b))
    assert facts.known(any_of(lt(a, 5), ge(b, 5))) is True
    assert facts.known(all_of(ge(a, 5), lt(b, 5))) is False
    assert isinstance(any_of(lt(a, 5), ge(b, 6)), AnyOf)
    assert facts.known(any_of(lt(a, 5), ge(b, 6))) is None


# --- sizes that data decides


def test_bounds_of_data_dependent_sizes_compose(w):
    a, b, u, v = w.s[0], w.s[1], w.u[0], w.u[1]
    facts = knowing(w, le(a, 100), le(b, 10), le(u, a * b), le(v, u))
    assert facts.bounds(u) == (0, 1000)
    assert facts.known(le(v, a * b)) is True
    assert facts.known(le(v * 64, a * b * 64)) is True
    assert facts.known(le(v * w.s[2], a * b * w.s[2])) is True
    assert facts.known(eq(v, u)) is None


def test_the_bound_of_a_size_in_sizes_known_at_entry(w):
    a, b, u, v = w.s[0], w.s[1], w.u[0], w.u[1]

    def entry(symbol):
        return symbol.knowledge == "entry"

    facts = knowing(w, le(u, a * b), le(v, u), le(w.u[2], 7))
    assert facts.upper(v, entry) is a * b
    assert facts.upper(2 * v + w.u[2] + a, entry) is 2 * a * b + 7 + a
    assert facts.upper(v // 4 + 1, entry) is (a * b) // 4 + 1
    assert facts.upper(minimum(v, 100), entry) is minimum(a * b, 100)
    assert facts.upper(a - v, entry) is a
    assert facts.upper(v * b, entry) is a * b * b
    assert facts.upper(w.u[3], entry) is None
    assert facts.upper(a + 3, entry) is a + 3


def test_offsets_of_pieces_are_in_order(w):
    pieces = w.u
    whole = w.s[0]
    facts = knowing(w, eq(total(pieces), whole))
    offset = 0
    for piece in pieces:
        assert facts.known(ge(offset, 0)) is True
        assert facts.known(le(offset + piece, whole)) is True
        offset = offset + piece
    assert facts.simplify(total(pieces)) is whole


# --- cost


def test_five_thousand_symbols_cost_as_much_each_as_fifty(w):
    """Counts, not times: how many expressions and proofs a chain of facts makes."""

    def made(count):
        space = Space()
        facts = Facts(space)
        most = space.fresh("s")
        facts.assume(le(most, 10000))
        for _ in range(count):
            u = space.fresh("u", policy="unbacked", knowledge="midrun")
            facts.assume(le(u, most))
            assert facts.known(eq(u, 1)) is None
            assert facts.known(le(u, 10000)) is True
            assert facts.known(eq(u, most)) is None
        return len(space.relations) + len(space.memo)

    assert made(800) <= 10 * made(80) + 50


def test_forks_share_what_they_know(w):
    facts = w.facts
    for symbol in w.s:
        facts.assume(le(symbol, 100))
    facts.fork()
    forks = [facts]
    for _ in range(200):
        forks.append(forks[-1].fork())
    assert forks[-1].ranges.older is facts.ranges.older
    assert forks[-1].known(le(w.s[0], 100)) is True


def test_facts_under_a_condition_are_kept_while_nothing_more_is_learned(w):
    facts, (s0, s1, *_) = w.facts, w.s
    child = facts.under(gt(s0, 1))
    assert child.known(ge(s0, 2)) is True and facts.known(ge(s0, 2)) is None
    assert facts.under(gt(s0, 1)) is child
    child.assume(le(s1, 7))
    fresh = facts.under(gt(s0, 1))
    assert fresh is not child and fresh.known(le(s1, 7)) is None
    facts.assume(le(s1, 9))
    assert facts.under(gt(s0, 1)).known(le(s1, 9)) is True
    assert facts.under(gt(s1, 9)) is None


def test_what_is_supposed_may_have_no_sizes(w):
    """Nobody finds that sizes of two at least contradict an equality until all are assumed: a
    supposition is no claim, so what is refuted is left out, and nothing is raised."""
    s0, s1, s2, s3, _ = w.s
    facts = knowing(w, ge(s1, 1), eq(s0 * s1 * s2 * s3, s0 * s1))
    large = [ge(size, 2) for size in (s2, s3, s0)]
    assert [facts.known(condition) for condition in large] == [None] * 3
    supposed = facts.supposing(large)
    assert [supposed.known(condition) for condition in large] == [True, True, False]
    assert [facts.known(condition) for condition in large] == [None] * 3


def test_what_is_nested_without_end_is_merely_unknown(w):
    dim = w.s[0]
    for _ in range(400):
        dim = (dim * w.space.fresh("y")) % 11
    assert w.facts.known(eq(dim, 7)) is None
    assert w.facts.known(le(dim, 10)) is True
    assert w.facts.simplify(dim) is dim
    assert evaluate(dim, {symbol.symbol: 1 for symbol in w.space}) == 1
    assert "..." in str(dim)


def test_an_equality_whose_sides_become_the_same_says_nothing(w):
    def chunks(size):
        return (size + (4 * size) % 5) // 5

    a, b = w.s[:2]
    facts = knowing(w, eq(chunks(b), chunks(a)), eq(a, b))
    assert facts.simplify(chunks(a)) is facts.simplify(chunks(b))
    assert facts.known(eq(chunks(a), chunks(b))) is True


def test_an_answer_survives_facts_about_other_symbols(w):
    a, b, c, d, e = w.s
    w.facts.assume(le(a + b, c))
    question = le(a, b)
    assert w.facts.known(question) is None
    before = w.space.work.questions
    w.facts.assume(le(d, e))
    asked = w.space.work.questions
    assert w.facts.known(question) is None
    assert w.space.work.questions == asked > before  # it was not worked out again
    w.facts.assume(le(a, 3))
    w.facts.assume(ge(b, 3))
    assert w.facts.known(question) is True


def test_the_steps_of_a_question_do_not_grow_with_facts_about_other_symbols():
    def steps(others: int) -> int:
        space = Space()
        facts = Facts(space)
        a, b, c = (space.fresh("s") for _ in range(3))
        facts.assume(le(a * b, c))
        facts.assume(le(b + c, 3 * a))
        for _ in range(others):
            x, y, z = (space.fresh("s") for _ in range(3))
            facts.assume(le(x * y, z))
        before = space.work.steps
        assert facts.known(le(c, 2 * b)) is None
        return space.work.steps - before

    assert steps(200) == steps(0) > 0


def test_a_search_that_finds_nothing_ends_early():
    """Of products of seven sizes, of which one search took all steps of the question: a batch of
    linear_operator's asks hundreds of these."""
    space = Space()
    facts = Facts(space)
    batch, others = ([space.fresh("s") for _ in range(6)] for _ in range(2))
    rows, last = space.fresh("s"), space.fresh("s")
    facts.assume(all_of(*map(eq, batch, others)))
    facts.assume(all_of(*(eq(size, 1) for size in batch[:2])))
    for size, other in zip(batch[2:], (space.fresh("s") for _ in range(4))):
        facts.assume(eq(size, other))
    facts.assume(ge(batch[-1], 1))
    facts.assume(eq(math.prod(batch[2:], start=rows * last), 768))
    facts.assume(ne(2 * batch[-1] * last, batch[-1] + last))
    facts.assume(ne(2 * batch[-1] * last, last + 1))
    before = space.work.steps
    assert facts.known(eq(last, 4)) is None
    assert 2000 < space.work.steps - before < 6000  # 16,586 before


def test_a_product_that_is_not_zero_says_what_its_factors_are_not(w):
    x, y = w.i[:2]
    w.facts.assume(ne(x * y - x, 0), "checked")
    assert w.facts.known(eq(x, 0)) is False
    assert w.facts.known(ne(y, 1)) is True
    assert w.facts.why(ne(y, 1)) == ["checked"]


def test_reasons_name_the_fact_that_a_bound_was_moved_past(w):
    x = w.i[0]
    w.facts.assume(ne(x, 0), "not zero")
    w.facts.assume(ge(x, 0), "not negative")
    assert w.facts.why(ge(x, 1)) == ["not zero", "not negative"]


def test_a_product_of_two_sums_that_is_not_zero_has_factors_that_are_not(w):
    x, y = w.s[:2]
    least = minimum(y, 1)
    product = x * y - x * least - y + least  # (x - 1) * (y - least)
    facts = knowing(w, ne(product, 0))
    assert facts.known(eq(x, 1)) is False and facts.known(eq(y, least)) is False
    assert facts.known(ge(y, 2)) is True
    assert facts.known(eq(product, 0)) is False
    assert w.facts.known(eq(product, 0)) is None
    assert knowing(w, eq(x, 1)).known(eq(product, 0)) is True
    assert set(facts.why(eq(x, 1))) == {ne(product, 0)}
    minus = knowing(w, ne(x * y - x - y, -1))  # (x - 1) * (y - 1) != 0
    assert minus.known(eq(x, 1)) is False and minus.known(eq(y, 1)) is False
    assert knowing(w, ne(x * y - x - y, 0)).known(eq(x, 1)) is None


def test_a_size_that_is_not_its_least_value_is_above_it(w):
    """x is no less than min(x, 1): what it is not equal to, it is above."""
    s0, s1 = w.s[:2]
    facts = knowing(w, ne(s0, minimum(s0, 1)), ne(s1, minimum(s1, 1) + 1), ne(s1, minimum(s1, 1)))
    assert facts.quick(ge(s0, 2)) is True
    assert facts.quick(ge(s1, 3)) is True


def test_bounds_that_follow_from_what_cannot_be_do_not_grow_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step squares the least value of the size: after ten a bound had thousands of digits."""
    space = Space()
    facts = Facts(space)
    a, b, size, stride = (space.fresh("s") for _ in range(4))
    facts.assume(ge(size, 1))
    facts.assume(le(a * b * size * size + 1, size))
    bits: list[int] = []
    narrow = learn.narrow

    def watched(facts: Any, form: Any, lo: int | None, hi: int | None, why: Any) -> None:
        bits.extend(bound.bit_length() for bound in (lo, hi) if bound is not None)
        narrow(facts, form, lo, hi, why)

    monkeypatch.setattr(learn, "narrow", watched)
    assert facts.known(any_of(eq(b * size, stride), eq(a, 0), eq(b, 0))) in (True, None)
    assert bits and max(bits) < 256


@pytest.mark.parametrize("order", [*itertools.permutations("mou")])
def test_what_a_product_is_known_to_be_holds_when_one_of_its_sizes_gets_a_value(
    order: tuple[str, ...],
) -> None:
    space = Space()
    a, b, c = (space.fresh("s") for _ in range(3))
    u = space.fresh("u", policy="unbacked", knowledge="midrun")
    said = {
        "m": eq(minimum(a * b * c, 2), 0),
        "o": eq(b, 1),
        "u": ge(a * b * c, b * c + u),
    }
    facts = Facts(space)
    facts.assume(ge(a, 1))
    for name in order:
        facts.assume(said[name])
    for condition in (eq(a * c, 0), eq(c, 0), eq(u, 0), eq(minimum(a * c, 2), 0)):
        assert facts.known(condition) is True


def test_an_extremum_that_one_argument_alone_can_be_says_what_that_is() -> None:
    space = Space()
    x, y = space.fresh("s"), space.fresh("s")
    facts = Facts(space)
    facts.assume(eq(minimum(x, 3), 2))
    facts.assume(eq(maximum(y, 3), 5))
    assert facts.known(eq(x, 2)) is True and facts.known(eq(y, 5)) is True
    facts = Facts(space)
    facts.assume(eq(minimum(x, 3), 3))
    assert facts.known(eq(x, 3)) is None and facts.known(ge(x, 3)) is True
