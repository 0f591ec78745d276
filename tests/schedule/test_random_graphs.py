"""Random graphs give the reference's numbers, and nothing is read before it is written."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from programs import OPTIONS, same_as_reference
from random_graphs import Maker

from anyshape.driver import Driver
from anyshape.ir.program import BufferRef, Call, Launch, Program
from anyshape.ops import OPS
from anyshape.passes.pipeline import stages
from anyshape.schedule import schedule


def scheduled(seed: int, steps: int) -> tuple[Maker, Program]:
    maker = Maker(seed)
    graph = maker.graph(steps)
    return maker, schedule([stage for _, stage in stages(graph, OPS)][-1])


@pytest.mark.parametrize("start", range(0, 200, 25))
def test_nothing_is_read_before_it_is_written(start):
    for seed in range(start, start + 25):
        _, program = scheduled(seed, 30)
        written = set(program.inputs)
        for step in program.flat_steps():
            if isinstance(step, Launch):
                pairs = [
                    (p, a.name)
                    for p, a in zip(step.kernel.params, step.args)
                    if isinstance(a, BufferRef)
                ]
                assert all(name in written for p, name in pairs if p.access == "read"), (
                    seed,
                    pairs,
                )
                written.update(name for _, name in pairs)
            elif isinstance(step, Call):
                written.update(step.outputs)


@pytest.mark.parametrize("start", range(0, 30, 6))
def test_random_graphs_give_the_references_numbers(start):
    driver = Driver.create(OPTIONS)
    for seed in range(start, start + 6):
        maker = Maker(seed)
        compiled = driver.compile_graph(maker.graph(10), {})
        for a, b in [(1, 1), (3, 2), (0, 2), (7, 70)]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                same_as_reference(compiled, *maker.tensors(a, b), tolerance=1e-3)
