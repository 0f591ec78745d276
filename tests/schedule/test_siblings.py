"""What is made of the same tensors is one kernel; numbers of rows that others read do not part it; what is
narrower in memory is not stored once more."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import anyshape
from anyshape import driver
from anyshape.ir.dtypes import float32
from anyshape.ir.program import Launch
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.schedule.analysis import analyse
from anyshape.symbolic import Facts, Space
from tests.schedule.programs import compile_sketch, same_as_reference

SIZES = [(1, 1), (3, 7), (0, 5), (5, 0), (33, 64)]


def launches(program):
    return [step for step in program.flat_steps() if isinstance(step, Launch)]


def gated(b, x, w):
    """The gradients of silu(x w) * x, each of which a product needs."""
    left, right = b.mm(x, w), b.mm(b.tanh(x), w)
    gate = b.sigmoid(left)
    return b.mm(b.mul(gate, right), w), b.mm(b.mul(gate, left), w), b.mm(b.sub(left, right), w)


def test_what_is_made_of_the_same_products_is_one_kernel():
    compiled = compile_sketch(gated, "a b", "b b")
    assert len(launches(compiled.program)) == 2  # tanh, and the three
    for a, c in SIZES:
        same_as_reference(compiled, torch.randn(a, c), torch.randn(c, c) / 8, tolerance=1e-4)


def apart(b, x, w):
    """The second is made of what the first one's product gives: it cannot be done with it."""
    left = b.mm(x, w)
    first = b.mm(b.tanh(left), w)
    return b.mm(b.add(first, left), w), b.mm(b.mul(left, left), w)


def test_siblings_wait_for_nothing_that_others_wait_for_them_with():
    compiled = compile_sketch(apart, "a b", "b b")
    for a, c in SIZES:
        same_as_reference(compiled, torch.randn(a, c), torch.randn(c, c) / 8, tolerance=1e-4)


def normed(b, x, w):
    """The level of each row is a result, too."""
    level = b.add(b.mean(b.mul(x, x), (1,), True), 1e-3)
    return b.mm(b.mul(x, b.rsqrt(level)), w), level


def test_a_number_of_each_row_that_others_read_is_stored_by_the_kernel_of_its_rows():
    compiled = compile_sketch(normed, "a b", "b b")
    assert len(launches(compiled.program)) == 1
    for a, c in [(1, 1), (3, 7), (0, 5), (33, 64)]:
        same_as_reference(compiled, torch.randn(a, c), torch.randn(c, c) / 8, tolerance=1e-4)


class Block(nn.Module):
    """A norm and a gated layer, as models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.gate, self.up, self.down = (nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        y = self.weight * wide.to(x.dtype)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_backward_part_stores_nothing_wide_and_keeps_what_it_did(dtype, monkeypatch):
    programs = []
    translated = driver.Driver._translated

    def watched(self, graph):
        made = translated(self, graph)
        programs.append(made[0].flat)
        return made

    monkeypatch.setattr(driver.Driver, "_translated", watched)

    def made():
        torch.manual_seed(0)
        model = nn.Sequential(Block(), Block(), Block()).to(dtype)

        def step(x):
            model.zero_grad()
            loss = model(x).float().square().mean()
            loss.backward()
            return loss.detach()

        return model, step

    (ours, step), (theirs, eager) = made(), made()
    fast = anyshape.compile(step, fullgraph=True)
    allowed = {"rtol": 5e-2, "atol": 5e-3} if dtype is torch.bfloat16 else {}
    for n in (4, 1, 7, 4):
        x = torch.randn(n, 8).to(dtype)
        torch.testing.assert_close(fast(x), eager(x), **allowed)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, **allowed)
    program = programs[-1]
    if dtype is torch.bfloat16:
        stored = [program.buffers[name] for step in launches(program) for name in step.writes()]
        wide = [b for b in stored if b.dtype.size_bytes == 4 and b.shape and b.shape[-1] == 8]
        assert not wide, wide


def test_what_reads_a_number_of_the_host_runs_once_that_has_its_value():
    """So that no kernel of it stores what is needed before: `full` of a number that is read on the host, which a
    kernel of another device takes in."""
    builder = Builder(TypeContext(Space(), Facts(Space())), OPS)
    number = builder.item(builder.rand(()))
    graph = builder.finish((builder.full((), number, float32, "cuda:0"),))
    found = analyse(graph, OPS)
    found.link_sources()
    operators = [node.op for node in graph.nodes]
    assert found.tested_at(operators.index("full")) == operators.index("item")
