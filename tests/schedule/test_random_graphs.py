"""Random graphs give the reference's numbers, and their programs write over nothing needed."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from programs import OPTIONS, same_as_reference
from random_graphs import Maker

from anyshape.driver import Driver
from anyshape.ir.program import Program
from anyshape.ir.verify_program import verify_program
from anyshape.ops import OPS
from anyshape.passes.pipeline import INFERENCE
from anyshape.schedule import schedule
from anyshape.symbolic import Facts
from anyshape.targets.cpu.native_regions import form_native_regions
from anyshape.targets.triton.regions import form_gpu_regions


def scheduled(seed: int, steps: int) -> tuple[Program, Facts]:
    graph = [stage for _, stage in INFERENCE.stages(Maker(seed).graph(steps), OPS)][-1]
    return schedule(graph), graph.facts


@pytest.mark.parametrize("start", range(0, 200, 25))
def test_nothing_is_read_that_was_not_written_or_was_written_over(start):
    for seed in range(start, start + 25):
        program, facts = scheduled(seed, 30)
        verify_program(program, facts)
        verify_program(form_native_regions(program, facts), facts)
        verify_program(form_gpu_regions(program, facts, "cpu"), facts)


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
