"""A generator that the program drops is closed at once, as CPython does it: so is what it delegates
to (which is asked for `close`), and what it alone holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.dispatch import Compiled
from anyshape.options import Options
from tests.capture.by_reference import ByReference
from tests.fuzz_python.oracle import WAYS

Note = Callable[[str], None]


def guarded(note: Note) -> Iterator[int]:
    try:
        yield 1
        yield 2
    finally:
        note("closed")


class Closed:
    """An iterator of the program, with a `close` of its own."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def __iter__(self) -> Closed:
        return self

    def __next__(self) -> int:
        return 3

    def close(self) -> None:
        self.note("asked to close")


def delegating(note: Note) -> Iterator[int]:
    yield from guarded(note)


def delegating_twice(note: Note) -> Iterator[int]:
    yield from delegating(note)


def delegating_to_an_iterator(note: Note) -> Iterator[int]:
    yield from Closed(note)  # type: ignore[misc]


def going_over_one(note: Note) -> Iterator[int]:
    yield from [0]
    for value in guarded(note):
        yield value


def holding_one(note: Note) -> Iterator[int]:
    held = guarded(note)
    yield next(held)
    yield next(held)


def holding_one_in_a_list(note: Note) -> Iterator[int]:
    held = [guarded(note)]
    yield next(held[0])
    yield 0


def of_a_call(x: Tensor, made: Callable[[Note], Iterator[int]], note: Note) -> Tensor:
    y = x + next(made(note))
    note("after")
    return y


def deleted(x: Tensor, made: Callable[[Note], Iterator[int]], note: Note) -> Tensor:
    generator = made(note)
    y = x + next(generator) + next(generator)
    note("before")
    del generator
    note("after")
    return y


def closed(x: Tensor, made: Callable[[Note], Iterator[int]], note: Note) -> Tensor:
    generator = made(note)
    y = x + next(generator) + next(generator)
    generator.close()  # type: ignore[attr-defined]
    note("after")
    return y


def left(x: Tensor, made: Callable[[Note], Iterator[int]], note: Note) -> Tensor:
    def inner() -> int:
        generator = made(note)
        value = next(generator) + next(generator)
        note("before")
        return value

    y = x + inner()
    note("after")
    return y


def broken_off(x: Tensor, made: Callable[[Note], Iterator[int]], note: Note) -> Tensor:
    for value in made(note):
        x = x + value
        if value:
            break
    note("after")
    return x


def left_by_an_error(x: Tensor, made: Callable[[Note], Iterator[int]], note: Note) -> Tensor:
    try:
        for outer in made(note):
            for inner in made(lambda text: note(f"inner {text}")):
                x = x + outer + inner
                raise KeyError
    except KeyError:
        note("caught")
    return x


MAKERS = [
    guarded, delegating, delegating_twice, delegating_to_an_iterator, going_over_one, holding_one,
    holding_one_in_a_list,
]  # fmt: skip
PROGRAMS = [of_a_call, deleted, closed, left, broken_off, left_by_an_error]


@pytest.mark.parametrize("way", ["whole", "every"])
@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_closed_when_it_is_dropped(program: Any, made: Any, way: str) -> None:
    fast = Compiled(program, Options(**WAYS[way]), ByReference)
    for _ in range(2):
        wanted: list[str] = []
        found: list[str] = []
        x = torch.arange(3.0)
        assert torch.equal(fast(x, made, found.append), program(x, made, wanted.append))
        assert found == wanted
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("made", [m for m in MAKERS if m is not holding_one_in_a_list])
@pytest.mark.parametrize("program", PROGRAMS)
def test_that_is_no_break(program: Any, made: Any) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    found: list[str] = []
    wanted: list[str] = []
    fast(torch.arange(3.0), made, found.append)
    program(torch.arange(3.0), made, wanted.append)
    assert found == wanted
