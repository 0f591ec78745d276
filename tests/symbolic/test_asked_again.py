"""Questions without an answer are asked again as facts grow: what that takes is counted."""

from __future__ import annotations

import math

from anyshape.symbolic import Expr, Facts, Space, all_of, ceildiv, eq, ge, minimum, ne
from anyshape.symbolic.facts import STEPS
from anyshape.symbolic.linear import PATIENCE


def hidden() -> tuple[Facts, tuple[Expr, Expr], Expr]:
    """Facts about a product of seven sizes, of which no search says what the last one is."""
    space = Space()
    facts = Facts(space)
    sizes = [space.fresh("s") for _ in range(6)]
    rows, last = space.fresh("s"), space.fresh("s")
    facts.assume(all_of(*(eq(size, 1) for size in sizes[:2])))
    for size in sizes[2:]:
        facts.assume(eq(size, space.fresh("s")))
    facts.assume(ge(sizes[-1], 1))
    facts.assume(eq(math.prod(sizes[2:], start=rows * last), 768))
    facts.assume(ne(2 * sizes[-1] * last, sizes[-1] + last))
    facts.assume(ne(2 * sizes[-1] * last, last + 1))
    return facts, (sizes[-1], rows), last


def test_a_question_without_an_answer_takes_one_search_when_it_is_asked_again() -> None:
    """With each fact about its symbols it was worked out anew in all its steps: 119,515."""
    facts, (size, rows), last = hidden()
    work, question = facts.space.work, eq(last, 4)
    taken = []
    for turn in range(8):
        before = work.steps
        assert facts.known(question) is None
        taken.append(work.steps - before)
        facts.assume(ne(size * last + rows, 3000 + turn))
    assert taken[0] > PATIENCE, "it is no hard question"
    assert all(steps < PATIENCE + 64 for steps in taken[2:]) and sum(taken) < 2 * STEPS


def test_it_is_answered_when_facts_decide_it_and_says_why() -> None:
    facts, (size, rows), last = hidden()
    question = ge(last * size, 5)
    for turn in range(4):
        facts.known(question)
        facts.known(eq(last, 4))
        facts.assume(ne(size * last + rows, 3000 + turn))
    facts.assume(ge(last, 4), "wide")
    facts.assume(ge(size, 2), "deep")
    assert facts.known(question) is True and facts.known(eq(last, 3)) is False
    assert {"wide", "deep"} <= {*facts.why(question)} and facts.why(eq(last, 3)) == ["wide"]


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
