"""The normal form: it means what Python means, and equal things are one object."""

from __future__ import annotations

import copy

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anyshape.symbolic import (
    Space,
    broadcast,
    ceildiv,
    evaluate,
    floordiv,
    maximum,
    minimum,
    mod,
    total,
)
from tests.symbolic.trees import Undefined, built, environments, plain, signed_symbols, tree, value

NAMES = ("x", "y", "z")


@settings(max_examples=700, deadline=None)
@given(tree(NAMES), st.lists(environments(NAMES), min_size=8, max_size=8))
def test_an_expression_means_what_python_means(node, envs):
    symbols = signed_symbols(NAMES)
    try:
        dim = built(node, symbols)
    except Undefined:
        return
    for env in envs:
        try:
            expected = plain(node, env)
        except Undefined:
            continue
        got = value(dim, {symbols[name].symbol: size for name, size in env.items()})
        assert got == expected, (dim, env)


@settings(max_examples=200, deadline=None)
@given(tree(NAMES, ("+", "-", "*")), tree(NAMES, ("+", "-", "*")))
def test_two_polynomials_are_identical_exactly_when_they_are_equal(a, b):
    symbols = signed_symbols(NAMES)
    x, y = built(a, symbols), built(b, symbols)
    points = [(i, j, k) for i in range(-2, 3) for j in range(-2, 3) for k in range(-2, 3)]
    envs = [dict(zip(NAMES, point)) for point in points]
    equal = all(plain(a, env) == plain(b, env) for env in envs)
    if x is y or x == y:
        assert equal
    degree_is_small = max(
        (len(m) for d in (x, y) if not isinstance(d, int) for m in d.terms), default=0
    )
    assume(degree_is_small <= 4)
    if equal:
        assert x is y or (isinstance(x, int) and x == y)


@pytest.fixture
def s():
    space = Space()
    return [space.fresh("s") for _ in range(4)]


def test_equality_is_identity(s):
    assert s[0] * 256 is s[0] * 256
    assert (s[0] + s[1]) * (s[0] - s[1]) is s[0] ** 2 - s[1] ** 2
    assert s[0] + s[1] + s[2] is s[2] + s[1] + s[0]
    assert copy.deepcopy(s[0] + 1) is s[0] + 1


def test_a_constant_is_always_a_plain_int(s):
    for dim in (
        s[0] - s[0],
        s[0] * 0,
        s[0] // s[0].__class__.__floordiv__(s[0], 1) * 0,
        minimum(3, 2),
    ):
        assert type(dim) is int
    assert type(s[0] - s[0] + True) is int
    assert type(total([True, 2])) is int
    assert type((s[0] + True).constant) is int


def test_products_over_sizes_that_may_be_zero_are_not_cancelled(s):
    assert str((s[0] * s[1] * 64) // (s[1] * 64)) == "(s0*s1)//s1"
    assert (s[0] * 64) // 64 is s[0]
    assert (s[0] * 64 + 63) // 64 is s[0]


def test_ways_to_round_up_are_one(s):
    assert ceildiv(s[0], 4) is (s[0] + 3) // 4
    assert -(-s[0] // 4) is (s[0] + 3) // 4


def test_divisions_nest(s):
    assert s[0] // 4 // 8 is s[0] // 32
    assert (s[0] // 4 + 7) // 8 is (s[0] + 28) // 32
    assert (s[0] % 12) % 4 is s[0] % 4
    assert (s[0] % 12) // 4 is (s[0] // 4) % 3
    assert (4 * s[0] + 2) % 8 is 4 * (s[0] % 2) + 2
    assert (s[0] + 8 * s[1]) % 8 is s[0] % 8


def test_divisors_have_one_sign(s):
    assert s[0] // -s[1] is -s[0] // s[1]
    assert s[0] % -s[1] is -(-s[0] % s[1])
    assert floordiv(7, -2) == -4 and mod(7, -2) == -1


def test_minimum_is_one_set(s):
    a, b = s[0], s[1]
    assert minimum(a, minimum(b, 5), 7) is minimum(5, b, a)
    assert minimum(a, a + 3) is a and maximum(a, a + 3) is a + 3
    assert minimum(a, maximum(a, b)) is a
    assert minimum(4 * a, 8 * b) is 4 * minimum(a, 2 * b)
    assert minimum(a - 1, 2047) is minimum(a, 2048) - 1


def test_broadcast_of_unknown_and_one_keeps_unknown(s):
    a, b, c = s[:3]
    assert broadcast(a, 1) is a and broadcast(1, 1) == 1 and broadcast() == 1
    assert broadcast(a, broadcast(b, c)) is broadcast(broadcast(c, a), b, a)
    assert broadcast(a, 7) == 7
    with pytest.raises(ValueError, match="cannot be broadcast"):
        broadcast(a, 2, 3)


def test_zero_with_one_broadcasts_to_zero(s):
    dim = broadcast(s[0], s[1])
    x, y = s[0].symbol, s[1].symbol
    assert [evaluate(dim, {x: a, y: b}) for a, b in [(0, 1), (1, 0), (1, 1), (5, 1)]] == [
        0,
        0,
        1,
        5,
    ]


def test_expressions_have_no_truth_and_no_order(s):
    for ask in (lambda: bool(s[0]), lambda: s[0] < 3, lambda: s[0] >= s[1], lambda: 3 > s[0]):
        with pytest.raises(TypeError, match="facts.known"):
            ask()


def test_two_spaces_do_not_mix(s):
    other = Space().fresh("s")
    for mix in (
        lambda: s[0] + other,
        lambda: s[0] * other,
        lambda: s[0] // other,
        lambda: minimum(s[0], other),
        lambda: total([s[0], other]),
    ):
        with pytest.raises(ValueError, match="space"):
            mix()
    with pytest.raises(TypeError):
        s[0] + 1.5


def test_names_are_unique_in_a_space():
    space = Space()
    space.symbol("s0")
    assert str(space.fresh("s")) == "s1"
    with pytest.raises(ValueError, match="s0"):
        space.symbol("s0")


def test_division_by_the_constant_zero_raises(s):
    for ask in (lambda: s[0] // 0, lambda: s[0] % 0, lambda: floordiv(3, 0)):
        with pytest.raises(ZeroDivisionError):
            ask()


def test_text_is_the_same_in_every_order_of_building(s):
    a, b, c = s[:3]
    assert str(c * a + b + 4) == str(4 + b + a * c) == "s0*s2 + s1 + 4"
    assert str(2 * a + b // 4) == "2*s0 + s1//4"
    assert str(-(a // 4) + b) == "s1 - s0//4"
    assert str(-(a // 4)) == "-(s0//4)"


def test_a_sum_of_thousands_is_one_node():
    space = Space()
    symbols = [space.fresh("u", policy="unbacked", knowledge="midrun") for _ in range(5120)]
    whole = total(symbols)
    assert len(whole.terms) == 5120
    running = 0
    for symbol in symbols[:1024]:
        running = running + symbol
    assert total(symbols[:1024]) is running
    assert whole - total(symbols[1:]) is symbols[0]
