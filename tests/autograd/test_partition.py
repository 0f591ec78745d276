"""What is saved between the halves, and that the cut is the least."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.autograd.minimum_cut import UNBOUNDED, NoCut, minimum_cut


def flows(edges: set[tuple[int, int]], fed: set[int], drained: set[int], removed: set[int]) -> bool:
    """Whether a path from the source to the sink avoids what was removed."""
    waiting = list(fed - removed)
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node in drained:
            return True
        for start, end in edges:
            if start == node and end not in removed and end not in seen:
                seen.add(end)
                waiting.append(end)
    return False


@pytest.mark.parametrize("seed", range(60))
def test_the_cut_is_the_least_of_all(seed: int) -> None:
    stream = random.Random(seed)
    count = 7
    capacities = {n: stream.choice([0, 1, 2, 5, 9, UNBOUNDED]) for n in range(count)}
    edges = {(a, b) for a, b in itertools.combinations(range(count), 2) if stream.random() < 0.4}
    fed = {n for n in range(3) if stream.random() < 0.7}
    drained = {n for n in range(4, count) if stream.random() < 0.7}
    subsets = (
        set(c) for size in range(count + 1) for c in itertools.combinations(range(count), size)
    )
    least = min(
        (sum(capacities[n] for n in s) for s in subsets if not flows(edges, fed, drained, s)),
        default=UNBOUNDED,
    )
    try:
        cut = minimum_cut(capacities, edges, fed, drained)
    except NoCut:
        assert least >= UNBOUNDED
        return
    assert not flows(edges, fed, drained, cut)
    assert sum(capacities[n] for n in cut) == least


def compiled(fn: Callable[..., Tensor], *args: Tensor):
    fast = anyshape.compile(fn)
    fast(*args)
    ((variant,),) = (point.specializations for point in fast._lazy.machinery.points.values())
    return variant.compiled


def saved(fn: Callable[..., Tensor], *args: Tensor) -> list[str]:
    """What each residual is: an input, an output, or the operator that makes it."""
    made = compiled(fn, *args)
    _, forward, _ = (graph for _, graph in made.stages)
    makers = {value: node.op for node in forward.nodes for value in node.outputs}
    found = []
    for residual in made.boundary.layout.residuals:
        if residual.of_inputs:
            found.append(f"input {residual.position}")
        elif residual.position < made.boundary.layout.outputs:
            found.append(f"output {residual.position}")
        else:
            found.append(makers[forward.outputs[residual.position]])
    return sorted(found)


def x() -> Tensor:
    return torch.randn(5, 8, requires_grad=True)


def w() -> Tensor:
    return torch.randn(16, 8, requires_grad=True)


SAVED: dict[str, tuple[Callable[..., Tensor], list[str]]] = {
    "the argument of sin": (lambda x, w: x.sin().sum(), ["input 0"]),
    "the result of exp, not its argument": (lambda x, w: (x * 2).exp(), ["output 0"]),
    "nothing of a sum": (lambda x, w: (x * 2 + 1).sum(), []),
    "a product once, elementwise work not": (
        lambda x, w: (F.silu(x @ w.t()) * torch.tanh(x @ w.t())).sum(),
        ["input 0", "input 1", "mm"],
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved(name: str) -> None:
    fn, expected = SAVED[name]
    assert saved(fn, x(), w()) == expected


def test_the_statistics_of_a_norm_are_computed_once() -> None:
    """The gradient's formula computes them again; in the joint graph they are the same nodes."""
    made = compiled(lambda x, w: F.layer_norm(x @ w.t(), (16,)).square().sum(), x(), w())
    _, forward, backward = (graph for _, graph in made.stages)
    sums = Counter(node.op for node in forward.nodes)["sum"]
    assert sums == 3  # the mean, the variance, the loss
    assert Counter(node.op for node in backward.nodes)["sum"] == 2


def test_hints_choose_and_decide_no_result() -> None:
    """Compiled at sizes where another cut would be the least."""

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return (torch.sigmoid(x @ w.t()).sum(1, keepdim=True) * x).square().sum()

    for first in ((1, 1), (50, 3)):
        fast = anyshape.compile(loss)
        for rows, width in (first, (0, 2), (3, 40), (7, 1)):
            a = torch.randn(rows, width, dtype=torch.float64, requires_grad=True)
            b = torch.randn(9, width, dtype=torch.float64, requires_grad=True)
            found = torch.autograd.grad(fast(a, b), (a, b))
            torch.testing.assert_close(found, torch.autograd.grad(loss(a, b), (a, b)))
        assert fast.stats().specializations == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_dropout_saves_a_byte_for_each_element(dtype: torch.dtype, p: float) -> None:
    def dropped(x: Tensor) -> Tensor:
        return F.dropout(x.mT.exp(), p)

    fast = anyshape.compile(dropped)
    for size in (6, 1, 33):
        given = [torch.randn(size, 5, dtype=dtype, requires_grad=True) for _ in range(2)]
        given[1].data.copy_(given[0].data)
        made = []
        for run, x in zip((fast, dropped), given):
            torch.manual_seed(size)
            y = run(x)
            y.backward(torch.ones_like(y))
            made.append((y, x.grad, torch.rand(1)))
        torch.testing.assert_close(*made)
    y = fast(given[0])  # torch 2.11 lets go of what was saved with the last result
    kept = y.grad_fn.saved_tensors
    assert sorted(str(t.dtype) for t in kept) == sorted([str(dtype), "torch.bool"])
