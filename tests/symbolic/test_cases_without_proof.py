"""Questions of several cases that have no proof: what that takes is counted."""

from __future__ import annotations

from anyshape.symbolic import Facts, Space, all_of, ceildiv, ge, minimum


def test_cases_that_no_search_refutes_are_seen_in_one() -> None:
    """How many windows of a pyramid's levels: each distinction of cases took a search, 4,957 steps
    in all, and one finds that there is no proof."""
    space = Space()
    facts = Facts(space)
    s, i = ([space.fresh("s") for _ in range(count)] for count in (6, 2))
    facts.assume(all_of(*(ge(size, 1) for size in (*s, *i))))
    a, b = ceildiv(i[0], 32) * ceildiv(i[1], 32), ceildiv(i[0], 64)
    cells = a * s[0] * s[1] + a * s[2] * s[3] + b * s[4] * s[5]
    quarters = [(s[n] * s[n + 1]) // 4 for n in (0, 2, 4)]
    chosen = 3 * a * (quarters[0] + quarters[1]) + 120 * a + 3 * b * quarters[2] + 60 * b
    for question in (ge(cells, chosen), ge(chosen, cells)):
        assert facts.known(question) is None
    for number in range(4):
        facts.assume(ge(s[number], number + 2))
    before = space.work.steps
    few = 30 * minimum(a, 10) + 15 * minimum(b, 10)
    assert facts.known(ge(few, chosen // cells)) is None
    assert 1000 < space.work.steps - before < 4000
