"""A part of a graph is handed what it reads of other nodes: values, and what data decides."""

from __future__ import annotations

import torch

from anyshape.ir.dtypes import float32, int64
from anyshape.ir.graph import Graph, ScalarType, TensorType
from anyshape.ir.parts import part_of
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.runtime.eager_function import eager_function
from anyshape.symbolic import Facts, Space


def cut_to_a_length() -> Graph:
    """``t = x * 2; t[: int(t.sum())]``, and half of that."""
    space = Space()
    builder = Builder(TypeContext(space, Facts(space), on_check=lambda condition, message: None))
    x = builder.input(TensorType(float32, "cpu", (space.symbol("s0"),), (1,)), "argument", "x")
    twice = builder.call("mul", x, 2)
    length = builder.call("item", builder.call("to_dtype", builder.call("sum", twice), int64))
    cut = builder.call("slice", twice, 0, 0, length.type.expr, 1)
    return builder.finish((cut, builder.call("mul", cut, 0.5)))


def test_a_size_that_another_node_reads_from_data_is_an_input() -> None:
    graph = cut_to_a_length()
    slices = [node for node in graph.nodes if node.op == "slice"]
    part = part_of(graph, slices, slices[0].outputs)
    x, twice, length = part.inputs
    assert (x.value, twice.value) == (graph.inputs[0].value, slices[0].read[0])
    assert isinstance(length.value.type, ScalarType)
    t = torch.arange(5.0)
    (made,) = eager_function(part)(torch.zeros(5), t, 3)
    assert torch.equal(made, t[:3])


def test_what_the_part_gives_itself_is_no_input() -> None:
    graph = cut_to_a_length()
    part = part_of(graph, graph.nodes, graph.outputs)
    assert part.inputs == graph.inputs and part.outputs == graph.outputs
    x = torch.tensor([0.5, 0.5, 3.0])
    made, half = eager_function(part)(x / 4)
    assert torch.equal(made, (x / 2)[:2]) and torch.equal(half, made / 2)
