"""Graphs in graphs, built by hand: printed, parsed, verified, run by everyone, compiled and run.

Each case is a graph with loops and branches, and the same thing as a function on eager tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from anyshape import reference
from anyshape.driver import Driver
from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import bool_, float32, int64
from anyshape.ir.graph import Graph, TensorType, row_major
from anyshape.ir.nesting import graphs_in, nodes_in
from anyshape.ir.parse import parse_graph
from anyshape.ir.text import print_graph
from anyshape.ir.verify import Malformed, verify_graph
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.regions import RegionRefused, branch, loop
from anyshape.options import Options
from anyshape.runtime.eager_graph import EagerGraph
from anyshape.symbolic import Facts, Space

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


CASES = {
    "a product and a softmax": Case(powers, eager_powers),
    "what grows": Case(growing, eager_growing),
    "what is swapped": Case(swapped, eager_swapped),
    "a branch": Case(chosen, eager_chosen),
    "a loop in a branch in a loop": Case(nested, eager_nested),
    "sizes inside": Case(sized, eager_sized),
    "random numbers": Case(drawn, eager_drawn),
}
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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_oracle_runs_regions(case: Case) -> None:
    graph = graph_of(case.build)
    agree(case, lambda *given: reference.run(graph, given, check_types=True))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_eager_graphs_run_regions(case: Case) -> None:
    graph = graph_of(case.build)
    agree(case, EagerGraph(graph, {}).run)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_compile_of_regions_serves_every_size(case: Case) -> None:
    compiled = Driver.create(OPTIONS).compile_graph(graph_of(case.build), {})
    assert not isinstance(compiled, EagerGraph)
    agree(case, compiled.run)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_pass_keeps_what_regions_mean(case: Case) -> None:
    compiled = Driver.create(OPTIONS).compile_graph(graph_of(case.build), {})
    for _, stage in compiled.stages:
        verify_graph(stage)
        agree(case, lambda *given, graph=stage: reference.run(graph, given))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_regions_are_printed_and_read_back(case: Case) -> None:
    graph = graph_of(case.build)
    text = print_graph(graph, lambda name: OPS[name].torch)
    read = parse_graph(text)
    assert print_graph(read, lambda name: OPS[name].torch) == text
    assert [n.op for n in nodes_in(read)] == [n.op for n in nodes_in(graph)]
    agree(case, lambda *given: reference.run(read, given))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_printed_text_is_python_that_runs(case: Case) -> None:
    scope: dict[str, Any] = {}
    exec(print_graph(graph_of(case.build), lambda name: OPS[name].torch), scope)
    agree(case, scope["graph"])


def test_regions_have_kernels_of_their_own() -> None:
    compiled = Driver.create(OPTIONS).compile_graph(graph_of(powers), {})
    assert len([*compiled.program.nested()]) == 2
    assert compiled.count("launch") >= 1
    assert compiled.count("eager") == 0


def test_an_error_in_the_third_turn_means_that_the_segment_has_not_happened() -> None:
    def build(m: Making) -> tuple[Any, ...]:
        return loop(m.b, m.n, (m.x,), (), lambda b, turn, x: (b.index_select(x, 0, at(b, turn)),))

    def at(b: Builder, turn: Any) -> Any:
        return b.full((2,), turn, int64, "cpu")

    graph = graph_of(build)
    compiled = Driver.create(OPTIONS).compile_graph(graph, {})
    x, w = torch.arange(6.0).view(2, 3), torch.eye(3)
    (made,) = compiled.run(x, w, torch.tensor(2))
    assert made.tolist() == [[0.0, 1.0, 2.0]] * 2
    with pytest.raises(CheckFailed):
        compiled.run(x, w, torch.tensor(3))


def test_what_is_carried_has_one_dtype_and_rank() -> None:
    m = Making()
    with pytest.raises(RegionRefused, match="two types"):
        loop(m.b, 3, (m.x,), (), lambda b, turn, x: (b.to_dtype(x, bool_),))
    with pytest.raises(RegionRefused, match="two types"):
        branch(m.b, m.n, (m.x,), lambda b, x: (x,), lambda b, x: (b.sum(x, (0,), False),))


def test_a_body_writes_nothing() -> None:
    m = Making()
    with pytest.raises(RegionRefused, match="may write"):
        loop(m.b, 3, (m.x,), (), lambda b, turn, x: (b.add_(x, 1.0),))


def test_a_region_reads_its_own_inputs_alone() -> None:
    m = Making()
    made = loop(m.b, 3, (m.x,), (), lambda b, turn, x: (b.add(x, m.x),))
    with pytest.raises(Malformed, match="before it is defined"):
        verify_graph(m.b.finish(made))


def test_no_size_of_a_region_leaves_it() -> None:
    m = Making()
    (made,) = growing(m)
    graph = m.b.finish((made,))
    verify_graph(graph)
    inside = {entry.value.shape[0] for entry in list(graphs_in(graph))[1].inputs[1:2]}
    assert made.shape[0] not in inside


def test_a_size_that_no_turn_changes_stays_what_it_is() -> None:
    m = Making()
    (made,) = powers(m)
    assert made.shape == m.x.shape
