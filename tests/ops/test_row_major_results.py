"""Whether a row makes row-major results is seen at once of most elementwise ones: the rule agrees."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anyshape.ir.dtypes import bool_, float32, int64
from anyshape.ir.graph import Node, TensorType, Value, row_major
from anyshape.ops.build import Builder
from anyshape.ops.context import NoRow, OpError, TypeContext, Undecided
from anyshape.ops.row_major_results import (
    asked_of_rule,
    follows_operands,
    is_of_rows,
    makes_rows,
)
from anyshape.ops.rules import PointwiseRule, RowMajorRule
from anyshape.ops.table import OPS
from anyshape.symbolic import Facts, Space

sys.path.insert(0, str(Path(__file__).parents[1] / "schedule"))
from random_graphs import Maker

ELEMENTWISE = sorted(name for name, row in OPS.items() if isinstance(row.type, PointwiseRule))
IN_ROWS = sorted(name for name, row in OPS.items() if isinstance(row.type, RowMajorRule))


def fresh() -> Builder:
    space = Space()
    return Builder(TypeContext(space, Facts(space)), OPS)


def calls(name: str, builder: Builder) -> Iterator[Node]:
    """Nodes of the row over tensors that broadcast, and numbers."""
    space = builder.cx.space
    a, b, c = (space.symbol(n) for n in "abc")
    shapes = [(a, b), (a, b, c), (a, b + 1, 3, 2 * c), (b,), (1, b), (a, 1), (a, 1, c), ()]
    pick = random.Random(name)
    for count, dtype in itertools.product((1, 2, 3, 4), (float32, int64, bool_)):
        for _ in range(12):
            args: list[object] = []
            for number in range(count):
                shape = shapes[0] if number == 0 and pick.random() < 0.4 else pick.choice(shapes)
                kind = TensorType(dtype, "cpu", shape, row_major(shape))
                args.append(Value(f"x{number}", kind) if pick.random() < 0.8 else 0.5)
            try:
                builder.call(name, *args)
            except (OpError, NoRow, Undecided, LookupError, TypeError, AttributeError, ValueError):
                continue
    yield from builder.nodes


def same_strides(builder: Builder, node: Node) -> bool:
    made = builder.type_of(OPS[node.op], node.args, node.kwargs)
    return made.strides == node.output.tensor.strides


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_results_lie_as_their_operands(name: str) -> None:
    builder = fresh()
    for node in calls(name, builder):
        row = OPS[node.op]
        if follows_operands(row, node):
            assert not asked_of_rule(builder, row, node), node
            assert not asked_of_rule(builder, row, node, images=False), node
        if is_of_rows(builder, row, node):
            assert same_strides(builder, node), node


@pytest.mark.parametrize("seed", range(20))
def test_the_rule_agrees_on_random_graphs(seed: int) -> None:
    graph = Maker(seed).graph(30)
    builder = Builder(TypeContext(graph.space, graph.facts.fork(), graph.hints), OPS)
    for node in graph.nodes:
        if (row := OPS.get(node.op)) is not None and follows_operands(row, node):
            assert not asked_of_rule(builder, row, node), node
        if row is not None and is_of_rows(builder, row, node):
            assert same_strides(builder, node), node


@pytest.mark.parametrize("name", IN_ROWS)
def test_rows_that_say_so_make_rows_of_other_layouts(name: str) -> None:
    builder = fresh()
    nodes = [*calls(name, builder), *calls_with_dims(name, builder)]
    assert nodes
    for node in nodes:
        row = OPS[node.op]
        if isinstance(row.type, RowMajorRule):
            assert asked_of_rule(builder, row, node), node
            assert asked_of_rule(builder, row, node, images=False), node


def calls_with_dims(name: str, builder: Builder) -> Iterator[Node]:
    """Nodes of a row that is handed dimensions, or the last sizes of its argument."""
    a, b, c = (builder.cx.space.symbol(n) for n in ("p", "q", "r"))
    first = len(builder.nodes)
    for shape, given in itertools.product(
        ((a, b), (a, b, 3), (a, 1, c)), ((-1,), (0,), ((0, 1),), ((3,),), (2, -1), ("fro", -1))
    ):
        x = Value("x", TensorType(float32, "cpu", shape, row_major(shape)))
        try:
            builder.call(name, x, *given)
        except (OpError, NoRow, Undecided, LookupError, TypeError, AttributeError, ValueError):
            continue
    yield from builder.nodes[first:]


def test_most_elementwise_rows_are_seen_at_once() -> None:
    seen = 0
    for name in ELEMENTWISE:
        builder = fresh()
        nodes = [*calls(name, builder)]
        follows = any(follows_operands(OPS[n.op], n) for n in nodes)
        seen += follows and any(is_of_rows(builder, OPS[n.op], n) for n in nodes)
    assert seen > len(ELEMENTWISE) // 2


def test_what_is_asked_of_other_strides_is_not_relied_on() -> None:
    """The layouts that a rule is asked about are not the program's: no guard holds of them."""
    space = Space()
    rows, length = (space.symbol(n) for n in "ab")
    guards: list[object] = []
    hints = {size.symbol: hint for size, hint in ((rows, 2), (length, 7))}
    builder = Builder(TypeContext(space, Facts(space), hints, on_guard=guards.append), OPS)
    shape = (rows, 1, length, 16)
    empty, head = (TensorType(float32, "cpu", s, row_major(s)) for s in ((0,), shape))
    args = ((Value("empty", empty), Value("head", head)), 2)
    node = Node("cat_beside_vectors", args, {}, (Value("joined", head),))
    makes_rows(builder, OPS[node.op], node)
    assert guards == []
