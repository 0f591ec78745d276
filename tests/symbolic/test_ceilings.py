"""A planner asks the facts only where one size has a chance to be at most another."""

from __future__ import annotations

from itertools import permutations, product
from random import Random

import pytest

from anyshape.symbolic import (
    Ceilings,
    Dim,
    Expr,
    Facts,
    Space,
    any_of,
    eq,
    le,
    minimum,
)


def picked(random: Random, sizes: list[Expr]) -> Dim:
    return sum(random.choice(sizes) * random.randint(1, 2) for _ in range(random.randint(1, 2)))


@pytest.mark.parametrize("seed", range(60))
def test_what_facts_about_sums_prove_is_not_left_out(seed: int) -> None:
    """Those that bound no size by itself, in a circle: that takes more than a look."""
    random, space = Random(seed), Space()
    sizes = [space.fresh("s") for _ in range(6)]
    facts = Facts(space)
    for _ in range(random.randint(1, 6)):
        cut = random.randint(1, 5)
        few, more = picked(random, sizes[:cut]), picked(random, sizes[cut:])
        facts.assume(le(few, more + random.randint(0, 3)))
    dims = [picked(random, sizes) for _ in range(6)] + sizes
    ceilings, proved = Ceilings(facts), 0
    for size, room in permutations(map(facts.simplify, dims), 2):
        if facts.known(le(size, room)) is True:
            assert ceilings.may_reach(size, room), (size, room)
            proved += 1
    assert proved or seed


def test_a_size_is_bounded_by_what_lies_above_it_alone() -> None:
    space = Space()
    facts = Facts(space)
    u, v, w, m, n = (space.fresh("s") for _ in range(5))
    for fact in (le(u, m), le(v, m), le(m, n)):
        facts.assume(fact)
    ceilings = Ceilings(facts)
    reached = {"um", "un", "vm", "vn", "mn"}
    for (a, size), (b, room) in product(dict(u=u, v=v, w=w, m=m, n=n).items(), repeat=2):
        assert ceilings.may_reach(size, room) == (a == b or a + b in reached), (a, b)
    assert ceilings.may_reach(u * w, m * w) and not ceilings.may_reach(u * w, m)
    assert ceilings.may_reach(u - m, 8) and not ceilings.may_reach(u - v, 8)


@pytest.mark.parametrize(
    "fact",
    [
        lambda u, v: le(u, 8),
        lambda u, v: le(u + v, 8),
        lambda u, v: any_of(le(u, v), eq(v, 0)),
        lambda u, v: le(minimum(u, 8), v),
        lambda u, v: eq(u, 2 * v),
    ],
)
def test_what_may_say_more_than_it_seems_is_asked(fact) -> None:
    space = Space()
    facts = Facts(space)
    u, v = space.fresh("s"), space.fresh("s")
    facts.assume(fact(u, v))
    assert Ceilings(facts).may_reach(u, v)
