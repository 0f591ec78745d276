"""Polynomial division: by one term, each term of the dividend by itself."""

from __future__ import annotations

import random

import pytest

from anyshape.symbolic import Space, total
from anyshape.symbolic.atoms import quotient_of
from anyshape.symbolic.expr import divide


@pytest.mark.parametrize("seed", range(40))
def test_division_by_a_term_and_by_a_sum(seed: int) -> None:
    draw = random.Random(seed)
    space = Space()
    x, y, z = (space.symbol(name) for name in "xyz")
    factors = [x, y, z, x * y, x * x, y * z, 1]
    dividend = total([draw.randint(-9, 9) * draw.choice(factors) * x for _ in range(6)])
    divisor = draw.choice([1, 2, 3]) * draw.choice([x, x * y, z, x * x])
    if draw.random() < 0.5:
        divisor = divisor + draw.choice([1, z, y])
    quotient, rest = divide(dividend, divisor)
    assert quotient * divisor + rest == dividend
    first, scale = divisor.ordered_terms()[0]
    if not isinstance(rest, int):
        for monomial, coefficient in rest.terms.items():
            assert quotient_of(monomial, first) is None or coefficient % scale


def test_a_long_sum_is_divided_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space()
    width = space.symbol("w")
    long = total([width * space.symbol(f"s{i}") for i in range(600)])
    monkeypatch.setattr(type(long), "ordered_terms", _refuse_long(type(long).ordered_terms))
    quotient, rest = divide(long + width * 3, width)
    assert rest == 0 and len(quotient.terms) == 600 and quotient.constant == 3


def _refuse_long(ordered_terms):
    def asked(expr):
        assert len(expr.terms) == 1
        return ordered_terms(expr)

    return asked
