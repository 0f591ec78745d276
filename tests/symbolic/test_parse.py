"""What is written is read back as the same object; what is no size is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from anyshape.symbolic import (
    Space,
    all_of,
    any_of,
    eq,
    ge,
    le,
    lt,
    ne,
    parse_condition,
    parse_dim,
)
from tests.symbolic.trees import Undefined, built, signed_symbols, tree

NAMES = ("x", "y", "z")


@settings(max_examples=200, deadline=None)
@given(tree(NAMES), tree(NAMES))
def test_what_is_written_is_read_back_as_the_same_object(a, b):
    symbols = signed_symbols(NAMES)
    try:
        left, right = built(a, symbols), built(b, symbols)
    except Undefined:
        return
    read = parse_dim(str(left), symbols.get)
    assert read is left or (isinstance(left, int) and read == left)
    for condition in (eq(left, right), lt(left, right), any_of(ge(left, 3), ne(right, 4))):
        assert parse_condition(str(condition), symbols.get) is condition


@pytest.fixture
def named():
    space = Space()
    return {name: space.symbol(name) for name in ("time", "batch")}


def test_declarations_read_as_one_would_write_them(named):
    time, batch = named["time"], named["batch"]
    assert parse_dim(" 2*time + 1 ", named.get) is 2 * time + 1
    assert parse_dim("time**2 // 4", named.get) is (time * time) // 4
    assert parse_dim("max(batch, -3)", named.get) is not None
    assert parse_condition("time % 8 == 0", named.get) is eq(time % 8, 0)
    assert parse_condition("1 <= batch <= 64", named.get) is all_of(ge(batch, 1), le(batch, 64))
    assert parse_condition("not (time < batch or batch == 3)", named.get) is all_of(
        ge(time, batch), ne(batch, 3)
    )
    assert parse_condition("2 < 3", named.get) is True


@pytest.mark.parametrize(
    "text, reason",
    [
        ("2*tiem", "names tiem, which is not a size here"),
        ("time +", "is not an expression"),
        ("time / 2", "'time / 2' in 'time / 2' is not about sizes"),
        ("__import__('os')", "is not about sizes"),
        ("time.real", "'time.real'"),
        ("min()", "is not about sizes"),
        ("time ** 40", "is not about sizes"),
        ("time // (batch - batch)", "divides by zero"),
        ("True", "is not about sizes"),
        ("1.5 * time", "'1.5'"),
    ],
)
def test_what_is_no_size_is_refused_by_name(named, text, reason):
    with pytest.raises(ValueError) as caught:
        parse_dim(text, named.get)
    assert reason in str(caught.value)


def test_a_condition_must_be_one(named):
    for text in ("time", "time in batch", "time is batch", "f(time) < 3"):
        with pytest.raises(ValueError, match="is not about sizes"):
            parse_condition(text, named.get)
