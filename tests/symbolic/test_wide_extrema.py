"""Minima and maxima of many sizes, and sizes nested in one another: right, in linear work."""

from __future__ import annotations

from itertools import pairwise

import pytest

from anyshape.symbolic import Facts, Space, any_of, eq, evaluate, ge, le, lt, maximum, minimum
from anyshape.symbolic.expr import WIDE


class Unknowns:
    """Sizes s0 and others."""

    def __init__(self) -> None:
        self.space = Space()
        self.s = [self.space.fresh("s")]
        self.facts = Facts(self.space)


@pytest.fixture
def w() -> Unknowns:
    return Unknowns()


def test_a_minimum_of_minimums_is_minimums_of_a_few(w):
    dim, others = w.s[0], [w.space.fresh("y") for _ in range(200)]
    for other in others:
        dim = minimum(dim + 1, other)
    (atom,) = (a for m in dim.terms for a in m) if dim.atom is None else (dim.atom,)
    assert len(atom.args) <= WIDE
    sizes = {other.symbol: 500 - n for n, other in enumerate(others)} | {w.s[0].symbol: 9}
    assert evaluate(dim, sizes) == 9 + 200
    for n, other in enumerate(others):
        assert w.facts.known(le(dim, other + 199 - n)) is True
    assert w.facts.known(le(dim, others[7] + 191)) is None


@pytest.mark.parametrize("count", [WIDE, WIDE + 1, 200])
def test_an_extremum_of_many_is_that_of_a_few_at_a_time(w, count):
    sizes = [w.space.fresh("y") for _ in range(count)]
    most, least = maximum(*sizes, 3), minimum(*sizes, 3)
    values = {size.symbol: (5 * n) % 211 for n, size in enumerate(sizes)}
    assert evaluate(most, values) == max(*values.values(), 3)
    assert evaluate(least, values) == min(*values.values(), 3)
    assert all(w.facts.known(ge(most, size)) is True for size in sizes)
    assert all(w.facts.known(le(least, size)) is True for size in sizes)
    assert w.facts.known(le(least, most)) is True


def test_the_questions_about_a_maximum_are_linear_in_its_operands():
    def questions(count):
        space = Space()
        facts, dim = Facts(space), 0
        for _ in range(count):
            dim = maximum(dim, space.fresh("y", policy="unbacked"))
            facts.simplify(dim)
        return space.work.questions

    assert questions(400) < 2.2 * questions(200)


def test_a_maximum_of_more_is_no_less_and_that_takes_few_steps(w):
    sizes = [w.space.fresh("y") for _ in range(16)]
    for count in range(2, 16):
        less, more = maximum(*sizes[:count]), maximum(*sizes[: count + 1])
        before = w.space.work.steps
        assert w.facts.known(le(less, more)) is True
        assert w.facts.known(le(minimum(*sizes[: count + 1]), minimum(*sizes[:count]))) is True
        assert w.facts.known(ge(less, more)) is None
        assert w.facts.known(lt(more, less)) is False
        assert w.space.work.steps - before < 5000


def test_maxima_of_other_sizes_are_seen_to_be_undecided_without_a_proof_search(w):
    """A size of one makes it the larger, and all of the other would have to change for that."""
    parts = [[w.space.fresh("y") for _ in range(WIDE)] for _ in range(6)]
    before = w.space.work.steps
    for one, other in pairwise(parts):
        assert w.facts.known(ge(maximum(*one), maximum(*other))) is None
        assert w.facts.known(le(maximum(*one), maximum(*other))) is None
        assert w.facts.known(ge(minimum(*one), minimum(*other))) is None
        assert w.facts.known(eq(maximum(*one), minimum(*other))) is None
    assert w.space.work.steps - before < 6000  # 42,098 before


def test_sizes_nested_in_many_ways_take_no_longer_for_it():
    """Each size holds the last one three times, so that there are 3**24 ways through it."""

    def work(count):
        space = Space()
        facts, size = Facts(space), space.fresh("s")
        for _ in range(count):
            k = minimum(space.fresh("u", policy="unbacked"), size)
            size = minimum(size + k, maximum(k, 8))
            facts.known(eq(size % 4, 1))
        return space.work.questions

    assert work(40) < 3 * work(20)


def test_a_minimum_of_a_maximum_is_a_maximum_of_minima_where_one_is_known_to_be_less(w):
    """Diagonals of diagonals of what was cut to a minimum have such sizes, in both forms."""
    a, b, c = w.s[0], w.space.fresh("s"), w.space.fresh("s")
    bounded = minimum(maximum(minimum(b, a + 1), 1), c + 1)
    same = maximum(minimum(minimum(b, a + 1), c + 1), 1)
    assert w.facts.known(eq(bounded, same)) is True
    assert w.facts.known(any_of(eq(bounded, same), eq(same, 2))) is True
