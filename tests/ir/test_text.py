"""A graph prints as Python that runs, and reads back as the same graph; malformed nouns are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anyshape import reference
from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import bfloat16, bool_, float32, int64
from anyshape.ir.graph import Graph, Location, Modes, TensorType, Value
from anyshape.ir.loops import Axis, Kernel, Load, Op, PointerParam, Store
from anyshape.ir.parse import ParseError, parse_graph
from anyshape.ir.scalars import Scalar
from anyshape.ir.text import equal, print_graph
from anyshape.ir.verify import Malformed, verify_graph, verify_kernel
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.symbolic import Facts, Space, broadcast, eq, le, maximum


def spell(name):
    return OPS[name].torch


class Made:
    """A graph under construction over tensors of given sizes."""

    def __init__(self):
        self.space = Space()
        self.guards = []
        self.checks = []
        self.cx = TypeContext(self.space, Facts(self.space), {}, self.guards.append)
        self.b = Builder(self.cx)
        self.tensors = []

    def size(self, hint, **kind):
        made = self.space.fresh("u" if kind.get("policy") == "unbacked" else "s", **kind)
        if not kind:
            self.cx.hints[made.symbol] = hint
        return made

    def tensor(self, t, shape, dtype=float32, strides=None):
        steps = strides
        if steps is None:
            steps, step = [], 1
            for n in reversed(shape):
                steps.append(step)
                step = step * n
            steps = tuple(reversed(steps))
        self.tensors.append(t)
        return self.b.input(
            TensorType(dtype, "cpu", tuple(shape), steps),
            "argument",
            f"args[{len(self.tensors) - 1}]",
        )

    def check_round_trip(self, *outputs):
        graph = self.b.finish(outputs)
        verify_graph(graph)
        text = print_graph(graph, spell)
        again = parse_graph(text)
        verify_graph(again)
        assert print_graph(again, spell) == text
        assert equal(graph, again)
        space: dict = {}
        exec(compile(text, "graph.py", "exec"), space)
        eager = reference.run(graph, self.tensors, self.cx.hints)
        ours = space["graph"](*self.tensors)
        back = reference.run(again, self.tensors)
        for a, b, c in zip(eager, ours, back, strict=True):
            same = (
                torch.equal(a, b) and torch.equal(a, c)
                if isinstance(a, torch.Tensor)
                else a == b == c
            )
            assert same
        return text


def test_a_graph_prints_as_a_torch_function_that_runs() -> None:
    m = Made()
    n, d = m.size(3), m.size(4)
    x = m.tensor(torch.randn(3, 4), (n, d))
    w = m.tensor(torch.randn(5, 4), (5, d))
    m.b.location = Location("model.py", 12, 4, 20, "forward")
    m.b.modes = Modes(grad=True, autocast=(("cpu", bfloat16),))
    y = m.b.softmax(m.b.add(m.b.linear(x, w, None), 1.5, alpha=2), -1)
    m.b.location = Location("model.py", 13)
    text = m.check_round_trip(m.b.mul(y, float("inf")), n, d * 2 + 1)
    assert "# at model.py:12:4-20 in forward" in text
    assert "softmax_0 = torch.nn.functional.softmax(add_0, 1, 3, None)" in text


def test_views_strides_and_dtypes_survive() -> None:
    m = Made()
    n, d = m.size(3), m.size(4)
    x = m.tensor(torch.randn(4, 3).t(), (n, d), strides=(1, n))
    a, b = m.b.split(m.b.reshape(m.b.clone(x), (-1,)), (n, n * (d - 1)), 0)
    half = m.b.to_dtype(m.b.transpose(x, 0, 1), bfloat16)
    m.check_round_trip(a, b, half, m.b.sum(x), m.b.contiguous(x, memory_format=None))


def test_sizes_that_data_decides_are_named_where_they_are_made() -> None:
    m = Made()
    n = m.size(5)
    x = m.tensor(torch.tensor([0, 2, 0, 3, 1]), (n,), int64)
    positions = m.b.nonzero(x)
    picked = m.b.index(x, (m.b.select(positions, 1, 0),))
    text = m.check_round_trip(picked, positions.shape[0] + 1)
    assert "u0 = nonzero_0.shape[0]" in text
    assert "# symbol u0: unbacked midrun" in text


def test_numbers_read_from_data_survive() -> None:
    m = Made()
    x = m.tensor(torch.tensor(2.5), ())
    k = m.tensor(torch.tensor(3), (), int64)
    scale = m.b.item(x)
    count = m.b.item(k)
    y = m.b.full((2,), Scalar("float", "mul", (scale.type.expr, 2.0)), float32, "cpu")
    m.check_round_trip(y, m.b.mul(y, count.type.expr))


def test_scalars_conditions_and_atoms_survive() -> None:
    m = Made()
    n, k = m.size(6), m.size(6)
    x = m.tensor(torch.randn(6, 6), (n, k))
    scaled = m.b.mul(x, Scalar("float", "pow", (n, -0.5)))
    causal = m.b.full((), Scalar("bool", "value", (eq(n, k),)), bool_, "cpu")
    sizes = (n // 4, n % 4, maximum(n, k) - 1, broadcast(n, k), (n * k + 3) // 2)
    m.check_round_trip(scaled, causal, *sizes)


def test_checks_and_facts_survive() -> None:
    m = Made()
    n = m.size(4)
    x = m.tensor(torch.randn(4), (n,))
    m.cx.facts.assume(le(n, 100))
    y = m.b.neg(x)
    m.b.check(le(n, 64), "at most 64")
    text = m.check_round_trip(m.b.exp(y))
    assert "assert 64 >= s0, 'at most 64'" in text or "assert s0 <= 64, 'at most 64'" in text


def test_a_failed_check_stops_the_reference() -> None:
    m = Made()
    n = m.size(4)
    x = m.tensor(torch.randn(4), (n,))
    m.b.check(le(n, 3), "at most 3")
    graph = m.b.finish((m.b.neg(x),))
    with pytest.raises(CheckFailed, match="at most 3"):
        reference.run(graph, m.tensors)


def small_graph():
    m = Made()
    n = m.size(4)
    x = m.tensor(torch.randn(4), (n,))
    return m.b.finish((m.b.exp(m.b.neg(x)),))


def test_use_before_definition_is_refused() -> None:
    graph = small_graph()
    with pytest.raises(Malformed, match="before it is defined"):
        verify_graph(replace(graph, nodes=tuple(reversed(graph.nodes))))


def test_two_values_of_one_name_are_refused() -> None:
    graph = small_graph()
    first, second = graph.nodes
    twin = replace(second, outputs=(Value(first.output.name, second.output.type),))
    with pytest.raises(Malformed, match="two values are named"):
        verify_graph(replace(graph, nodes=(first, twin), outputs=()))


def test_sizes_of_another_space_are_refused() -> None:
    graph = small_graph()
    other = Graph(Space(), graph.facts, graph.inputs, graph.nodes, graph.outputs)
    with pytest.raises(Malformed, match="mixes spaces"):
        verify_graph(other)


def test_kernels_read_what_is_there() -> None:
    space = Space()
    n, i = space.symbol("n0"), space.symbol("i0")
    params = (PointerParam("p0", float32, "read"), PointerParam("p1", float32, "write"))
    elements = (Load("p0", i, float32), Op("neg", (0,), float32))
    kernel = Kernel(params, (Axis("i0", n),), (), elements, (Store("p1", i, 1, "cell"),))
    verify_kernel(kernel)
    with pytest.raises(Malformed, match="before it is made"):
        verify_kernel(replace(kernel, elements=elements[::-1]))
    with pytest.raises(Malformed, match="no parameter"):
        verify_kernel(replace(kernel, stores=(Store("p9", i, 1, "cell"),)))


def test_a_line_that_is_none_of_a_graphs_is_an_error() -> None:
    text = "def graph(\n    x_0,  # argument 'x' : float32[2]\n):\n    y = torch.exp(x_0)\n    return (x_0,)"
    with pytest.raises(ParseError, match="not a line of a graph"):
        parse_graph(text)
