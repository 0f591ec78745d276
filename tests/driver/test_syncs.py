"""What a graph on another device waits for is counted: each number that it hands to the host."""

from __future__ import annotations

import torch

import anyshape
from anyshape.driver import Driver, EagerGraph
from anyshape.ir.dtypes import float32, int64
from anyshape.ir.graph import TensorType
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.options import Options
from anyshape.symbolic import Facts, Space


def syncs(device: str) -> int:
    """Two numbers are read from tensors on the device, and one more tensor is computed there."""
    space = Space()
    size = space.fresh("s")
    b = Builder(TypeContext(space, Facts(space)))
    x = b.input(TensorType(float32, device, (size,), (1,)), "argument", "x")
    n = b.input(TensorType(int64, device, (), ()), "argument", "n")
    numbers = b.item(b.sum(x, (0,), False)), b.item(n)
    graph = b.finish((*numbers, b.exp(x)))
    compiled = Driver.create(Options(cache=False, verify_programs=True)).compile_graph(graph, {})
    assert isinstance(compiled, EagerGraph) is (device != "cpu")
    return compiled.count("sync")


def test_numbers_from_another_device_are_syncs() -> None:
    assert syncs("cuda") == 2


def test_numbers_from_the_cpu_are_none() -> None:
    assert syncs("cpu") == 0

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * int(x.sum().item())

    fast = anyshape.compile(program)
    fast(torch.ones(3))
    assert fast.stats().host_syncs == 0
