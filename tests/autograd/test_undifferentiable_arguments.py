"""Arguments in whose direction ATen has no derivative: eager refuses them where gradients are
recorded, each floating argument of torch's own samples alone requiring them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

import anyshape
from tests.ops.test_op_db import CASES, IDS, samples

LOSSES = [
    pytest.param(entry, id=name)
    for entry, name in zip(CASES, IDS, strict=True)
    if "loss" in entry.name or "entropy" in entry.name
]
MOST_SAMPLES = 8


def outcome(program: Any, leaves: list[Any], spec: Any, position: int) -> object:
    given = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    given[position].requires_grad_()
    args, kwargs = tree_unflatten(given, spec)
    try:
        made = program(*args, **kwargs)
        if not made.requires_grad:
            return "none"
        made.sum().backward()
    except (RuntimeError, NotImplementedError) as error:
        return str(error)[:80]
    gradient = given[position].grad
    return "none" if gradient is None else gradient


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", LOSSES)
def test_gradients_of_a_loss_are_eagers_or_refused(entry: Any) -> None:
    fast = anyshape.compile(lambda *args, **kwargs: entry.op(*args, **kwargs))
    for args, kwargs in samples(entry, torch.float32, MOST_SAMPLES):
        leaves, spec = tree_flatten((args, kwargs))
        for position, leaf in enumerate(leaves):
            if not (isinstance(leaf, Tensor) and leaf.is_floating_point()):
                continue
            ours = outcome(fast, leaves, spec, position)
            eager = outcome(entry.op, leaves, spec, position)
            if isinstance(eager, Tensor):
                torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5, equal_nan=True)
            else:
                assert ours == eager
    assert fast.stats().internal_errors == 0


def test_weights_of_probabilities_have_gradients_and_without_recording_all_are_taken() -> None:
    def program(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w)
            F.soft_margin_loss(x, w.expand_as(x))
        return F.cross_entropy(x, y, w)

    fast = anyshape.compile(program, fullgraph=True)
    for rows in (3, 5):
        x, y, w = torch.randn(rows, 4), torch.rand(rows, 4), torch.rand(4, requires_grad=True)
        torch.testing.assert_close(
            torch.autograd.grad(fast(x, y, w), w), torch.autograd.grad(program(x, y, w), w)
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        lambda x, q: torch.quantile(x, q, interpolation="midpoint"),
        lambda x, q: torch.nanquantile(x, q.sigmoid(), interpolation="lower"),
        lambda x, q: torch.quantile(q, q, interpolation="higher") + x.sum(),
        lambda x, q: torch.quantile(x, q),
        lambda x, q: torch.linalg.vector_norm(torch.complex(x, x), 0) + q,
        lambda x, q: torch.complex(x, x).norm(p=0) + torch.complex(x, x).norm(p=3) * q,
    ],
)
def test_of_what_results_are_constant_in_the_gradient_is_none_and_no_zeros(program: Any) -> None:
    fast = anyshape.compile(program)
    for size in (3, 1, 2):
        torch.manual_seed(size)
        given = torch.randn(size).requires_grad_(), torch.rand(2).requires_grad_()
        ours, eager = (
            torch.autograd.grad(f(*given).sum(), given, allow_unused=True) for f in (fast, program)
        )
        for mine, wanted in zip(ours, eager, strict=True):
            assert (mine is None) == (wanted is None)
            if mine is not None:
                torch.testing.assert_close(mine, wanted)
    assert not fast.stats().eager_graphs and not fast.stats().internal_errors
