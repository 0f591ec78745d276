"""Every form of indexing does what eager does: values, strides, what is raised, who shares memory,
what becomes of the argument. The forms are those of ``indexing_forms.py``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

import anyshape
from tests.fuzz.oracle import call, differences
from tests.fuzz.programs import function_of
from tests.indexing_forms import ALL_ACTIONS, DTYPES, SIZES, Program, Statement, statements

CHUNK = 24
"""Statements of one test."""


def raising(statement: Statement) -> frozenset[int]:
    """The sizes at which eager refuses."""
    program = Program((statement,))
    function = function_of(program.source)
    sizes = range(len(SIZES[statement.rank]))
    return frozenset(n for n in sizes if call(function, program.arguments(n)).error)


def programs(chunk: Sequence[Statement]) -> Iterator[Program]:
    """One program of those that eager refuses at the same sizes: it stops at the first."""
    groups: defaultdict[frozenset[int], list[Statement]] = defaultdict(list)
    for statement in chunk:
        groups[raising(statement)].append(statement)
    for found in groups.values():
        yield Program(tuple(found))


def wrong(program: Program) -> Iterator[str]:
    """How the compiled program differs from eager, each size after the other."""
    function = function_of(program.source)
    fast = anyshape.compile(function)
    for n, shape in enumerate(SIZES[program.rank]):
        eager = call(function, program.arguments(n))
        ours = call(fast, program.arguments(n))
        for problem in differences(ours, eager, exact=True):
            yield f"{shape}: {problem}"
        if eager.error:
            for a, b in zip(ours.arguments, eager.arguments, strict=True):
                if not a.equal(b):
                    yield f"{shape}: an argument is {a.tolist()} after {eager.error}, not {b}"


def shrunk(program: Program) -> str:
    """What is wrong with each statement alone, or else with all together."""
    alone = [Program((statement,)) for statement in program.statements]
    found = [(p, problems) for p in (*alone, program) if (problems := list(wrong(p)))]
    return "\n".join(f"{p.source}{problems[0]}" for p, problems in found[:3])


def chunks(rank: int, parts: int, first: int, count: int) -> list[tuple[Statement, ...]]:
    """So many chunks of statements, mixed, from chunk ``first`` on."""
    found = list(statements(rank, parts))
    random.Random(rank).shuffle(found)
    return [
        tuple(found[n : n + CHUNK]) for n in range(first * CHUNK, (first + count) * CHUNK, CHUNK)
    ]


def cases(first: int, *counts: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    return [(rank, parts, first + n) for rank, parts, count in counts for n in range(count)]


def check(rank: int, parts: int, number: int) -> None:
    for chunk in chunks(rank, parts, number, 1):
        for program in programs(chunk):
            assert not list(wrong(program)), shrunk(program)


@pytest.mark.parametrize(
    ("rank", "parts", "number"),
    cases(0, (1, 1, 2), (2, 1, 2), (3, 1, 2), (1, 2, 1), (2, 2, 2), (3, 2, 2)),
)
def test_every_form_of_indexing_does_what_eager_does(rank: int, parts: int, number: int) -> None:
    check(rank, parts, number)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("rank", "parts", "number"), cases(2, (1, 2, 9), (2, 2, 27), (3, 2, 36), (2, 3, 20), (3, 3, 40))
)
def test_more_forms_of_indexing_do_what_eager_does(rank: int, parts: int, number: int) -> None:
    check(rank, parts, number)


def test_the_forms_cover_every_part_and_every_action() -> None:
    found = [s for rank in SIZES for s in statements(rank, 2)]
    assert {s.action for s in found} == set(ALL_ACTIONS)
    assert {s.dtype for s in found} == set(DTYPES)
    assert len({(s.rank, s.key) for s in found}) == len(found)
