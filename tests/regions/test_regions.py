"""Graphs in graphs, built by hand: printed, parsed, verified, run by everyone, compiled and run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from anyshape import reference
from anyshape.driver import Driver
from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import bool_, float32, int32, int64, uint8
from anyshape.ir.graph import Graph, TensorType
from anyshape.ir.native_regions import native_regions
from anyshape.ir.nesting import graphs_in, nodes_in
from anyshape.ir.parse import parse_graph
from anyshape.ir.program import Branch, Loop
from anyshape.ir.text import print_graph
from anyshape.ir.verify import Malformed, verify_graph
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.regions import RegionRefused, branch, loop
from anyshape.runtime.eager_graph import EagerGraph
from anyshape.symbolic import ge, le
from anyshape.targets.cpu import target as cpu
from tests.regions.cases import (
    CASES,
    GIVEN,
    NATIVE,
    OPTIONS,
    Case,
    Making,
    agree,
    graph_of,
    growing,
    powers,
    tensors,
    whole_numbers,
)


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


@pytest.mark.parametrize("name", NATIVE)
def test_the_host_calls_native_code_once_whatever_the_number_of_turns(name: str) -> None:
    compiled = Driver.create(OPTIONS).compile_graph(graph_of(CASES[name].build), {})
    assert len([*native_regions(compiled.program)]) == 1
    assert not any(isinstance(step, Loop | Branch) for step in compiled.program.steps)
    assert "def body" not in Driver.create(OPTIONS).generate(compiled.program).host.text


@pytest.mark.parametrize("name", NATIVE)
def test_native_bodies_stay_in_memory_of_their_own(name: str, monkeypatch) -> None:
    """As under sanitizers: each buffer has memory of its own instead of a slot in an arena."""
    monkeypatch.setattr(cpu, "emit_native_region", partial(cpu.emit_native_region, separate=True))
    compiled = Driver.create(OPTIONS).compile_graph(graph_of(CASES[name].build), {})
    agree(CASES[name], compiled.run)


@pytest.mark.parametrize("dtype", [bool_, uint8, int32, int64], ids=str)
def test_a_number_of_any_whole_dtype_is_a_trip_count_and_a_predicate(dtype) -> None:
    def build(m: Making) -> tuple[Any, ...]:
        number = m.b.to_dtype(m.n, dtype)
        body = lambda b, turn, x: (b.add(b.tanh(x), 1.0),)
        (turned,) = loop(m.b, number, (m.x,), (), body)
        (chosen,) = branch(m.b, number, (m.x,), lambda b, x: (b.neg(x),), lambda b, x: (b.exp(x),))
        return turned, chosen

    def eager(x, w, n):
        number = n.to(getattr(torch, dtype.name))
        turned = x
        for _ in range(int(number)):
            turned = torch.tanh(turned) + 1.0
        return turned, -x if number else torch.exp(x)

    compiled = Driver.create(OPTIONS).compile_graph(graph_of(build), {})
    assert not any(isinstance(step, Loop | Branch) for step in compiled.program.steps)
    agree(Case(build, eager), compiled.run)


def test_native_loops_carry_whole_numbers_and_the_host_reads_them_behind() -> None:
    compiled = Driver.create(OPTIONS).compile_graph(graph_of(whole_numbers), {})
    assert not any(isinstance(step, Loop | Branch) for step in compiled.program.steps)
    assert "def body" not in Driver.create(OPTIONS).generate(compiled.program).host.text


def test_a_native_number_of_more_than_64_bits_means_that_the_segment_has_not_happened() -> None:
    def build(m: Making) -> tuple[Any, ...]:
        body = lambda b, turn, number, x: (number * number, b.add(x, 1.0))
        number, x = loop(m.b, m.n, (m.rows * 1000, m.x), (), body)
        return x, m.b.full((), number, int64, "cpu")

    compiled = Driver.create(OPTIONS).compile_graph(graph_of(build), {})
    assert not any(isinstance(step, Loop | Branch) for step in compiled.program.steps)
    x, w = torch.ones(2, 3), torch.eye(3)
    assert int(compiled.run(x, w, torch.tensor(2))[1]) == 2000**4
    with pytest.raises(CheckFailed):
        compiled.run(x, w, torch.tensor(3))


def test_a_loop_reads_weights_and_numbers_of_the_graph_around() -> None:
    """A constant of the segment, beside kernels of the graph around, twice in one native region."""

    def build(m: Making) -> tuple[Any, ...]:
        kind = TensorType(float32, "cpu", (4, 4), (4, 1))
        weight = m.b.input(kind, "parameter", "weight")
        m.x = m.b.matmul(m.x, m.w)
        first = lambda b, turn, w: (b.mul(b.mm(w, w), 0.1),)
        (small,) = loop(m.b, m.n, (weight,), (), first)
        (shifted,) = loop(m.b, 3, (m.x,), (), lambda b, turn, x: (b.add(x, turn),))
        return m.b.relu(small), m.b.neg(shifted)

    making = Making()
    graph = making.b.finish(build(making))
    weight = torch.randn(4, 4)
    name = next(e.value.name for e in graph.inputs if e.kind == "parameter")
    compiled = Driver.create(OPTIONS).compile_graph(graph, {name: weight})
    assert len([*native_regions(compiled.program)]) == 1
    for sizes in GIVEN:
        x, w, n = tensors(*sizes)
        small = weight
        for _ in range(int(n)):
            small = small @ small * 0.1
        found = compiled.run(x, w, n)
        torch.testing.assert_close(found[0], torch.relu(small))
        torch.testing.assert_close(found[1], -(x @ w + 3))


@pytest.mark.parametrize("native", [False, True])
def test_an_error_in_the_third_turn_means_that_the_segment_has_not_happened(native: bool) -> None:
    def build(m: Making) -> tuple[Any, ...]:
        rows = m.rows if native else 2  # a size that a turn changes stays with the host
        body = lambda b, turn, x: (b.index_select(x, 0, b.full((rows,), turn, int64, "cpu")),)
        return loop(m.b, m.n, (m.x,), (), body)

    compiled = Driver.create(OPTIONS).compile_graph(graph_of(build), {})
    assert any(isinstance(step, Loop) for step in compiled.program.steps) is not native
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


def test_the_rows_of_a_list_are_integers() -> None:
    m = Making()
    for rows in (m.x, m.b.sum(m.x, (0,), False), m.b.ge(m.b.sum(m.x, (0,), False), 0.0)):
        with pytest.raises(RegionRefused, match="turns of"):
            loop(m.b, rows, (m.x,), (), lambda b, row, x: (b.add(x, row),))


def test_a_body_writes_to_what_it_captures_alone() -> None:
    m = Making()
    with pytest.raises(RegionRefused, match="what is carried"):
        loop(m.b, 3, (m.x,), (), lambda b, turn, x: (b.add_(x, 1.0),))
    with pytest.raises(RegionRefused, match="handed in twice"):
        loop(
            m.b, 3, (), (m.x, m.b.transpose(m.x, 0, 1)), lambda b, turn, x, y: (b.add_(x, 1.0),)[:0]
        )
    with pytest.raises(RegionRefused, match="gives back"):
        first = lambda b, turn, kept, x: (b.reshape(b.add_(x, 1.0), (m.rows * m.columns,)),)
        loop(m.b, 3, (m.b.reshape(m.b.neg(m.x), (m.rows * m.columns,)),), (m.x,), first)
    with pytest.raises(RegionRefused, match="does nothing"):
        loop(m.b, 3, (), (m.x,), lambda b, turn, x: ())


def test_what_is_carried_stays_a_number_of_one_kind() -> None:
    m = Making()
    for first, body in ((0, lambda n: 0.5), (0.5, lambda n: 1), (0, lambda n: m.x)):
        with pytest.raises(RegionRefused, match="two types"):
            loop(m.b, 3, (first,), (), lambda b, turn, n, body=body: (body(n),))
    with pytest.raises(RegionRefused, match="neither"):
        loop(m.b, 3, (True,), (), lambda b, turn, n: (n,))


def test_what_every_turn_keeps_of_a_number_is_known_behind_the_loop() -> None:
    m = Making()
    (count,) = loop(m.b, m.n, (m.rows,), (), lambda b, turn, n: (n + 2,))
    (fewer,) = loop(m.b, m.n, (m.rows,), (), lambda b, turn, n: (n - 2,))
    facts = m.b.cx.facts
    assert facts.known(ge(count, m.rows)) is True
    assert facts.known(le(fewer, m.rows)) is True
    assert facts.known(ge(fewer, 0)) is None
    assert not {count.symbol, fewer.symbol} & {s for s in (m.rows.symbol, m.columns.symbol)}


@pytest.mark.parametrize("how", ["compiled", "eager"])
def test_where_a_turn_fails_nothing_that_a_body_wrote_is_seen(how: str) -> None:
    """``x[turn] += 1`` fails in the third turn; the first two wrote."""

    def build(m: Making) -> tuple[Any, ...]:
        def body(b: Builder, turn: Any, x: Any) -> tuple[Any, ...]:
            b.add_(b.index_select(x, 0, b.full((1,), turn, int64, "cpu")), 1.0)
            b.add_(x, b.index_select(x, 0, b.full((1,), turn, int64, "cpu")))
            return ()

        loop(m.b, m.n, (), (m.x,), body)
        return (m.b.sum(m.x, (0, 1), False),)

    graph = graph_of(build)
    run = EagerGraph(graph, {}).run
    if how == "compiled":
        run = Driver.create(OPTIONS).compile_graph(graph, {}).run
    x, w = torch.ones(2, 3), torch.eye(3)
    (total,) = run(x, w, torch.tensor(2))
    assert x.tolist() == [[4.0] * 3] * 2 and float(total) == 24.0
    with pytest.raises(Exception):  # a check, or eager's own
        run(x, w, torch.tensor(3))
    assert x.tolist() == [[4.0] * 3] * 2


def test_what_is_written_to_keeps_its_strides() -> None:
    """A transposed argument, written by a loop and a branch, through views of it, in turns."""

    def build(m: Making) -> tuple[Any, ...]:
        seen = m.b.transpose(m.x, 0, 1)

        def body(b: Builder, turn: Any, total: Any, x: Any) -> tuple[Any, ...]:
            b.mul_(x, 2.0)
            return (b.add(total, b.sum(x, (1,), False)),)

        (total,) = loop(m.b, m.n, (m.b.sum(seen, (1,), False),), (seen,), body)
        branch(
            m.b,
            m.b.gt(m.n, 1),
            (seen,),
            lambda b, x: (b.add_(x, 1.0),)[:0],
            lambda b, x: (b.neg_(x),)[:0],
        )
        return total, m.b.mul(m.x, 1.0)

    def eager(x, w, n):
        seen = x.t()
        total = seen.sum(1)
        for _ in range(int(n)):
            seen.mul_(2.0)
            total = total + seen.sum(1)
        seen.add_(1.0) if n > 1 else seen.neg_()
        return total, x * 1.0

    graph = graph_of(build)
    compiled = Driver.create(OPTIONS).compile_graph(graph, {})
    for sizes in GIVEN:
        for run in (compiled.run, EagerGraph(graph, {}).run, partial(reference_run, graph)):
            x, w, n = tensors(*sizes)
            mine = x.clone()
            for one, other in zip(run(mine, w, n), eager(x, w, n), strict=True):
                torch.testing.assert_close(one, other)
            torch.testing.assert_close(mine, x)


def reference_run(graph: Graph, *given: torch.Tensor) -> Any:
    return reference.run(graph, given)


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


def test_what_is_learnt_in_a_region_stays_there() -> None:
    m = Making()
    many = ge(m.rows, 7)

    def learning(b: Builder, turn: Any, x: Any) -> tuple[Any, ...]:
        b.cx.facts.assume(many)
        assert b.cx.known(many) is True
        return (b.neg(x),)

    loop(m.b, m.n, (m.x,), (), learning)
    assert m.b.cx.known(many) is None


def test_a_size_that_no_turn_changes_stays_what_it_is() -> None:
    m = Making()
    (made,) = powers(m)
    assert made.shape == m.x.shape
