"""Long sums are spelled over the named sums that they begin with."""

from __future__ import annotations

from itertools import pairwise

from anyshape.symbolic import (
    Dim,
    Expr,
    NamedSums,
    Space,
    maximum,
    minimum,
    nested_parts,
    split_since,
    symbols_of_all,
    to_python,
)
from anyshape.targets.cpu.sizes import to_c


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
            assert near == (f"n{number - 1}", 1, partial - sums[number - 1])
        named.note(partial, f"n{number}")


def test_constants_and_skipped_sums_are_in_the_rest() -> None:
    sums, named = partial_sums(40), NamedSums()
    named.note(sums[9], "ten")
    assert named.split(sums[39] + 7) == ("ten", 1, sums[39] - sums[9] + 7)
    assert named.split(sums[9]) == ("ten", 1, 0)
    assert named.split(sums[8]) is None


def test_other_coefficients_are_other_sums() -> None:
    sums, named = partial_sums(20), NamedSums()
    named.note(sums[9], "ten")
    assert named.split(sums[19] * 3) is None


def test_small_multiples_of_named_sums_are_spelled_over_them() -> None:
    sums, named = partial_sums(100), NamedSums()
    named.note(sums[59], "n")
    new = sums[99] - sums[98]
    assert named.split(sums[59] * 2 + new) == ("n", 2, new)
    assert named.split(new - sums[59]) == ("n", -1, new)


def test_a_long_sum_is_named_without_gathering_its_terms() -> None:
    sums, named = partial_sums(2000), NamedSums()
    for number, partial in enumerate(sums):
        position = partial * 2 + 1
        named.split(position)
        named.note(partial, f"n{number}")
    assert gathered(sums) < 100


def test_symbols_of_partial_sums_are_collected_without_gathering_terms() -> None:
    sums = partial_sums(2000)
    positions = [before * 2 + (part - before) - 1 for before, part in pairwise(sums)]
    assert list(symbols_of_all(positions)) == list(symbols_of_all([sums[-1]]))
    assert gathered([*sums, *positions]) < 100
    assert set(symbols_of_all([sums[-1] - sums[0]])) == (sums[-1] - sums[0]).symbols


def test_the_recent_terms_of_a_long_sum_are_found_without_gathering_the_others() -> None:
    sums = partial_sums(2000)
    axis = sums[0].space.symbol("i")
    for offset in sums:
        recent, rest = split_since(offset * 2 - axis * 3 + 5, axis.newest)
        assert recent == {(axis.atom,): -3}
        assert sum(rest) == offset * 2 + 5
    assert gathered(sums) < 100


def gathered(sums: list[Expr]) -> int:
    """How many sums have looked up their terms: each takes time and memory of its length."""
    return sum(is_gathered(x) for x in sums)


def is_gathered(expr: Expr) -> bool:
    try:
        object.__getattribute__(expr, "terms")
    except AttributeError:
        return False
    return True


def test_operations_in_one_another_take_text_linear_in_their_number() -> None:
    size: Dim = Space().symbol("s")
    for _ in range(60):
        size = maximum(size - minimum(size, 1) * 2, 1) + size // 3
    assert isinstance(size, Expr)
    for render in (to_python, to_c):
        held: dict[Dim, str] = {}
        lines = []
        for part in nested_parts(size, held):
            lines.append(render(part, computed=held))
            held[part] = f"n{len(held)}"
        lines.append(render(size, computed=held))
        assert sum(map(len, lines)) < 60 * 400
