"""How far a captured graph moves version counters, told by its nodes."""

from __future__ import annotations

from anyshape.ir.dtypes import float32
from anyshape.ir.graph import TensorType
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.passes.versions import Moves, moves
from anyshape.symbolic import Facts, Space


def builder() -> Builder:
    space = Space()
    return Builder(TypeContext(space, Facts(space)))


def of_four(b: Builder) -> object:
    return b.input(TensorType(float32, "cpu", (4,), (1,)), "argument", "x")


def test_every_write_but_the_first_moves_the_counter_of_an_input() -> None:
    b = builder()
    x, y = of_four(b), of_four(b)
    b.add_(x, 1)
    b.mul_(b.slice(x, 0, 0, 2, 1), 2)
    b.add_(b.detach(x), 1)
    b.add_(y, 1)
    assert moves(b.finish((x,)), OPS) == Moves({0: 2}, {})


def test_results_made_here_are_told_once_for_each_counter() -> None:
    b = builder()
    made, other = b.add(of_four(b), 1), b.add(of_four(b), 2)
    b.relu_(made)
    b.relu_(b.data(other))
    rows = b.slice(made, 0, 0, 2, 1)
    assert moves(b.finish((rows, made, other)), OPS) == Moves({}, {0: 1, 2: 0})


def test_what_is_written_by_data_alone_moves_no_counter() -> None:
    b = builder()
    x = of_four(b)
    b.add_(b.data(x), 1)
    b.add_(b.data(x), 1)
    assert not moves(b.finish((x,)), OPS)


def test_results_of_another_counter_are_apart_from_the_base_they_lie_in() -> None:
    b = builder()
    x = of_four(b)
    made = b.add(x, 1)
    data, of_input = b.data(made), b.data(x)
    rows = b.slice(data, 0, 0, 2, 1)
    graph = b.finish((rows, data, made, of_input, x))
    assert moves(graph, OPS) == Moves({}, {}, ((1, 0), (3,)))


def test_data_alone_keeps_the_counter_that_it_has() -> None:
    b = builder()
    data = b.data(b.add(of_four(b), 1))
    assert not moves(b.finish((data, b.slice(data, 0, 0, 2, 1))), OPS)
