"""Checks are nodes: they stay in order, are printed, parsed, run, and done where they can be."""

from __future__ import annotations

import pytest
import torch

from anyshape import reference
from anyshape.eager import CheckFailed
from anyshape.ir.dtypes import float32, int64
from anyshape.ir.established import hoist_checks, midrun_numbers
from anyshape.ir.graph import CHECK, Graph, TensorType
from anyshape.ir.parse import parse_graph
from anyshape.ir.program import BindItem, BindSize, CheckStep
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.ir.text import print_graph
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.passes.integers import check_integers
from anyshape.runtime.eager_graph import EagerGraph
from anyshape.schedule import schedule
from anyshape.symbolic import Facts, Space, ge, le


def numbers_and_checks() -> Graph:
    """``x`` of ``s`` elements, two numbers from data; checks of each, and of all, at the end."""
    space = Space()
    size = space.fresh("s")
    b = Builder(TypeContext(space, Facts(space)))
    x = b.input(TensorType(float32, "cpu", (size,), (1,)), "argument", "x")
    n = b.input(TensorType(int64, "cpu", (), ()), "argument", "n")
    m = b.input(TensorType(int64, "cpu", (), ()), "argument", "m")
    first, second = b.item(n).type.expr, b.item(m).type.expr
    y = b.exp(x)
    b.check(ge(second, 1), "the second is positive")
    b.check(ge(first, 2), "the first is at least two")
    b.check(le(size, 9), "at most nine elements")
    b.check(le(first, second), "the first is not greater")
    return b.finish((y, first, second))


def names(graph: Graph) -> list[str]:
    return [node.args[1] if node.op == CHECK else node.op for node in graph.nodes]


def test_a_check_goes_where_the_last_of_its_sizes_gets_its_value_and_order_stays() -> None:
    assert names(hoist_checks(numbers_and_checks())) == [
        "at most nine elements",
        "item",
        "the first is at least two",
        "item",
        "the second is positive",
        "the first is not greater",
        "exp",
    ]


def test_a_hoisted_graph_stays_as_it_is() -> None:
    once = hoist_checks(numbers_and_checks())
    assert hoist_checks(once).nodes == once.nodes


def test_a_check_of_integers_of_any_size_needs_no_other_check() -> None:
    """Python compares them, and its integers have no largest one."""
    graph = numbers_and_checks()
    assert check_integers(graph, OPS).nodes == graph.nodes


def test_the_program_checks_before_anything_that_may_rely_on_it() -> None:
    steps = schedule(numbers_and_checks()).steps
    kinds = [type(s) for s in steps if isinstance(s, (BindItem, BindSize, CheckStep))]
    assert kinds == [CheckStep, BindItem, CheckStep, BindItem, CheckStep, CheckStep]


def test_checks_are_printed_as_assertions_and_read_back() -> None:
    graph = numbers_and_checks()
    text = print_graph(graph, lambda name: OPS[name].torch)
    assert text.count("assert ") == 4
    read = parse_graph(text)
    assert names(read) == names(graph)
    assert print_graph(read, lambda name: OPS[name].torch) == text


@pytest.mark.parametrize("run", [reference.run, lambda g, given: EagerGraph(g, {}).run(*given)])
@pytest.mark.parametrize("n,m,message", [(2, 3, ""), (1, 3, "at least two"), (3, 2, "not greater")])
def test_whoever_runs_a_graph_raises_where_a_check_does_not_hold(run, n, m, message) -> None:
    given = [torch.zeros(3), torch.tensor(n), torch.tensor(m)]
    if not message:
        assert run(numbers_and_checks(), given)[1:] == (n, m)
        return
    with pytest.raises(CheckFailed, match=message):
        run(numbers_and_checks(), given)


def test_numbers_nested_as_deep_as_a_program_is_long() -> None:
    number: Scalar | ScalarInput = ScalarInput("n0", "float")
    for _ in range(5_000):
        number = Scalar("float", "add", (number, number))
    assert len(list(midrun_numbers(number))) == 2
