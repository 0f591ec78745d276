"""The order of passes is data: each order that a pipeline accepts gives the reference's numbers."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anyshape import reference
from anyshape.ir.dtypes import int64
from anyshape.ir.graph import Graph
from anyshape.ops import OPS
from anyshape.passes.pipeline import INFERENCE, Pass, Pipeline, PipelineError

sys.path.insert(0, str(Path(__file__).parents[1] / "schedule"))
from programs import Sketch

SHUFFLES = 300
GOAL = INFERENCE.goal


def made(passes: tuple[Pass, ...]) -> Pipeline | None:
    try:
        return Pipeline("shuffled", passes, GOAL)
    except PipelineError:
        return None


def shuffles() -> list[Pipeline]:
    """The accepted ones of many orders, nearly all of them near the usual one."""
    chooser = random.Random(0)
    found: list[Pipeline] = []
    for _ in range(SHUFFLES):
        passes = list(INFERENCE.passes)
        for _ in range(chooser.randrange(1, 6)):
            a, b = chooser.sample(range(len(passes)), 2)
            passes.insert(b, passes.pop(a))
        pipeline = made(tuple(passes))
        if pipeline is not None and pipeline.passes not in [other.passes for other in found]:
            found.append(pipeline)
    return found


def sketches() -> dict[str, tuple[Graph, tuple[torch.Tensor, ...]]]:
    """Writes, views, indices, equal nodes, outputs that are one value, a long cat."""
    sketch = Sketch()
    x, i, b = sketch.input("a b"), sketch.input("c", int64), sketch.builder
    b.add_(b.select(x, 1, 0), 1.0)
    rows = b.index_select(x, 0, i)
    twice = b.add(b.exp(rows), b.exp(rows))
    b.softmax(x, -1)
    graph = sketch.finish(twice, b.clone(twice), x, b.cat((rows,) * 20, 0))
    tensors = (torch.randn(5, 3), torch.tensor([0, 4, 4, 2]))
    return {"writes, indices, views, a long cat": (graph, tensors)}


def test_many_orders_are_accepted_and_many_refused() -> None:
    accepted = len(shuffles())
    assert 10 < accepted < SHUFFLES - 50


@pytest.mark.parametrize("name", sketches())
def test_every_accepted_order_gives_the_references_numbers(name: str) -> None:
    graph, tensors = sketches()[name]
    wanted = reference.run(graph, [t.clone() for t in tensors])
    for pipeline in shuffles():
        final = [stage for _, stage in pipeline.stages(graph, OPS)][-1]
        found = reference.run(final, [t.clone() for t in tensors])
        order = [step.name for step in pipeline.passes]
        for have, want in zip(found, wanted, strict=True):
            assert torch.allclose(have, want), order
        objects = [t.data_ptr() for t in found]
        assert len(set(objects)) == len(objects), order


@pytest.mark.parametrize("position", range(len(INFERENCE.passes)))
def test_what_a_pass_gives_is_missed(position: int) -> None:
    step = INFERENCE.passes[position]
    passes = list(INFERENCE.passes)
    passes[position] = replace(step, gives=frozenset())
    optional = {"laid-out"}  # nothing needs it
    if step.gives - optional:
        with pytest.raises(PipelineError, match="needs|does not end"):
            Pipeline("crippled", tuple(passes), GOAL)


def test_the_error_names_the_pass_and_what_it_lacks() -> None:
    first, second, *rest = INFERENCE.passes
    with pytest.raises(PipelineError, match=r"swapped: remove-dead-early needs \['pure'\]"):
        Pipeline("swapped", (first, rest[0], second, *rest[1:]), GOAL)


def test_a_pipeline_of_ones_own_is_made_of_passes_of_another() -> None:
    passes = tuple(step for step in INFERENCE.passes if step.name != "channels-innermost")
    without_layouts = Pipeline("without layouts", passes, GOAL)
    for graph, tensors in sketches().values():
        wanted = reference.run(graph, [t.clone() for t in tensors])
        final = [stage for _, stage in without_layouts.stages(graph, OPS)][-1]
        found = reference.run(final, [t.clone() for t in tensors])
        assert all(map(torch.allclose, found, wanted))
