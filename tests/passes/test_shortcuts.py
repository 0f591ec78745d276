"""Where a pass is skipped, it would have changed nothing: both are done, and compared.

The graphs are those of random programs and of random rows, written to, joined, indexed and convolved.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape import passes
from anyshape.ir.graph import Graph, Input, Node, TensorType, Value
from anyshape.ir.shortcuts import Shortcut
from anyshape.ir.text import print_graph
from anyshape.ops import OPS
from anyshape.passes.pipeline import INFERENCE
from tests.fuzz.programs import function_of
from tests.fuzz.workers import program_of, quick_compiler
from tests.regions.cases import Making
from tests.regions.test_random_regions import Step, build, grown

sys.path.insert(0, str(Path(__file__).parents[1] / "schedule"))
from random_graphs import Maker

MODULES = [
    importlib.import_module(f"anyshape.passes.{entry.name}")
    for entry in pkgutil.iter_modules(passes.__path__)
]
SHORTCUTS: dict[str, Shortcut[Any, Any]] = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, Shortcut) and value.long_way.__module__ == module.__name__
}


def in_words(made: object) -> object:
    return print_graph(made, str) if isinstance(made, Graph) else made


def alone(graph: Graph, node: Node) -> Graph:
    """The node and nothing else: no other one is a reason for the pass to be done."""
    inputs = tuple(Input(value, "argument", "") for value in dict.fromkeys(node.inputs()))
    outputs = tuple(v for v in (*node.outputs, *node.args[:1]) if isinstance(v, Value))
    return replace(graph, inputs=inputs, nodes=(node,), outputs=outputs)


def kind_of(node: Node) -> object:
    types = [v.type for v in (*node.inputs(), *node.outputs)]
    kinds = [(t.dtype, t.rank) for t in types if isinstance(t, TensorType)]
    return node.op, tuple(kinds), len(node.regions), len(node.args)


@dataclass
class BothWays:
    """Replaces ``Shortcut.__call__``: which graphs were skipped, and what that missed;
    the nodes of each graph are looked at one by one as well."""

    taken: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)

    def call(self, shortcut: Shortcut[Any, Any], graph: Graph, *rest: Any) -> Any:
        name = shortcut.long_way.__name__
        for node in graph.nodes:
            key = (name, kind_of(node))
            if key not in self.seen:
                self.seen.add(key)
                self.compare(shortcut, alone(graph, node), *rest)
        self.compare(shortcut, graph, *rest)
        chosen = shortcut.long_way if shortcut.concerns(graph, *rest) else shortcut.nothing
        return chosen(graph, *rest)

    def compare(self, shortcut: Shortcut[Any, Any], graph: Graph, *rest: Any) -> None:
        if shortcut.concerns(graph, *rest):
            return
        name = shortcut.long_way.__name__
        self.taken[name] += 1
        short, long = (in_words(way(graph, *rest)) for way in (shortcut.nothing, shortcut.long_way))
        if short != long:
            self.missed.append(f"{name} is skipped, which makes\n{long}\nof\n{in_words(graph)}")


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> BothWays:
    found = BothWays()
    monkeypatch.setattr(Shortcut, "__call__", lambda shortcut, *args: found.call(shortcut, *args))
    return found


def run(function: Callable[..., Any], *calls: list[Any]) -> None:
    options = {"cache": False, "cc": quick_compiler("0")}
    fast = anyshape.compile(function, options=options)
    for arguments in calls:
        try:
            fast(*arguments)
        except Exception:  # as eager may: only passes are looked at
            pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", range(0, 45, 15))
def test_shortcuts_of_random_programs_agree_with_the_long_way(
    start: int, both_ways: BothWays
) -> None:
    for seed in range(start, start + 15):
        program = program_of(seed)
        run(function_of(program.source), *(program.arguments(n) for n in range(2)))
    assert both_ways.missed == []
    assert {name for name in SHORTCUTS if both_ways.taken[name] < 3} == set()


@pytest.mark.parametrize("start", range(0, 50, 25))
def test_shortcuts_of_random_graphs_agree_with_the_long_way(
    start: int, both_ways: BothWays
) -> None:
    for seed in range(start, start + 25):
        graph = Maker(seed).graph(20)
        for stage in (graph, *(made for _, made in INFERENCE.stages(graph, OPS))):
            for shortcut in SHORTCUTS.values():
                shortcut(stage, OPS)
    assert both_ways.missed == []


def convolved(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(F.relu(F.conv2d(x, w)), w)


REASONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "data": (lambda x: x.data, [torch.ones(3, 4)]),
    "a write": (lambda x: x.mul_(2).sum(), [torch.ones(3, 4)]),
    "a divisor": (lambda x, y: x // y, [torch.arange(4), torch.arange(1, 5)]),
    "a remainder": (lambda x, y: x % y, [torch.arange(4), torch.arange(1, 5)]),
    "an index": (lambda x, i: x[i], [torch.ones(3, 4), torch.arange(2)]),
    "two convolutions": (convolved, [torch.ones(1, 2, 5, 5), torch.ones(2, 2, 2, 2)]),
    "many parts": (lambda x: torch.cat([x + n for n in range(40)]), [torch.ones(3, 4)]),
    "a transposed result": (lambda x: x.mT + x.mT, [torch.ones(3, 4)]),
}


@pytest.mark.parametrize("name", REASONS)
def test_one_reason_is_enough(name: str, both_ways: BothWays) -> None:
    function, arguments = REASONS[name]
    run(function, arguments)
    assert both_ways.missed == []


@pytest.mark.parametrize("seed", range(8))
def test_a_write_inside_a_region_is_enough(seed: int, both_ways: BothWays) -> None:
    rng, m = random.Random(seed), Making()
    steps = (Step("write", (0, 0), (grown(rng, 1, 1),)),)
    graph = m.b.finish(tuple(build(m.b, steps, [m.x], m.w, m.n, 0)))
    for _ in INFERENCE.stages(graph, OPS):
        pass
    assert both_ways.missed == []


def early_exits(tree: ast.Module) -> Iterator[str]:
    """Functions that give their first argument back, or nothing, behind a question alone."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or not function.args.args:
            continue
        first = function.args.args[0].arg
        for statement in function.body:
            if isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Return):
                value = statement.body[0].value
                if isinstance(value, ast.Name) and value.id == first == "graph":
                    yield function.name


def test_a_pass_is_skipped_by_a_declared_question_alone() -> None:
    """``rebuild`` compares what it has made."""
    found = {
        f"{module.__name__}.{name}"
        for module in MODULES
        for name in early_exits(ast.parse(Path(str(module.__file__)).read_text()))
    }
    assert found == {"anyshape.passes.rebuild.rebuild"}
    assert len(SHORTCUTS) > 5
