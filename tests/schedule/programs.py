"""Builds a graph from rows with unknown sizes, compiles it once, and runs it at many sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from anyshape import reference
from anyshape.driver import Driver
from anyshape.ir import dtypes
from anyshape.ir.dtypes import DType
from anyshape.ir.graph import Graph, TensorType
from anyshape.ir.program import Launch, Program, Step
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.options import from_environment
from anyshape.symbolic import Dim, Expr, Facts, Space, ge

OPTIONS = replace(from_environment(), cache=False)


class Sketch:
    """A graph under construction: ``x = sketch.input("a b", float32)``; names are sizes."""

    def __init__(self) -> None:
        self.space = Space()
        self.facts = Facts(self.space)
        self.builder = Builder(
            TypeContext(self.space, self.facts, on_check=lambda condition, message: None)
        )
        self.constants: dict[str, torch.Tensor] = {}

    def size(self, name: str) -> Dim:
        """A literal, or the symbol of that name."""
        if name.isdigit():
            return int(name)
        found = self.space.named(name)
        return self.space.symbol(name) if found is None else found

    def input(self, sizes: str, dtype: DType = dtypes.float32, order: Sequence[int] = ()) -> Any:
        """A dense argument; ``order`` lists its dims from the slowest to the fastest."""
        shape = tuple(self.size(name) for name in sizes.split())
        strides: list[Dim] = [0] * len(shape)
        step: Dim = 1
        for dim in reversed(tuple(order) or range(len(shape))):
            strides[dim] = step
            step = step * shape[dim]
        kind = TensorType(dtype, "cpu", shape, tuple(strides))
        return self.builder.input(kind, "argument", f"a{len(self.builder.inputs)}")

    def finish(self, *outputs: Any) -> Graph:
        return self.builder.finish(outputs)


def compile_sketch(make: Callable[..., Any], *inputs: Any, driver: Driver | None = None) -> Any:
    """``make(b, *values)`` compiled for inputs given as (sizes, dtype[, order])."""
    sketch = Sketch()
    values = [sketch.input(*(item if isinstance(item, tuple) else (item,))) for item in inputs]
    made = make(sketch.builder, *values)
    graph = sketch.finish(*(made if isinstance(made, tuple) else (made,)))
    return (driver or Driver.create(OPTIONS)).compile_graph(graph, {})


def launches(program: Program) -> list[Launch]:
    return [step for step in program.flat_steps() if isinstance(step, Launch)]


def calls(program: Program, kind: type[Step]) -> list[Step]:
    return [step for step in program.flat_steps() if isinstance(step, kind)]


def same_as_reference(compiled: Any, *tensors: torch.Tensor, tolerance: float = 1e-5) -> None:
    """Values, dtypes, shapes and strides agree with the reference interpreter."""
    wanted = reference.run(compiled.graph, [t.clone() for t in tensors])
    found = compiled.run(*tensors)
    for a, b in zip(wanted, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        if all(n > 1 for t in tensors for n in t.shape):  # strides of one element mean nothing
            wide = [d for d, n in enumerate(a.shape) if n > 1]
            assert [a.stride(d) for d in wide] == [b.stride(d) for d in wide]
        torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)


__all__ = ["Expr", "Sketch", "calls", "compile_sketch", "ge", "launches", "same_as_reference"]
