"""Names bound to concrete sizes; shapes made equal."""

from __future__ import annotations

import pytest

from anyshape.symbolic import (
    Facts,
    Mismatch,
    Space,
    all_of,
    bind,
    eq,
    minimum,
    substitute,
    total,
    unify,
)
from anyshape.symbolic.render import evaluator, unknowns


@pytest.fixture
def s():
    space = Space()
    return [space.fresh("s") for _ in range(3)]


def bound(patterns, sizes):
    result = bind(patterns, sizes)
    return result if isinstance(result, Mismatch) else {k.name: v for k, v in result.items()}


def test_plain_names_bind(s):
    assert bound([s[0], 64, s[1]], [3, 64, 0]) == {"s0": 3, "s1": 0}


def test_a_name_twice_must_agree(s):
    assert bound([s[0], s[0]], [4, 4]) == {"s0": 4}
    mismatch = bound([s[0], s[0]], [4, 5])
    assert (mismatch.position, mismatch.size) == (1, 5)
    assert mismatch.reason == "s0 is 4, not 5"


def test_derived_sizes_are_solved_in_any_order(s):
    assert bound([s[0] + s[1], 2 * s[0], 3], [9, 8, 3]) == {"s0": 4, "s1": 5}
    assert bound([s[0] * s[1], s[0]], [12, 4]) == {"s0": 4, "s1": 3}
    assert bound([s[0] // 4, s[0]], [2, 11]) == {"s0": 11}


def test_what_no_whole_number_solves_is_refused(s):
    assert bound([2 * s[0]], [7]).reason == "no whole number makes 2*s0 equal 7"
    assert bound([s[0] + 8], [3]).reason == "s0 + 8 = 3 makes s0 negative"
    assert bound([64], [65]).reason == "64 is 64, not 65"
    assert "undefined" in bound([s[0], 8 // s[0]], [0, 2]).reason


def test_a_product_with_a_zero_factor_binds_nothing(s):
    mismatch = bound([s[0] * s[1], s[0]], [0, 0])
    assert isinstance(mismatch, Mismatch) and "s1" in mismatch.reason


def test_what_cannot_be_solved_says_so(s):
    assert "cannot be solved" in bound([s[0] + s[1]], [3]).reason
    assert "cannot be solved" in bound([s[0] // 4], [3]).reason
    assert "2 sizes were expected, 1" in bound([s[0], s[1]], [3]).reason


def test_shapes_unify_to_what_remains_to_be_checked(s):
    facts = Facts(s[0].space)
    assert unify([s[0], 4], [s[0], 4], facts) is True
    assert unify([s[0], 4], [s[0], 5], facts) is False
    assert unify([s[0]], [s[0], 1], facts) is False
    assert unify([s[0], s[1]], [s[2], 7], facts) is all_of(eq(s[0], s[2]), eq(s[1], 7))
    facts.assume(eq(s[0], s[2]))
    assert unify([s[0], s[1]], [s[2], 7], facts) is eq(s[1], 7)


def test_symbols_are_replaced_at_every_depth(s):
    a, b, c = s
    dim = a * b + minimum(a // 4, c)
    assert substitute(dim, {a.symbol: 8, c.symbol: b}) is 8 * b + minimum(2, b)
    assert substitute(dim, {a.symbol: 0}) is minimum(0, c)
    assert substitute(dim, {}) is dim and substitute(3, {a.symbol: 1}) == 3
    assert substitute(a - b, {b.symbol: a}) == 0


@pytest.mark.parametrize("count", [3, 40, 300])
def test_the_least_of_a_long_sum_has_a_value_where_the_sum_is_not_looked_into(count):
    """What has to have a size, by `unknowns`, is all that `evaluator` reads."""
    space = Space()
    width = space.symbol("w")
    least = minimum(total([space.symbol(f"s{i}") for i in range(count)]), width)
    form = least + 3 * width
    sizes = dict.fromkeys(unknowns(form), 2)
    seen = {atom: size for atom, size in sizes.items() if atom.word}
    assert evaluator(form)(sizes, seen) == 8
