"""The driver runs a program through a target that it has never seen (``docs/how-to-target.md``)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyshape import reference
from anyshape.driver import CompiledGraph, Driver
from anyshape.ir import dtypes
from anyshape.options import Options
from anyshape.runtime.eager_graph import EagerGraph
from tests.driver.python_target import TARGETS, PythonFunction
from tests.schedule.programs import Sketch

CASES: dict[str, tuple[Any, tuple[tuple[str, dtypes.DType], ...]]] = {
    "a map": (lambda b, x: b.mul(b.add(x, 1.0), x), (("a b", dtypes.float32),)),
    "broadcast": (lambda b, x, y: b.sub(x, y), (("a b", dtypes.float32), ("b", dtypes.float32))),
    "a choice": (lambda b, x: b.where(b.gt(x, 0.0), x, b.neg(x)), (("a b", dtypes.float64),)),
    "transposed": (lambda b, x: b.add(b.permute(x, (1, 0)), 1.0), (("a b", dtypes.float32),)),
    "around a product": (
        lambda b, x, y: b.add(b.mm(b.neg(x), y), 1.0),
        (("a b", dtypes.float32), ("b a", dtypes.float32)),
    ),
}


def compiled(name: str) -> tuple[Any, tuple[tuple[str, dtypes.DType], ...]]:
    make, inputs = CASES[name]
    sketch = Sketch()
    values = [sketch.input(sizes, dtype) for sizes, dtype in inputs]
    graph = sketch.finish(make(sketch.builder, *values))
    return Driver(Options(cache=False), targets=TARGETS).compile_graph(graph, {}), inputs


@pytest.mark.parametrize("name", CASES)
def test_every_size_is_the_oracles(name: str) -> None:
    made, inputs = compiled(name)
    assert isinstance(made, CompiledGraph)
    assert all(isinstance(f, PythonFunction) for f in made.linked.code.functions.values())
    for sizes in ({"a": 2, "b": 3}, {"a": 0, "b": 3}, {"a": 1, "b": 1}, {"a": 5, "b": 4}):
        args = [
            torch.randn([sizes[n] for n in text.split()]).to(getattr(torch, dtype.name))
            for text, dtype in inputs
        ]
        (wanted,) = reference.run(made.graph, [arg.clone() for arg in args])
        torch.testing.assert_close(made.run(*args)[0], wanted)


def test_what_it_cannot_print_eager_torch_runs() -> None:
    sketch = Sketch()
    graph = sketch.finish(sketch.builder.sum(sketch.input("a b"), (0,)))
    made = Driver(Options(cache=False), targets=TARGETS).compile_graph(graph, {})
    assert isinstance(made, EagerGraph) and "no kernel for rows" in made.why
