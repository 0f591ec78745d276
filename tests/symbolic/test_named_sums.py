"""Long sums are spelled over the named sums that they begin with."""

from __future__ import annotations

from anyshape.symbolic import (
    Dim,
    Expr,
    NamedSums,
    Space,
    maximum,
    minimum,
    nested_parts,
    to_c,
    to_python,
)


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


def test_operations_in_one_another_take_text_linear_in_their_number() -> None:
    size: Dim = Space().symbol("s")
    for _ in range(60):
        size = maximum(size - minimum(size, 1) * 2, 1) + size // 3
    assert isinstance(size, Expr)
    for render in (to_python, to_c):
        held: dict[Dim, str] = {}
        lines = []
        for part in nested_parts(size, held):
            lines.append(render(part, held=held))
            held[part] = f"n{len(held)}"
        lines.append(render(size, held=held))
        assert sum(map(len, lines)) < 60 * 400
