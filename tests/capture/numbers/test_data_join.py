"""Branches that data decides, whose sides write: one segment, and eager's results whichever side is
taken. Where a side does more than write, the segment ends there, as before."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

Program = Callable[["State", Tensor], Any]
FACTORS = (1.0, -1.0, -2.0, 3.0, -0.5, 2.0)


class State:
    """What a program writes from call to call."""

    def __init__(self) -> None:
        self.total = torch.zeros(4)
        self.most = torch.zeros(())
        self.count, self.best, self.grows = 0, math.inf, False
        self.options = {"rate": 0.5}

    def seen(self) -> Any:
        numbers = (self.count, self.best, self.grows, self.options["rate"])
        versions = self.total._version, self.most._version
        return [self.total.clone(), self.most.clone()], numbers, versions


def one_side(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        state.total.add_(x.sum())
        state.total.mul_(2)
    return state.total * 2


def both_sides(state: State, x: Tensor) -> Any:
    if x.mean() > 0:
        state.total.add_(x.sum())
    else:
        state.total.sub_(1).mul_(0.5)
        state.most.copy_(x.max())
    return state.total.sum()


def through_a_view(state: State, x: Tensor) -> Any:
    part = state.total[1:3]
    if x.sum() > 0:
        part.add_(1)
        state.total[0] = 7
    return part.clone()


def nested(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        state.total.add_(1)
        if x.sum() > 2:
            state.total.mul_(3)
            state.count += 1
    else:
        if x.min() < -3:
            state.most.fill_(5)
        state.count -= 1
    return state.count


def of_numbers(state: State, x: Tensor) -> Any:
    loss = float(x.sum())
    if loss < state.best:
        state.best = loss
        state.count = 0
    else:
        state.count += 1
    if state.count > 1:
        state.options["rate"] *= 0.5
        state.count = 0
    return state.best


def of_bools(state: State, x: Tensor) -> Any:
    grows = state.grows
    if x.sum() > 0:
        state.grows = True
        grows = False
    return grows


def functions_that_raise(state: State, x: Tensor) -> Any:
    value = x.sum().item()
    if value > 0:
        state.total.add_(math.log(value) + 1 / value + value**0.5)
    else:
        state.total.add_(math.exp(value))
    return value


def after_the_branch(state: State, x: Tensor) -> Any:
    if state.most == 0:
        state.most.add_(1)
    state.most += x.sum().abs()
    if state.most > 0:
        state.total.lerp_(torch.ones(4), 1 / (state.most + 1))
    return state.most.clone()


def returned(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        state.total.add_(1)
        return 3
    return 4


def a_loop(state: State, x: Tensor) -> Any:
    for i in range(3):
        if x.sum() > i:
            state.total.add_(i)
    return state.total.clone()


def called(state: State, x: Tensor) -> Any:
    def step(scale: float) -> float | None:
        values = [scale, 2.0]
        state.total.add_(values[0])
        return None

    made = None
    if not sum(v.item() for v in [(x < 0).any().float()]):
        made = step(0.5)
    return made


def of_half_precision(state: State, x: Tensor) -> Any:
    low = state.total.to(torch.bfloat16)
    if x.sum() > 0:
        low.mul_(1.1)
    return low


JOINED = (
    *(one_side, both_sides, through_a_view, nested, of_numbers, of_bools, functions_that_raise),
    *(after_the_branch, returned, a_loop, called, of_half_precision),
)


def a_product(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        state.total.copy_(torch.ones(4, 4) @ state.total + 1)
    return state.total.clone()


def an_index(state: State, x: Tensor) -> Any:
    """What may raise is done where it is taken, alone."""
    if x.sum() > 0:
        state.total.add_(x[x.shape[0] - 1 + (x < 0).all().long()])
    return state.total.clone()


def a_row_of_a_table(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        position = (x.sum() * 100).long() % 4 + 9 * (x < 0).all().long()
        state.most.copy_(torch.nn.functional.embedding(position, torch.eye(4)).sum())
    return state.most.clone()


def a_quotient(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        state.most.copy_(torch.tensor(3) // (x > 0).sum())
    return state.most.clone()


def a_draw(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        state.total.uniform_()
    return state.total.clone()


def other_tensors(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        x = x * 2
    return x


def an_exception(state: State, x: Tensor) -> Any:
    if x.sum() > 2:
        state.total.add_(1)
        raise ValueError("too much")
    return state.total.clone()


def of_other_kinds(state: State, x: Tensor) -> Any:
    return max(0, x.sum().item())


def a_new_attribute(state: State, x: Tensor) -> Any:
    if x.sum() > 0:
        state.found = 1
    return getattr(state, "found", 0)


def a_while(state: State, x: Tensor) -> Any:
    while state.most < x.sum().abs():
        state.most += 1
    return state.most.clone()


CHECKED = (an_exception,)
"""What can only raise is a check, as before."""
BROKEN = (
    *(a_product, an_index, a_row_of_a_table, a_quotient, a_draw),
    *(of_other_kinds, a_new_attribute, a_while),
)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert type(found) is type(expected) and found == pytest.approx(expected)


def outcome(program: Program, state: State, x: Tensor) -> Any:
    try:
        return program(state, x), state.seen()
    except ValueError as error:
        return len(str(error)), state.seen()


@pytest.mark.parametrize("program", [*JOINED, *CHECKED, *BROKEN], ids=lambda p: p.__name__)
def test_what_a_side_writes_is_written_where_it_is_taken(program: Program) -> None:
    ours, theirs = State(), State()
    fast = anyshape.compile(program)
    for call, factor in enumerate(FACTORS):
        x = torch.linspace(-1, 2, call + 2) * factor
        torch.manual_seed(call)
        found = outcome(fast, ours, x)
        torch.manual_seed(call)
        expected = outcome(program, theirs, x)
        assert_same(found[0], expected[0])
        torch.testing.assert_close(found[1][0], expected[1][0])
        assert found[1][1] == pytest.approx(expected[1][1]), factor
        assert [*map(type, found[1][1])] == [*map(type, expected[1][1])]
        assert found[1][2] == expected[1][2], factor
    stats = fast.stats()
    assert stats.internal_errors == 0
    assert (stats.graph_breaks == 0) is (program not in BROKEN)


def test_gradients_are_not_recorded_on_both_sides() -> None:
    """The side that is not taken could make NaN of them."""
    weight = torch.ones(3, requires_grad=True)

    def program(x: Tensor) -> Tensor:
        made = torch.zeros(3)
        if x.sum() > 0:
            made.add_(weight.sqrt())
        return made

    fast = anyshape.compile(program)
    for factor in (1.0, -1.0):
        x = torch.ones(3) * factor
        assert fast(x).requires_grad is program(x).requires_grad


def test_a_branch_is_one_specialization_for_all_shapes() -> None:
    state = State()
    fast = anyshape.compile(one_side, fullgraph=True)
    for size, factor in ((3, 1.0), (5, -1.0), (1, 1.0), (0, 1.0)):
        fast(state, torch.ones(size) * factor)
    assert fast.stats().specializations == 1


def doubled_if_positive(x, pair):
    y = x + 0
    if x.sum() > 0:
        y = x * 2
    return y, pair, [pair], {"a": pair}


def kept_if_positive(x, pair):
    pair_of_pairs = (pair, [pair[0]])
    y = x * 2 if x.sum() > 0 else x
    return y, pair_of_pairs, pair


def by_count(x, pair):
    y = x + 0
    for k in x.tolist():
        if k > 0:
            y = y * 2 - k
    return y, pair


@pytest.mark.parametrize("program", (doubled_if_positive, kept_if_positive, by_count))
def test_tuples_from_outside_are_those_of_each_call_behind_a_branch(program):
    """The sides are compared by copies of what a frame holds: no copy is handed out."""
    fast = anyshape.compile(program)
    for n in (2, 3, 4):
        x, pair = torch.ones(3), (torch.ones(n), torch.zeros(n))
        expected, found = program(x, pair), fast(x, pair)
        assert torch.equal(found[0], expected[0])
        leaves = torch.utils._pytree.tree_leaves
        mine = [t for t in leaves(found[1:]) if isinstance(t, torch.Tensor)]
        assert all(a is b for a, b in zip(mine, leaves(expected[1:]), strict=True))
        assert found[-1] is pair or program is doubled_if_positive


def test_an_operator_without_a_row_gives_the_sizes_of_what_one_truth_selects():
    def program(x, y):
        picked = x[y.sum() > 0]
        return torch.complex(picked, picked).shape[0]

    fast = anyshape.compile(program)
    for sign in (-1, 1, -1):
        given = torch.randn(4, 4, 2), torch.full((4,), float(sign))
        assert fast(*given) == program(*given)
