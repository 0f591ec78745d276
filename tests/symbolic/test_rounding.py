"""Sizes rounded up to multiples, and remainders of quotients: each form against brute force."""

from __future__ import annotations

from itertools import product

import pytest

from anyshape.symbolic import Facts, Space, eq, evaluate, ge, le, ne
from anyshape.symbolic.expr import Expr

SIZES = range(97)
DIVISORS = (2, 3, 4, 6)


def value(dim, sizes):
    return evaluate(dim, sizes) if isinstance(dim, Expr) else dim


@pytest.mark.parametrize("divisor", (2, 3, 4, 7, 16))
def test_a_size_and_what_pads_it_are_one_term(divisor):
    space = Space()
    x = space.symbol("x")
    for inner in (x, x // 4, x * (x // 3), x + 5):
        rounded = Facts(space).simplify(inner + (-inner) % divisor)
        assert len(rounded.terms) == 1 and not rounded.constant % divisor, rounded
        for size in SIZES:
            sizes = {x.symbol: size}
            start = value(inner, sizes)
            assert value(rounded, sizes) == -(-start // divisor) * divisor


def test_a_size_is_padded_to_a_symbolic_multiple():
    space = Space()
    x, y = space.symbol("x"), space.symbol("y")
    facts = Facts(space)
    unknown = facts.simplify(x + (-x) % y)
    assert len(unknown.terms) == 2  # y may be 0
    facts.assume(ge(y, 1))
    rounded = facts.simplify(x + (-x) % y)
    assert len(rounded.terms) == 1
    assert facts.known(eq((x + (-x) % y) % y, 0)) is True
    assert facts.known(eq((x - x % y) % y, 0)) is True
    for a, b in product(range(20), range(1, 9)):
        assert value(rounded, {x.symbol: a, y.symbol: b}) == -(-a // b) * b


def test_a_product_of_padded_sizes_is_a_product():
    space = Space()
    n, x, y = (space.symbol(name) for name in "nxy")
    a, b = x // 4, y // 4
    area = Facts(space).simplify(n * (a + (-a) % 4) * (b + (-b) % 4))
    assert len(area.terms) == 1
    for sizes in product(range(3), range(0, 70, 3), range(0, 70, 5)):
        env = dict(zip((n.symbol, x.symbol, y.symbol), sizes))
        rows, columns = (-(-(size // 4) // 4) * 4 for size in sizes[1:])
        assert value(area, env) == sizes[0] * rows * columns


@pytest.mark.parametrize("c, d", list(product(DIVISORS, DIVISORS)))
def test_remainders_of_a_size_and_of_its_quotient_are_one_remainder(c, d):
    for k, r, other_way in product(range(c), range(d), (False, True)):
        space = Space()
        x = space.symbol("x")
        facts = Facts(space)
        stated = [eq(x % c, k), eq((x // c) % d, r)]
        facts.assume_all((fact, None) for fact in (stated[::-1] if other_way else stated))
        if not other_way:
            assert facts.known(eq(x % (c * d), c * r + k)) is True
        for size in range(c * r + k, 97, c * d):
            sizes = {x.symbol: size}
            for shift, by in product((0, 1, 5), (c, d, c * d)):
                dim = (x + shift) // by
                assert value(facts.simplify(dim), sizes) == (size + shift) // by
                lo, hi = facts.bounds(dim)
                assert (lo is None or lo <= (size + shift) // by) and (hi is None or hi >= 0)


@pytest.mark.parametrize("modulus", DIVISORS)
def test_a_value_that_is_excluded_at_an_end_moves_the_end(modulus):
    for holes in product(range(modulus), repeat=2):
        space = Space()
        x = space.symbol("x")
        facts = Facts(space)
        left = [size for size in SIZES if size % modulus not in holes]
        if not left:
            continue
        for hole in holes:
            facts.assume(ne(x % modulus, hole))
        lo, hi = facts.bounds(x % modulus)
        assert all(lo <= size % modulus <= hi for size in left)
        divisor = facts.divisor(x)
        assert all(size % divisor == 0 for size in left)
        for residue in range(modulus):
            answer = facts.known(eq(x % modulus, residue))
            truths = {size % modulus == residue for size in left}
            assert answer is None or truths == {answer}, (holes, residue)


def test_one_of_two_remainders_is_known_once_the_other_is_excluded():
    space = Space()
    x = space.symbol("x")
    facts = Facts(space)
    facts.assume(eq(x % 4, 0), "whole patches")
    facts.assume(ne((x // 4) % 2, 1), "an even number of patches")
    assert facts.divisor(x) == 8
    assert facts.simplify((x + 4) // 8) is x // 8
    assert facts.known(le((x + 4) // 8, x // 8)) is True
    assert facts.why(eq(x % 8, 0)) == ["whole patches", "an even number of patches"]


def test_a_question_has_one_budget_with_all_that_it_asks():
    """Conditions of rules are questions too: they draw on the steps of the question that asks."""
    space = Space()
    sizes = [space.symbol(f"s{i}") for i in range(4)]
    facts = Facts(space)
    for left, right in zip(sizes, sizes[1:]):
        facts.assume(ge(left * right // 3, right // 2))
    form = sum((a // (b + 1)) % (a * b + 1) for a, b in zip(sizes, sizes[1:]))
    for bound in range(4):
        before = space.work.steps
        facts.known(eq(form * sizes[0], bound + sizes[1]))
        assert space.work.steps - before < 1 << 15
