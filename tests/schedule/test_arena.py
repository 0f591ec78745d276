"""Buffers that live at one time never share a byte, whatever the sizes turn out to be."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given as draw
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.ir.buffers import Buffer
from anyshape.ir.byte_ranges import ByteRange, Sizes
from anyshape.ir.dtypes import uint8
from anyshape.ir.slots import ALIGNMENT, ranges_in
from anyshape.schedule.arena import Arena, Life, plan_arena, size_bytes
from anyshape.schedule.arena_occupancy import Occupancy, numbers
from anyshape.symbolic import Dim, Facts, Space, eq, evaluate, ge, le, ne

# A size is a * n + b * n * m + c bytes.
SIZES = st.tuples(st.integers(0, 24), st.integers(0, 2), st.integers(0, 200))
LIVES = st.lists(st.tuples(SIZES, st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=24)
VALUES = ((0, 0), (1, 1), (2, 3), (7, 5), (64, 1), (1, 300), (1000, 17))


def planned(lives, donors, becomes):
    """The arena, its buffers and lives by name, and the symbols."""
    space = Space()
    n, m = space.fresh("n"), space.fresh("m")
    facts = Facts(space)
    facts.assume(ge(n, 0))
    facts.assume(ge(m, 0))
    buffers, named = {}, {}
    for number, ((a, b, c), start, length) in enumerate(lives):
        shape = (a * n + b * n * m + c,)
        name = f"b{number}"
        buffers[name] = Buffer(name, uint8, "cpu", shape, (1,), "temp")
        born = -1 if number < donors else start
        named[name] = Life(name, born, None, start + length)
    names = list(named)
    groups = ([named[x] for x in names[donors:]], [named[x] for x in names[:donors]])
    return (
        plan_arena(*groups, buffers, facts, becomes),
        buffers,
        named,
        (n.symbol, m.symbol),
    )


def laid_out(arena: Arena, buffers, values) -> dict[str, tuple[object, int, int]]:
    """In which memory each buffer lies, from which byte to which."""

    def size(dim: Dim) -> int:
        return dim if isinstance(dim, int) else evaluate(dim, values)

    begins = [0]
    for room in (slot.sizes for slot in arena.slots):
        begins.append(begins[-1] + max(map(size, room)))
    found: dict[str, tuple[object, int, int]] = {}
    for name, (number, offset) in arena.inner.items():
        begin = begins[number] + size(offset)
        end = begin + size(buffers[name].shape[0])
        assert begin % ALIGNMENT == 0 and end <= begins[number + 1]
        found[name] = ("arena", begin, end)
    for name, donor in arena.lent.items():
        room = size(buffers[name].shape[0])
        assert room <= size(buffers[donor].shape[0])
        found[name] = (donor, 0, room)
        found[donor] = (donor, 0, size(buffers[donor].shape[0]))
    return found


def check(arena: Arena, buffers, lives, symbols, becomes) -> None:
    for values in VALUES:
        where = laid_out(arena, buffers, dict(zip(symbols, values, strict=True)))
        for a, b in combinations(where, 2):
            first, then = sorted((lives[a], lives[b]), key=lambda life: life.start)
            handed_on = first.start < then.start == first.end and becomes(first, then)
            if first.end >= then.start and not handed_on:
                (memory, begin, end), (other, start, stop) = where[a], where[b]
                disjoint = memory != other or end <= start or stop <= begin
                assert disjoint or begin == end or start == stop, (a, b, values)


def prove(arena: Arena, buffers, facts: Facts) -> dict[str, ByteRange]:
    """Where the verifier knows each buffer to lie."""
    sizes, found = Sizes(facts), {}
    for number, slot in enumerate(arena.slots):
        starts = {
            name: (start, size_bytes(buffers[name]))
            for name, (other, start) in arena.inner.items()
            if other == number
        }
        found |= dict(ranges_in(slot, f"slot {number}", starts, sizes))
    assert found.keys() == arena.inner.keys() and None not in found.values()
    for name, donor in arena.lent.items():
        assert sizes.at_most(size_bytes(buffers[name]), size_bytes(buffers[donor]))
    return found


def sometimes(a: Life, b: Life) -> bool:
    """An elementwise result may take its operand's memory; here every third may."""
    return (a.start + b.end) % 3 == 0


@settings(max_examples=150, deadline=None)
@draw(LIVES, st.integers(0, 3))
def test_buffers_alive_together_lie_apart(lives, donors) -> None:
    donors = min(donors, len(lives) - 1)
    arena, buffers, named, symbols = planned(lives, donors, sometimes)
    assert {*arena.inner, *arena.lent} == {*list(named)[donors:]}
    check(arena, buffers, named, symbols, sometimes)
    facts = Facts(symbols[0].space)
    facts.assume_all((ge(symbol.expr, 0), None) for symbol in symbols)
    where = prove(arena, buffers, facts)
    for a, b in combinations(where, 2):  # which the verifier knows, too
        first, then = sorted((named[a], named[b]), key=lambda life: life.start)
        if first.end > then.start:
            assert not Sizes(facts).meet(where[a], where[b]), (a, b)


def test_small_buffers_lie_side_by_side_where_a_large_one_does_at_another_time() -> None:
    wide, narrow = (100, 0, 0), (30, 0, 0)
    lives = [(narrow, 0, 3), (narrow, 1, 3), (narrow, 2, 2), (wide, 5, 2), (narrow, 5, 2)]
    arena, buffers, named, symbols = planned(lives, 0, sometimes)
    assert len(arena.slots) == 2, "the large one's, and one for the small one beside it"
    assert len({arena.inner[f"b{i}"][0] for i in range(3)}) == 1
    check(arena, buffers, named, symbols, sometimes)


def test_a_slot_is_not_sized_by_what_is_tested_later() -> None:
    """n + m == 10 says that n is at most 10, once m is there."""
    square = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))

    def chain(x: Tensor) -> Tensor:
        return F.linear(torch.relu(F.linear(x, square)), square).amax(0)

    def program(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        n = first.item()
        torch._check(n > 0)
        some, ten = chain(torch.full((n, 4), 2.0)), chain(torch.arange(10.0)[:, None] + x)
        m = second.item()
        torch._check(m >= 0)
        torch._check(n + m == 10)
        return some + ten + torch.arange(m).sum()

    with torch.no_grad():
        fast = anyshape.compile(program)
        for n, m in ((3, 7), (10, 0), (100_000, 7)):
            given = torch.ones(4), torch.tensor([n]), torch.tensor([m])
            if n + m == 10:
                torch.testing.assert_close(fast(*given), program(*given))
            else:
                with pytest.raises(RuntimeError):
                    fast(*given)


@settings(max_examples=60, deadline=None)
@draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 70)), max_size=30))
def test_a_slot_is_taken_where_one_of_its_buffers_lives(lives) -> None:
    occupancy = Occupancy(30)
    for start, length, number in lives:
        occupancy.take(start, start + length, number)
    for first in range(30):
        for last in range(first, 30):
            expected = {p for s, length, p in lives if s <= last and first <= s + length}
            assert {*numbers(occupancy.taken(first, last))} == expected


def questions_asked(count: int, *, ordered: bool) -> int:
    """By an arena for buffers of that many sizes, each alive with some others, of which each is at
    most the one before if they are ``ordered``."""
    space = Space()
    facts = Facts(space)
    sizes = [space.fresh("n") for _ in range(count)]
    for before, size in pairwise(sizes) if ordered else ():
        facts.assume(le(size, before))
    asked = space.work.questions
    buffers = {
        f"b{i}": Buffer(f"b{i}", uint8, "cpu", (n,), (1,), "temp") for i, n in enumerate(sizes)
    }
    lives = [Life(name, i, None, i + 3) for i, name in enumerate(buffers)]
    plan_arena(lives, [], buffers, facts, lambda a, b: False)
    return space.work.questions - asked


def test_questions_are_linear_in_the_number_of_buffers() -> None:
    assert 0 < questions_asked(800, ordered=True) <= 2.2 * questions_asked(400, ordered=True)


def test_sizes_that_nothing_bounds_are_compared_with_no_others() -> None:
    assert questions_asked(400, ordered=False) == 0


def test_the_verifier_follows_the_planner_where_the_end_of_a_buffer_is_too_hard_to_bound() -> None:
    """Three masks of an image's patches lie side by side where its features did. That each is
    smaller is found out; that the rounded end of one is, by itself, is not."""
    space = Space()
    n, height, width = (space.fresh(name) for name in ("n", "h", "w"))
    facts = Facts(space)
    for fact in (ge(n, 1), eq(height % 4, 0), eq(width % 4, 0), ge(height, 4), ge(width, 4)):
        facts.assume(fact)
    facts.assume(ne(n * (height // 32) * (width // 32), 0))
    patches = n * (height // 32) * (width // 32)
    large = 32 * n * width * (height // 32) - 32 * width + 1024 * (width // 32)
    sizes = {"features": large} | {name: 1024 * patches for name in "abc"}
    buffers = {
        name: Buffer(name, uint8, "cpu", (size,), (1,), "temp") for name, size in sizes.items()
    }
    lives = [Life("features", 0, None, 3)]
    lives += [Life(name, 5 + number, None, 9 + number) for number, name in enumerate("abc")]
    arena = plan_arena(lives, [], buffers, facts, sometimes)
    (slot, *_) = arena.slots
    assert arena.inner["a"] == (0, 0) and slot.needed == (large,)
    assert facts.known(le(1024 * patches, slot.sizes[0])) is None, "the question is easy by now"
    assert prove(arena, buffers, facts)
