"""What kernels compute for arguments they write there, last of all; results are eager's whatever else
reads the arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape import driver
from anyshape.ir.program import Assign, Step

Program = Callable[[Tensor, Tensor, Tensor], object]


def decayed(p: Tensor, q: Tensor, g: Tensor) -> object:
    p.mul_(0.9).add_(g, alpha=-0.1)


def moments(p: Tensor, q: Tensor, g: Tensor) -> object:
    q.lerp_(g, 0.1)
    p.addcdiv_(q, g.square().sqrt() + 1.0, value=-0.5)


def averaged(p: Tensor, q: Tensor, g: Tensor) -> object:
    p.sub_(g)
    q.lerp_(p, 0.5)


def overwritten(p: Tensor, q: Tensor, g: Tensor) -> object:
    p.copy_(g * 2)


def exchanged(p: Tensor, q: Tensor, g: Tensor) -> object:
    before = p * 1
    p.copy_(q * 2)
    q.copy_(before * 3)


def by_its_sum(p: Tensor, q: Tensor, g: Tensor) -> object:
    p.div_(p.sum())


def returned_too(p: Tensor, q: Tensor, g: Tensor) -> object:
    made = p + g
    p.copy_(made)
    return made, p * 2


def read_before(p: Tensor, q: Tensor, g: Tensor) -> object:
    old = p @ g
    p.add_(g)
    return old, p.mT @ g


def turned(p: Tensor, q: Tensor, g: Tensor) -> object:
    p.add_(p.mT.contiguous())


def a_view(p: Tensor, q: Tensor, g: Tensor) -> object:
    p[1:].mul_(2.0)
    return p.view(-1)


def of_another(p: Tensor, q: Tensor, g: Tensor) -> object:
    p.add_(q.mT)
    q.add_(1.0)


def by_the_new_one(p: Tensor, q: Tensor, g: Tensor) -> object:
    q.copy_(g.cumsum(0))
    p.copy_(q.cumsum(1))


def by_the_old_one(p: Tensor, q: Tensor, g: Tensor) -> object:
    old = q.mT * 1
    q.copy_(g.cumsum(0))
    p.copy_(q.cumsum(1) + old)


def moved_then_set(p: Tensor, q: Tensor, g: Tensor) -> object:
    p.copy_(p - p.diagonal())  # reads in each row what another one writes
    p.index_fill_(0, torch.arange(p.shape[0])[:1], 2.0)


COPIES: dict[Program, int] = {
    by_the_new_one: 0,
    decayed: 0,
    moments: 0,
    averaged: 0,
    overwritten: 0,
    by_its_sum: 1,  # each cell reads other elements, too
}
"""How many assignments are left."""
PROGRAMS = (
    *COPIES,
    exchanged,
    returned_too,
    read_before,
    turned,
    a_view,
    of_another,
    by_the_old_one,
    moved_then_set,
)


@pytest.fixture
def assignments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Step]]:
    """The assignments of what is scheduled."""
    found: list[Step] = []
    scheduled = driver.schedule

    @functools.wraps(scheduled)
    def watched(*args: object, **kwargs: object) -> object:
        program = scheduled(*args, **kwargs)
        found.extend(step for step in program.steps if isinstance(step, Assign))
        return program

    monkeypatch.setattr(driver, "schedule", watched)
    yield found


@torch.no_grad()
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_an_update_is_eagers(program: Program, assignments: list[Step]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for seed, size in enumerate((4, 1, 0, 7, 33)):
        torch.manual_seed(seed)
        ours = [torch.rand(size, size) + 0.5 for _ in range(3)]
        theirs = [tensor.clone() for tensor in ours]
        found, expected = fast(*ours), program(*theirs)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(ours, theirs)
        assert [t._version for t in ours] == [t._version for t in theirs]
    if program in COPIES:
        assert len(assignments) == COPIES[program]


@torch.no_grad()
def test_nothing_is_written_where_the_segment_fails() -> None:
    def step(p: Tensor, at: Tensor) -> Tensor:
        p.mul_(2.0)
        return p[at]

    fast = anyshape.compile(step)
    p = torch.ones(3)
    torch.testing.assert_close(fast(p, torch.tensor(1)), torch.tensor(2.0))
    with pytest.raises(IndexError):
        fast(p, torch.tensor(5))
    torch.testing.assert_close(p, torch.full((3,), 4.0))


@torch.no_grad()
def test_arguments_that_overlap_are_written_as_eager_does() -> None:
    def separate(p: Tensor, q: Tensor, g: Tensor) -> None:
        p.sub_(g)
        q.mul_(2.0)

    fast = anyshape.compile(separate)
    for start in (4, 3, 1, 0):
        both = [torch.arange(8.0).clone() for _ in range(2)]
        for memory, run in zip(both, (fast, separate)):
            run(memory[:4], memory[start : start + 4], torch.ones(4))
        torch.testing.assert_close(*both)
