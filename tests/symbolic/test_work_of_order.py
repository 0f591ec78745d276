"""Facts about sizes that get their values one after the other: what they cost, by counting."""

from __future__ import annotations

import cProfile
import pstats
from itertools import pairwise

from anyshape.symbolic import Dim, Expr, Facts, Space, Symbol, ge, le


def sizes(space: Space, count: int) -> list[Expr]:
    return [space.fresh("u", policy="unbacked", knowledge="midrun") for _ in range(count)]


def symbol(size: Expr) -> Symbol:
    assert size.symbol is not None
    return size.symbol


def offsets(count: int) -> tuple[Facts, list[Expr]]:
    """Each at least the one before, and all at most the length of what they are offsets in."""
    space = Space()
    facts, length, made = Facts(space), space.symbol("s"), sizes(space, count)
    for one, other in pairwise(made):
        facts.assume(ge(other, one))
        facts.assume(le(other, length))
    return facts, made


def test_a_move_of_one_size_is_told_to_the_claims_about_it_alone() -> None:
    """All claims were looked at after each move: 24,610 steps for these ten questions."""
    facts, made = offsets(40)
    before = facts.space.work.steps
    for i in range(0, 30, 3):
        shorter = ge(made[i + 1] - made[i], made[i + 4] - made[i + 3])
        assert facts.known(shorter) is None
    assert facts.space.work.steps - before < 19_000


def test_facts_in_the_order_of_their_sizes_are_not_proved_again() -> None:
    facts, made = offsets(40)
    before = facts.space.work.questions
    stages = facts.in_order({symbol(size): rank for rank, size in enumerate(made)})
    assert facts.space.work.questions == before
    assert len(stages) == 40
    for rank, known in stages:
        for i, (one, other) in enumerate(pairwise(made)):
            assert known.known(ge(other, one)) is (True if rank > i or rank == 39 else None)
    assert stages[-1][1].known(ge(made[3], made[0])) is True


def partial_sums(count: int) -> tuple[Facts, dict[Symbol, int]]:
    space = Space()
    facts, length, made = Facts(space), space.symbol("s"), sizes(space, count)
    end: Dim = 0
    for size in made:
        end = end + size
        facts.assume(le(end, length))
    return facts, {symbol(size): rank for rank, size in enumerate(made)}


def work_of_order(count: int) -> int:
    """Calls of functions, of the second time: the stages are kept."""
    facts, ranks = partial_sums(count)
    facts.in_order(ranks)
    profile = cProfile.Profile()
    profile.enable()
    facts.in_order(dict(ranks))
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_when_partial_sums_are_known_is_found_in_linear_work() -> None:
    """Each looked at all sizes in it."""
    assert work_of_order(400) < 2.2 * work_of_order(200)
