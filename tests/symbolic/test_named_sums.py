"""Long sums are spelled over the named sums that they begin with."""

from __future__ import annotations

from anyshape.symbolic import Dim, Expr, NamedSums, Space


def partial_sums(count: int) -> list[Expr]:
    space, made = Space(), []
    running: Dim = 0
    for _ in range(count):
        running = running + space.fresh("u")
        assert isinstance(running, Expr)
        made.append(running)
    return made


def test_each_partial_sum_is_the_one_before_and_one_symbol() -> None:
    sums, named = partial_sums(100), NamedSums()
    for number, partial in enumerate(sums):
        near = named.split(partial)
        if number >= 4:
            assert near == (f"n{number - 1}", partial - sums[number - 1])
        named.note(partial, f"n{number}")


def test_constants_and_skipped_sums_are_in_the_rest() -> None:
    sums, named = partial_sums(40), NamedSums()
    named.note(sums[9], "ten")
    assert named.split(sums[39] + 7) == ("ten", sums[39] - sums[9] + 7)
    assert named.split(sums[9]) == ("ten", 0)
    assert named.split(sums[8]) is None


def test_other_coefficients_are_other_sums() -> None:
    sums, named = partial_sums(20), NamedSums()
    named.note(sums[9], "ten")
    assert named.split(sums[19] * 2) is None
