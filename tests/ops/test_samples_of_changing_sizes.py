"""Operators of torch's database whose result, random numbers or refusal hang on a size or a number
that changes: each program is compiled once, and called as the samples of the database go on.

Compared as random programs are: values, layouts, gradients, errors and the state of the random
numbers afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import anyshape
from tests.fuzz.oracle import call, differences

Sample = tuple[Any, ...]


def attended(q: Tensor, k: Tensor, v: Tensor, p: float) -> Tensor:
    return F.scaled_dot_product_attention(q * 2, k, v, dropout_p=p)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Sample]]] = {
    "attention_that_drops_nothing_any_more_draws_nothing": (
        attended,
        [((2, 3, 8), (2, 6, 8), (2, 6, 8), p) for p in (0.5, 0.2, 0.0, 1.5)],
    ),
    "attention_of_nothing_has_the_batch_of_its_query": (
        attended,
        [
            ((2, 3, 8), (4, 2, 6, 8), (4, 2, 6, 5), 0.5),
            ((2, 3, 8), (0, 2, 6, 8), (0, 2, 6, 5), 0.5),
            ((0, 3, 8), (2, 0, 6, 8), (2, 0, 6, 5), 0.5),
        ],
    ),
    "rrelu_whose_gradient_is_asked_for_later_draws_once": (
        lambda x, recorded: F.rrelu(x if recorded else x.detach(), 0.0, 1.0, training=True),
        [((20,), False), ((20,), True)],
    ),
    "addmv_of_an_empty_matrix_has_the_shape_of_its_addend": (
        lambda x, m, v: torch.addmv(x, m, v, beta=0.2),
        [((1,), (5, 3), (3,)), ((1,), (5, 0), (0,)), ((), (0, 3), (3,))],
    ),
}


def made(sample: Sample) -> list[Any]:
    """Tensors of the shapes among the arguments, which require gradients."""
    drawn = torch.Generator().manual_seed(1)
    return [
        torch.randn(part, generator=drawn).requires_grad_() if isinstance(part, tuple) else part
        for part in sample
    ]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", PROGRAMS)
def test_samples_one_after_another(name: str) -> None:
    program, samples = PROGRAMS[name]
    fast = anyshape.compile(program)
    for sample in samples:
        found, wanted = call(fast, made(sample)), call(program, made(sample))
        assert not [*differences(found, wanted, exact=False)], sample
    assert not fast.stats().internal_errors
