"""Graphs with loops and branches, built by hand, each beside the same on eager tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from anyshape.ir.dtypes import float32, int64
from anyshape.ir.graph import Graph, TensorType, row_major
from anyshape.ir.scalars import Scalar
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.regions import branch, loop
from anyshape.options import Options
from anyshape.symbolic import Facts, Space, maximum

OPTIONS = Options(cache=False, verify_programs=True)


class Making:
    """A graph over tensors ``x`` of (s0, s1) and ``w`` of (s1, s1), and a number ``n`` in data."""

    def __init__(self) -> None:
        self.space = Space()
        self.b = Builder(TypeContext(self.space, Facts(self.space)))
        self.rows, self.columns = self.space.fresh("s"), self.space.fresh("s")
        self.x = self.input("x", (self.rows, self.columns))
        self.w = self.input("w", (self.columns, self.columns))
        self.n = self.input("n", (), int64)

    def input(self, name: str, shape: Any, dtype: Any = float32) -> Any:
        kind = TensorType(dtype, "cpu", tuple(shape), row_major(shape))
        return self.b.input(kind, "argument", name)


@dataclass(frozen=True)
class Case:
    build: Callable[[Making], tuple[Any, ...]]
    eager: Callable[..., tuple[Any, ...]]


def powers(m: Making) -> tuple[Any, ...]:
    """As many turns as data says, of a matrix product and a softmax."""
    turns = m.b.item(m.n).type.expr
    body = lambda b, turn, x, w: (b.softmax(b.mm(x, w), -1),)
    return loop(m.b, turns, (m.x,), (m.w,), body)


def eager_powers(x, w, n):
    for _ in range(int(n)):
        x = torch.softmax(x @ w, -1)
    return (x,)


def growing(m: Making) -> tuple[Any, ...]:
    """What is carried has more rows after each turn."""
    body = lambda b, turn, x, y: (b.cat((x, b.mul(y, turn)), 0),)
    return loop(m.b, m.n, (m.x,), (m.x,), body)


def eager_growing(x, w, n):
    made = x
    for turn in range(int(n)):
        made = torch.cat([made, x * turn])
    return (made,)


def swapped(m: Making) -> tuple[Any, ...]:
    """Two carried values change places."""
    body = lambda b, turn, x, y: (y, b.add(x, y))
    return loop(m.b, m.n, (m.x, b_neg(m)), (), body)


def b_neg(m: Making) -> Any:
    return m.b.neg(m.x)


def eager_swapped(x, w, n):
    y = -x
    for _ in range(int(n)):
        x, y = y, x + y
    return x, y


def chosen(m: Making) -> tuple[Any, ...]:
    """A branch on a tensor's value whose sides return tensors of different sizes."""
    positive = m.b.gt(m.b.sum(m.x, (0, 1), False), 0.0)
    then = lambda b, x: (b.relu(x), b.sum(x, (0,), False))
    otherwise = lambda b, x: (b.cat((x, x), 0), b.sum(b.neg(x), (0,), False))
    return branch(m.b, positive, (m.x,), then, otherwise)


def eager_chosen(x, w, n):
    if x.sum() > 0:
        return torch.relu(x), x.sum(0)
    return torch.cat([x, x]), (-x).sum(0)


def nested(m: Making) -> tuple[Any, ...]:
    """A loop in a branch in a loop; the inner one turns as often as the outer one has turned."""

    def outer(b: Builder, turn: Any, x: Any, w: Any) -> tuple[Any, ...]:
        def deep(b: Builder, x: Any, w: Any) -> tuple[Any, ...]:
            return loop(b, turn, (x,), (w,), lambda b, t, x, w: (b.tanh(b.mm(x, w)),))

        small = b.lt(b.sum(x, (0, 1), False), 1.0)
        return branch(b, small, (x, w), deep, lambda b, x, w: (b.mul(x, 0.5),))

    return loop(m.b, m.n, (m.x,), (m.w,), outer)


def eager_nested(x, w, n):
    for turn in range(int(n)):
        if x.sum() < 1.0:
            for _ in range(turn):
                x = torch.tanh(x @ w)
        else:
            x = x * 0.5
    return (x,)


def sized(m: Making) -> tuple[Any, ...]:
    """Sizes of the graph around are known in a region; sizes made in it stay there."""

    def body(b: Builder, turn: Any, x: Any) -> tuple[Any, ...]:
        where = b.nonzero(b.gt(x, 0.0))
        count = b.full((m.rows,), where.shape[0], float32, "cpu")
        return (b.add(x, b.unsqueeze(count, 1)),)

    return loop(m.b, 2, (m.x,), (), body)


def eager_sized(x, w, n):
    for _ in range(2):
        x = x + torch.full((x.shape[0],), float(len((x > 0).nonzero())))[:, None]
    return (x,)


def drawn(m: Making) -> tuple[Any, ...]:
    """Random numbers are drawn in each turn, in order."""
    body = lambda b, turn, x: (b.add(x, b.rand_like(x)),)
    return loop(m.b, m.n, (m.x,), (), body)


def eager_drawn(x, w, n):
    for _ in range(int(n)):
        x = x + torch.rand_like(x)
    return (x,)


def both_changed(m: Making) -> tuple[Any, ...]:
    """Two carried values, both made anew; the trip count is a size, and the turn is an operand."""
    body = lambda b, turn, x, y: (b.add(b.mul(x, 0.5), y), b.sub(b.mul(y, turn), x))
    return loop(m.b, m.rows, (m.x, b_neg(m)), (), body)


def eager_both_changed(x, w, n):
    y = -x
    for turn in range(len(x)):
        x, y = x * 0.5 + y, y * turn - x
    return x, y


def over_rows(m: Making) -> tuple[Any, ...]:
    """A turn for each element of a list that data makes: its numbers, not those of the turns."""
    rows = m.b.select(m.b.nonzero(m.b.ge(m.b.sum(m.x, (1,), False), 0.0)), 1, 0)

    def body(b: Builder, row: Any, x: Any, w: Any) -> tuple[Any, ...]:
        return (b.add(b.tanh(b.mm(x, w)), row),)

    return loop(m.b, rows, (m.x,), (m.w,), body)


def eager_over_rows(x, w, n):
    for row in (x.sum(1) >= 0).nonzero()[:, 0].tolist():
        x = torch.tanh(x @ w) + row
    return (x,)


def same_sizes(m: Making) -> tuple[Any, ...]:
    """A branch whose sides return tensors of one size, between kernels."""
    large = m.b.gt(m.n, 1)
    then = lambda b, x, w: (b.softmax(b.mm(x, w), -1),)
    (made,) = branch(m.b, large, (b_neg(m), m.w), then, lambda b, x, w: (b.relu(x),))
    return (m.b.mul(made, 2.0),)


def eager_same_sizes(x, w, n):
    made = torch.softmax(-x @ w, -1) if n > 1 else torch.relu(-x)
    return (made * 2.0,)


def counted(m: Making) -> tuple[Any, ...]:
    """Numbers are carried beside a tensor, and computed with."""

    def body(b: Builder, turn: Any, number: Any, x: Any, scale: Any) -> tuple[Any, ...]:
        half = Scalar("float", "mul", (scale, 0.5))
        return number * 2 + turn, b.mul(b.add(x, number), scale), half

    number, x, scale = loop(m.b, m.n, (m.rows, m.x, 1.0), (), body)
    return m.b.add(m.b.mul(x, scale), number), m.b.full((m.columns,), number, int64, "cpu")


def eager_counted(x, w, n):
    number, scale = len(x), 1.0
    for turn in range(int(n)):
        number, x, scale = number * 2 + turn, (x + number) * scale, scale * 0.5
    return x * scale + number, torch.full((x.shape[1],), number)


def numbers_of_sides(m: Making) -> tuple[Any, ...]:
    """A branch gives numbers; one side gives back what it is handed."""
    then = lambda b, x: (x, m.rows, 0.5)
    otherwise = lambda b, x: (b.exp(x), m.columns + 1, 2.0)
    x, number, scale = branch(m.b, m.b.gt(m.n, 1), (m.x,), then, otherwise)
    return m.b.add(m.b.mul(x, scale), number), m.b.neg(x)


def eager_numbers_of_sides(x, w, n):
    made, number, scale = (x, len(x), 0.5) if n > 1 else (x.exp(), x.shape[1] + 1, 2.0)
    return made * scale + number, -made


def below_nothing(m: Making) -> tuple[Any, ...]:
    """The numbers of a list may be negative."""
    rows = m.b.sub(m.b.arange(m.rows, 0, 1, int64, "cpu"), 2)

    def body(b: Builder, row: Any, x: Any) -> tuple[Any, ...]:
        return (b.add(x, maximum(row, 0) * 10 + row),)

    return loop(m.b, rows, (m.x,), (), body)


def eager_below_nothing(x, w, n):
    for row in range(-2, len(x) - 2):
        x = x + (max(row, 0) * 10 + row)
    return (x,)


def written(m: Making) -> tuple[Any, ...]:
    """A body writes to rows of a buffer that it captures, and reads them in the next turn."""
    kept = m.b.mul(m.x, 1.0)

    def body(b: Builder, turn: Any, x: Any, kept: Any) -> tuple[Any, ...]:
        b.add_(kept, b.mean(x, (0,), True))
        b.mul_(b.transpose(kept, 0, 1), b.tanh(b.sum(x, (1,), False)))
        return (b.tanh(b.add(kept, turn)),)

    (made,) = loop(m.b, m.n, (m.x,), (kept,), body)
    return made, m.b.mul(kept, 2.0)


def eager_written(x, w, n):
    kept = x * 1.0
    for turn in range(int(n)):
        kept.add_(x.mean(0, True))
        kept.t().mul_(torch.tanh(x.sum(1)))
        x = torch.tanh(kept + turn)
    return x, kept * 2.0


def written_by_sides(m: Making) -> tuple[Any, ...]:
    """Only one side of a branch in a loop writes; nothing is carried."""
    kept = m.b.mul(m.x, 1.0)

    def body(b: Builder, turn: Any, kept: Any) -> tuple[Any, ...]:
        then = lambda b, kept: (b.add_(kept, 1.0),)[:0]
        branch(b, b.lt(b.sum(kept, (0, 1), False), 4.0), (kept,), then, lambda b, kept: ())
        return ()

    loop(m.b, m.n, (), (kept,), body)
    return (m.b.add(kept, m.x),)


def eager_written_by_sides(x, w, n):
    kept = x * 1.0
    for _ in range(int(n)):
        if kept.sum() < 4.0:
            kept.add_(1.0)
    return (kept + x,)


def whole_numbers(m: Making) -> tuple[Any, ...]:
    """Integers made of one another by sums and products."""

    def body(b: Builder, turn: Any, one: Any, x: Any, other: Any) -> tuple[Any, ...]:
        return other * 3 - 1, b.add(b.mul(x, 0.5), turn), one * other + m.rows

    one, x, other = loop(m.b, m.n, (m.rows, m.x, 2), (), body)
    then, otherwise = lambda b, x: (one + 1, b.neg(x)), lambda b, x: (other * 2, x)
    number, x = branch(m.b, m.b.gt(m.n, 1), (x,), then, otherwise)
    return b_neg(m), m.b.add(x, number), m.b.full((), one - other, int64, "cpu")


def eager_whole_numbers(x, w, n):
    negative, one, other = -x, len(x), 2
    for turn in range(int(n)):
        one, x, other = other * 3 - 1, x * 0.5 + turn, one * other + len(negative)
    number, x = (one + 1, -x) if n > 1 else (other * 2, x)
    return negative, x + number, torch.tensor(one - other)


CASES = {
    "a product and a softmax": Case(powers, eager_powers),
    "what grows": Case(growing, eager_growing),
    "what is swapped": Case(swapped, eager_swapped),
    "a branch": Case(chosen, eager_chosen),
    "a loop in a branch in a loop": Case(nested, eager_nested),
    "sizes inside": Case(sized, eager_sized),
    "random numbers": Case(drawn, eager_drawn),
    "two values made anew": Case(both_changed, eager_both_changed),
    "sides of one size": Case(same_sizes, eager_same_sizes),
    "the rows of a list": Case(over_rows, eager_over_rows),
    "numbers below nothing": Case(below_nothing, eager_below_nothing),
    "carried numbers": Case(counted, eager_counted),
    "whole numbers": Case(whole_numbers, eager_whole_numbers),
    "numbers of a branch": Case(numbers_of_sides, eager_numbers_of_sides),
    "a buffer that a body writes": Case(written, eager_written),
    "a buffer that one side writes": Case(written_by_sides, eager_written_by_sides),
}
NATIVE = (
    "a product and a softmax",
    "a loop in a branch in a loop",
    "two values made anew",
    "sides of one size",
    "the rows of a list",
    "what is swapped",
    "a buffer that a body writes",
    "a buffer that one side writes",
)
"""The cases whose loops and branches native code runs: no Python between their kernels."""
GIVEN = [(3, 4, 2), (2, 2, 3), (1, 5, 0), (4, 1, 1), (0, 3, 2), (3, 0, 1)]


def graph_of(build: Callable[[Making], tuple[Any, ...]]) -> Graph:
    making = Making()
    return making.b.finish(build(making))


def tensors(rows: int, columns: int, n: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(rows * 10 + columns)
    x, w = (torch.randn(shape, generator=made) for shape in ((rows, columns), (columns, columns)))
    return [x, w, torch.tensor(n)]


def agree(case: Case, run: Callable[..., Any]) -> None:
    for sizes in GIVEN:
        given = tensors(*sizes)
        torch.manual_seed(0)
        wanted = case.eager(*given)
        torch.manual_seed(0)
        found = run(*given)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
