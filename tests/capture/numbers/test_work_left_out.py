"""`if rows.numel() == 0: continue`: a side that does nothing needs no branch, where the other side
writes nothing in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.ops import OPS
from anyshape.ops.table import Scatter

EXPERTS = 4
WEIGHTS = torch.randn(EXPERTS, 6, 6, generator=torch.Generator().manual_seed(0))


def routed(x: Tensor) -> tuple[Tensor, Tensor]:
    scores, experts = (x @ WEIGHTS[0])[:, :EXPERTS].softmax(-1).topk(2)
    return scores, experts


def skipped(x: Tensor) -> Tensor:
    scores, experts = routed(x)
    out = torch.zeros_like(x)
    for expert in range(EXPERTS):
        rows, rank = torch.where(experts == expert)
        if rows.numel() == 0:
            continue
        out.index_add_(0, rows, (x[rows] @ WEIGHTS[expert]).relu() * scores[rows, rank, None])
    return out


def done(x: Tensor) -> Tensor:
    scores, experts = routed(x)
    out = torch.zeros_like(x)
    for expert in range(EXPERTS):
        rows, rank = torch.where(experts == expert)
        if len(rows) > 0:
            out[rows] += (x[rows] @ WEIGHTS[expert]) * scores[rows, rank, None]
    return out


def counted(x: Tensor) -> tuple[Tensor, int, Tensor]:
    _, experts = routed(x)
    out, used, last = torch.ones_like(x), 0, x
    for expert in range(EXPERTS):
        rows, _ = torch.where(experts == expert)
        if rows.shape[0]:
            out.index_put_((rows,), x[rows] @ WEIGHTS[expert], accumulate=True)
            used += 1
    return out, used, last


def of_columns(x: Tensor) -> Tensor:
    out = x.clone()
    for number in range(2):
        (columns,) = torch.where(x.sum(0) > number)
        if columns.numel() != 0:
            positions = columns.expand(x.shape[0], -1)
            out.scatter_(1, positions, x[:, columns] * 2)
    return out


def added_up(x: Tensor) -> Tensor:
    """What is written is not nothing where there are no rows."""
    _, experts = routed(x)
    out = torch.zeros_like(x)
    for expert in range(EXPERTS):
        rows, _ = torch.where(experts == expert)
        if rows.numel() == 0:
            continue
        out += 1 + x[rows].sum(0)
    return out


def largest(x: Tensor) -> Tensor:
    """Of nothing there is no largest: one side is right with rows alone."""
    out = torch.zeros_like(x)
    (rows,) = torch.where(x[:, 0] > 0)
    if rows.numel() > 0:
        out[rows] += x[rows].amax(0)
    return out


def drawn(x: Tensor) -> Tensor:
    """Random numbers are drawn on one side alone."""
    out = torch.zeros_like(x)
    (rows,) = torch.where(x[:, 0] > 100)
    if rows.numel() > 0:
        out[rows] += torch.rand(3, 6).sum()
    return out + torch.rand(1)


JOINED = {skipped: 4, done: 4, counted: 4, of_columns: 2}
OTHERS = (added_up, largest, drawn)
ROWS = (9, 1, 2, 40, 0)


def agree(fast: Callable[[Tensor], Any], program: Callable[[Tensor], Any], x: Tensor) -> None:
    torch.manual_seed(0)
    expected = program(x)
    torch.manual_seed(0)
    torch.testing.assert_close(fast(x), expected)


@pytest.mark.parametrize("program", JOINED, ids=lambda p: p.__name__)
def test_there_is_one_program_for_all_calls(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program, fullgraph=True)
    for rows in ROWS:
        agree(fast, program, torch.randn(rows, 6))
    assert fast.stats().specializations == 1
    assert fast.stats().joined == JOINED[program]


@pytest.mark.parametrize("program", [*JOINED, *OTHERS], ids=lambda p: p.__name__)
def test_what_cannot_be_joined_is_right(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program)
    for rows in ROWS:
        agree(fast, program, torch.randn(rows, 6))
    assert fast.stats().internal_errors == 0


@pytest.mark.parametrize("program", JOINED, ids=lambda p: p.__name__)
def test_gradients_are_recorded_where_eager_records_some(program: Callable[[Tensor], Any]) -> None:
    fast = anyshape.compile(program)
    for rows in (9, 1, 0):
        given = torch.randn(rows, 6)
        results = []
        for function in (fast, program):
            x = given.clone().requires_grad_()
            made = function(x)
            out = made[0] if isinstance(made, tuple) else made
            slope = torch.autograd.grad(out.sum(), x) if out.requires_grad else None
            results.append((out.requires_grad, slope))
        torch.testing.assert_close(*results)


def test_no_write_is_counted_where_eager_does_none() -> None:
    def raised(x: Tensor, out: Tensor) -> Tensor:
        out.sub_(x)  # they have one shape
        (rows,) = torch.where(x[:, 0] > 0)
        if rows.numel() != 0:
            out[rows] += x[rows] * 2
        return out.sum()

    fast = anyshape.compile(raised, fullgraph=True)
    for sign in (1, -1):
        x, mine, theirs = sign * torch.ones(5, 6), torch.ones(5, 6), torch.ones(5, 6)
        torch.testing.assert_close(fast(x, mine), raised(x, theirs))
        assert (mine.tolist(), mine._version) == (theirs.tolist(), theirs._version)


def test_a_branch_inside_a_branch_on_data() -> None:
    def nested(x: Tensor, out: Tensor) -> Tensor:
        out.sub_(x)
        (rows,) = torch.where(x[:, 0] > 0)
        if x.sum() > 3:
            if rows.numel() != 0:
                out.index_add_(0, rows, x[rows] * 2)
            out.add_(1)
        return out * 2

    fast = anyshape.compile(nested)
    for value in (1.0, -1.0, 0.01):
        x, mine, theirs = torch.full((5, 6), value), torch.ones(5, 6), torch.ones(5, 6)
        torch.testing.assert_close(fast(x, mine), nested(x, theirs))
        assert (mine.tolist(), mine._version) == (theirs.tolist(), theirs._version)


NOWHERE = torch.zeros(0, dtype=torch.int64)
WRITES: Mapping[str, Callable[[Tensor], object]] = {
    "index_add_": lambda x: x.index_add_(0, NOWHERE, torch.ones(0, 3), alpha=2),
    "index_put_": lambda x: x.index_put_((NOWHERE, torch.tensor([1])), torch.tensor(7.0)),
    "scatter_": lambda x: x.scatter_(0, NOWHERE.view(0, 1), torch.ones(4, 3), reduce="multiply"),
    "scatter_reduce_": lambda x: x.scatter_reduce_(
        0, NOWHERE.view(0, 1), torch.ones(4, 3), "amax", include_self=False
    ),
}


def names_positions(name: str) -> bool:
    pure = OPS.get(OPS[name].functional or "")
    if pure is None or pure.data_indices is None or not OPS[name].mutates:
        return False
    return isinstance(pure.lower, Scatter) or pure.scatters


def test_every_row_that_names_indices_leaves_alone_what_is_named_nowhere() -> None:
    assert set(WRITES) == set(filter(names_positions, OPS))
    for write in WRITES.values():
        x = torch.arange(12.0).view(4, 3)
        write(x)
        assert x.tolist() == torch.arange(12.0).view(4, 3).tolist()
